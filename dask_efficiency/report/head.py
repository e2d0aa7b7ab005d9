"""The head of a saved report: what a history has of a run, and what readers with ``jq`` look for.

``head.schema.json`` beside this module describes it. It stands before all else in a file, on a line of its own, so
that thousands of runs are read without what they hold.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from importlib.resources import files
from typing import Any

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.intake import finite, fitting
from dask_efficiency.report.findings import headline
from dask_efficiency.report.gpu import plain, summary
from dask_efficiency.report.model import EfficiencyReport

#: Labels of a report, and characters of one. Guesses that bound a head.
MAX_LABELS, MAX_LABEL = 20, 200
#: What of the environment is in the head: versions, and the commit of the client's code.
VERSIONS = ("dask-efficiency", "dask", "distributed", "python", "commit")
#: Properties of a report in its head, beyond those of a :class:`RunHead`.
_FIGURES = (
    *("occupancy", "load_balance", "no_workers_seconds", "client_seconds", "ideal_bounds", "ideal_seconds"),
    *("headroom", "mean_threads", "useful_seconds", "factors"),
)


@dataclass(frozen=True, slots=True)
class RunHead:
    """One run in a history; None where something is not known."""

    name: str
    #: Seconds since the epoch by the client's clock.
    started: float
    headline: str
    wall_clock_seconds: float
    cluster_seconds: float
    #: All but ``no-work``; and every bucket by name.
    thread_seconds: float
    bucket_seconds: Mapping[str, float]
    #: In [0, 1].
    efficiency: float | None
    #: Bytes by way, as in :attr:`EfficiencyReport.moved`.
    moved_bytes: Mapping[str, int]
    #: Most process memory of one worker, and of all at a time.
    worker_peak_bytes: float | None
    cluster_peak_bytes: float | None
    workers: int
    threads: int
    #: Title of the first finding, with its saving and place; may be empty.
    first_finding: str
    #: Price of all thread time, in any currency.
    cost: float | None
    #: By name, of :data:`VERSIONS`.
    versions: Mapping[str, str]
    labels: Mapping[str, str]
    #: Exception that ended the run; empty if none did.
    ended_by: str

    def to_dict(self) -> dict[str, Any]:
        """Its fields by name, for JSON."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def spilled_bytes(self) -> int:
        """Bytes that were written to disk for lack of memory."""
        return self.moved_bytes.get("spilled", 0)

    @property
    def is_whole(self) -> bool:
        """True if it ran to its end, and something ran."""
        return not self.ended_by and self.cluster_seconds > 0


def given_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Labels of a report as they are kept: short texts; TypeError or ValueError for what are none."""
    if not isinstance(labels, Mapping):
        raise TypeError(f"labels is {labels!r:.80}; expected texts by name, such as {{'branch': 'main'}}")
    if len(labels) > MAX_LABELS:
        raise ValueError(f"labels has {len(labels)} names; expected at most {MAX_LABELS}")
    return {fitting(name, MAX_LABEL): fitting(value, MAX_LABEL) for name, value in labels.items()}


def run_head(report: EfficiencyReport) -> RunHead:
    """Row of a report in a history."""
    first = next(iter(report.findings), None)
    return RunHead(
        name=report.name,
        started=report.started,
        headline=headline(report),
        wall_clock_seconds=report.wall_clock_seconds,
        cluster_seconds=report.cluster_seconds,
        thread_seconds=report.thread_seconds,
        bucket_seconds={str(bucket): report.breakdown[bucket] for bucket in Bucket if bucket in report.breakdown},
        efficiency=finite(report.efficiency),
        moved_bytes={way: amount.nbytes for way, amount in report.moved.items()},
        worker_peak_bytes=finite(worker_peak(report)),
        cluster_peak_bytes=finite(cluster_peak(report)),
        workers=report.attendance.get("workers", len(report.by_worker)),
        threads=sum(report.nthreads.values()),
        first_finding="" if first is None else first.lines[0],
        cost=report.money(report.thread_seconds),
        versions={name: report.environment[name] for name in VERSIONS if name in report.environment},
        labels=report.labels,
        ended_by=report.ended_by,
    )


def head_of(report: EfficiencyReport) -> dict[str, Any]:
    """Content of the head: a :class:`RunHead`, all findings, and more figures."""
    return {
        **run_head(report).to_dict(),
        "findings": [one.to_dict() for one in report.findings],
        **{name: getattr(report, name) for name in _FIGURES},
        "gpu": None if (gpus := summary(report.gpu)) is None else plain(gpus),
        "losses": [asdict(loss) | {"bucket": str(loss.bucket)} for loss in report.losses],
    }


def worker_peak(report: EfficiencyReport) -> float:
    """Most process memory of one worker, in bytes; NaN if unknown."""
    return max((one.peak for one in report.memory.values() if one.peak), default=math.nan)


def cluster_peak(report: EfficiencyReport) -> float:
    """Most process memory of all workers at a time, in bytes; NaN if unknown."""
    return math.nan if report.memory_timeline is None else report.memory_timeline.cluster.peak or math.nan


def schema() -> dict[str, Any]:
    """JSON schema of the first line of a saved report, which holds its head."""
    found: dict[str, Any] = json.loads(files("dask_efficiency.report").joinpath("head.schema.json").read_text("utf-8"))
    return found
