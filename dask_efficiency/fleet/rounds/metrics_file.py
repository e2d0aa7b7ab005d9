"""Files of metrics: named queries of a fleet's metrics, and the meaning of each."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from dask_efficiency.accounts.slow_worker import Cause
from dask_efficiency.files.text_files import (
    TextFileError,
    YamlSection,
    composed,
    known_names,
    line_of,
    read_text,
    text_of,
)
from dask_efficiency.fleet.outliers.metric_series import MIN_CHANGE, Metric
from dask_efficiency.show.figures import format_number

#: Files that come with the package: for node_exporter, for dcgm-exporter, and for the scheduler's own ``/metrics``.
READY = ("node", "dcgm", "dask-efficiency")
#: Default of the seconds between two samples: the usual scrape interval of Prometheus.
STEP_SECONDS = 15.0
#: Default of the label with the machine's name.
MACHINE = "instance"
#: Most metrics of a file; each takes a query. A guess.
MAX_METRICS = 100

_DIRECTIONS = {"more": 1, "less": -1, "either": 0}
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_NAME = re.compile(r"[\w.:-]{1,100}")
_KEYS = {"query", "machine", "group", "worse", "cause", "least", "optional"}


@dataclass(frozen=True, slots=True)
class MetricQuery:
    """A metric of a fleet, by its name in findings, and a query in PromQL that has one series a machine."""

    name: str
    query: str
    #: Labels: the machine's name, and what comparable machines have in common, which may be empty.
    machine: str
    group: str
    meaning: Metric
    #: Whether it may return nothing.
    optional: bool
    #: Line in its file.
    line: int


@dataclass(frozen=True, slots=True)
class MetricsFile:
    """Content of a file of metrics; its path is for errors, its step between two samples."""

    path: str
    step_seconds: float
    metrics: tuple[MetricQuery, ...]

    def error(self, metric: MetricQuery, wrong: str) -> TextFileError:
        """Error about a metric, with its line."""
        return TextFileError(self.path, metric.line, f"{metric.name}: {wrong}")


def read_metrics_file(given: str | os.PathLike[str]) -> MetricsFile:
    """Read a file of metrics, by its path or one of :data:`READY`; raises TextFileError with a line, and OSError."""
    name = os.fspath(given)
    if name in READY:
        file = resources.files("dask_efficiency.fleet.rounds").joinpath("metrics", f"{name}.yaml")
        return parse_metrics_file(file.read_text(encoding="utf-8"), f"{name}.yaml")
    if not Path(name).exists():
        raise FileNotFoundError(f"there is no file {name!r}; expected the path of one, or one of: {', '.join(READY)}")
    return parse_metrics_file(read_text(name), name)


def parse_metrics_file(text: str, path: str) -> MetricsFile:
    """Parse the text of such a file; the path is for errors."""
    file = YamlSection(composed(text, path), path, {"step", "machine", "group", "metrics"})
    machine = file.get("machine", _label, MACHINE)
    group = file.get("group", _label, "")
    metrics: dict[str, MetricQuery] = {}
    for key, node in file.pairs("metrics"):
        name = text_of(key, path)
        if not _NAME.fullmatch(name) or name in metrics:
            wrong = "is given twice" if name in metrics else "is no name; expected letters, digits and any of _ . : -"
            raise TextFileError(path, line_of(key), f"{name[:80]!r} {wrong}")
        section = YamlSection(node, path, _KEYS)
        query = " ".join(section.get("query", str, "").split())
        if not query:
            raise TextFileError(path, line_of(key), f"{name} has no query; expected 'query' below it, in PromQL")
        metrics[name] = _metric(name, query, section, machine=machine, group=group)
    if not 1 <= len(metrics) <= MAX_METRICS:
        raise file.error("metrics", f"there are {len(metrics)} metrics; expected 1 to {MAX_METRICS} below 'metrics'")
    return MetricsFile(path, file.get("step", duration_of, STEP_SECONDS), tuple(metrics.values()))


def _metric(name: str, query: str, section: YamlSection, *, machine: str, group: str) -> MetricQuery:
    worse, cause = section.get("worse", _direction, 0), section.get("cause", _cause, None)
    least, is_share = section.get("least", _least, (MIN_CHANGE, True))
    return MetricQuery(
        name=name,
        query=query,
        machine=section.get("machine", _label, machine),
        group=section.get("group", _label, group),
        meaning=Metric(worse, cause, least=least) if is_share else Metric(worse, cause, least_value=least),
        optional=section.get("optional", _yes_or_no, False),
        line=section.line("query"),
    )


def _label(text: str) -> str:
    if not _LABEL.fullmatch(text):
        raise ValueError(f"expected the name of a label such as {MACHINE}, got {text[:80]!r}")
    return text


def _direction(text: str) -> int:
    if text not in _DIRECTIONS:
        raise ValueError(f"expected {', '.join(_DIRECTIONS)}, got {text[:80]!r}")
    return _DIRECTIONS[text]


def _cause(text: str) -> Cause:
    if text not in list(Cause):
        raise ValueError(f"{text[:80]!r} is unknown; {known_names(text, list(Cause))}")
    return Cause(text)


def _least(text: str) -> tuple[float, bool]:
    """Least change, and whether it is a share of the peers' level."""
    is_share = text.endswith("%")
    try:
        value = float(text.removesuffix("%")) / (100 if is_share else 1)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ValueError(f"expected a number in the unit of the metric, or a share such as 10%, got {text[:80]!r}")
    return value, is_share


def _yes_or_no(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"expected true or false, got {text[:80]!r}")
    return text == "true"


_SECONDS = {"w": 604_800.0, "d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 1e-3}
_PARTS = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[wdhms]))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[wdhms])")


def duration_of(text: str) -> float:
    """Seconds of a duration as Prometheus writes it, such as ``15s`` or ``1h30m``; more than 0."""
    if _PARTS.fullmatch(text.strip()):
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
        if 0 < seconds < math.inf:
            return seconds
    raise ValueError(f"expected a duration above 0 such as 15s, 8m or 1h30m, got {text[:80]!r}")


def shown_duration(seconds: float) -> str:
    """Duration in the largest unit that leaves a whole number: ``90s``, ``8m``."""
    for unit, factor in _SECONDS.items():
        if unit not in ("w", "ms") and seconds >= factor and seconds % factor == 0:
            return f"{seconds / factor:g}{unit}"
    return f"{format_number(seconds)}s"
