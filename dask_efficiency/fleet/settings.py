"""WatchSettings: the settings of a watch, read from a file, and the source, detector and watch that they make."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from dask_efficiency.cli.inputs import scheduler_address
from dask_efficiency.cli.options import Connection
from dask_efficiency.files.text_files import YamlSection, composed, known_names, read_text
from dask_efficiency.fleet.dask_source import Retiring, SchedulerSource
from dask_efficiency.fleet.minder.detector import Minder, load_minder
from dask_efficiency.fleet.outliers.outliers import CONTINUITY_SECONDS, find_outliers
from dask_efficiency.fleet.prometheus.http_config import HttpConfig, read_http_config
from dask_efficiency.fleet.prometheus.prometheus_query import PrometheusClient
from dask_efficiency.fleet.prometheus.prometheus_source import PrometheusSource
from dask_efficiency.fleet.prometheus.receivers import Command, OwnMetrics, Receiver, Webhook
from dask_efficiency.fleet.rounds.metrics_file import duration_of, read_metrics_file
from dask_efficiency.fleet.rounds.rounds import Event
from dask_efficiency.fleet.scheduler.worker_series import NAMES
from dask_efficiency.fleet.watch import Detector, FleetWatch
from dask_efficiency.straggler.retirements import RETIRE_SHARE, Retirements, most_retired


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """Settings of a watch; the defaults hold where a file does not mention them."""

    #: Seconds between two rounds; length of the judged window; and of the past before it.
    every: float = 480.0
    window: float = 900.0
    history: float = 3600.0
    #: Seconds for which a machine must be unlike others; None for the default.
    continuity: float | None = None
    #: File of a trained detector; empty for :func:`~dask_efficiency.fleet.find_outliers`.
    model: str = ""
    #: Passwords and certificates for Prometheus.
    http_config: HttpConfig = field(default_factory=HttpConfig)
    #: Receivers of findings.
    webhook: Webhook | None = None
    command: Command | None = None
    #: Where the watch serves metrics of itself; port 0 for nowhere. They name no machine, so by default they are on all
    #: addresses of the host, as those of Prometheus' exporters are.
    metrics_port: int = 0
    metrics_address: str = "0.0.0.0"
    #: Largest share of the workers retired within a day, and seconds between two retirements.
    retire_share: float = RETIRE_SHARE
    retire_every: float = 1800.0

    @property
    def receivers(self) -> tuple[Receiver, ...]:
        """All receivers of findings."""
        return tuple(one for one in (self.webhook, self.command) if one is not None)


def read_settings(path: str | os.PathLike[str]) -> WatchSettings:
    """Read a file of settings; file names in it are relative to it.

    Raises TextFileError with the line, and OSError if it, or a file that it names, cannot be read.
    """
    folder = Path(path).parent
    readers: dict[str, Callable[[str], Any]] = {
        "every": duration_of,
        "window": duration_of,
        "history": duration_of,
        "continuity": duration_of,
        "model": lambda text: str(folder / _given(text)),
        "http-config": lambda text: read_http_config(str(folder / _given(text))),
        "webhook": Webhook,
        "command": Command.of,
        "metrics-port": _port,
        "metrics-address": _address,
        "retire-share": _share,
        "retire-every": duration_of,
    }
    section = YamlSection(composed(read_text(path), path), path, set(readers))
    if "model" in section and "continuity" in section:
        raise section.error(
            "continuity", "'continuity' is given along with 'model', which has its own; expected one of them"
        )
    if "metrics-address" in section and "metrics-port" not in section:
        raise section.error("metrics-address", "'metrics-address' is given without 'metrics-port'")
    given: dict[str, Any] = {
        name.replace("-", "_"): section.get(name, read, None) for name, read in readers.items() if name in section
    }
    return WatchSettings(**given)


def _given(text: str) -> str:
    if not text:
        raise ValueError("expected the name of a file")
    return text


def _port(text: str) -> int:
    if not (text.isdecimal() and 1 <= int(text) <= 65_535):
        raise ValueError(f"expected a port from 1 to 65535, got {text[:80]!r}")
    return int(text)


def _address(text: str) -> str:
    if not text:
        raise ValueError("expected an address of this host, such as 127.0.0.1 or ::1; 0.0.0.0 is all of them")
    return text


def _share(text: str) -> float:
    try:
        most_retired(0, share := float(text))
    except ValueError:
        raise ValueError(f"expected a share above 0 and below 1 such as 0.25, got {text[:80]!r}") from None
    return share


#: Sources of a watch's metrics.
Source = SchedulerSource | PrometheusSource

#: Least number of samples in a window; fewer show too little. A guess.
MIN_SAMPLES = 16


def scheduler_source(scheduler: str, connection: Connection) -> SchedulerSource:
    """Metrics that a scheduler keeps of its workers."""
    address = scheduler_address(scheduler, "a scheduler, or a Prometheus with --metrics")

    def asking(question: Callable[[Any], Awaitable[Any]]) -> Any:
        try:
            return connection.reply(address, question)
        except click.ClickException as error:  # a scheduler without the plugin may have it in the next round
            raise ValueError(error.message) from error

    return SchedulerSource(address, asking, connection.timeout_seconds)


def prometheus_source(url: str, metrics: str, settings: WatchSettings, timeout_seconds: float) -> PrometheusSource:
    """Metrics of a file of queries, from a Prometheus."""
    return PrometheusSource(PrometheusClient(url, settings.http_config, timeout_seconds), read_metrics_file(metrics))


def fleet_watch(
    source: Source,
    settings: WatchSettings,
    *,
    show: Callable[[Event], None],
    warn: Callable[[str], None],
    clock: Callable[[], float],
) -> FleetWatch:
    """Watch of a source; raises OSError, ValueError or ImportError if a file or a setting cannot be used."""
    detector = _detector(source, settings)
    samples = settings.window / source.step_seconds
    if samples < MIN_SAMPLES:
        raise ValueError(
            f"a window of {settings.window:g} s has {samples:.0f} samples, one in {source.step_seconds:g} s; "
            f"expected {MIN_SAMPLES} at least"
        )
    metrics = None
    if settings.metrics_port:
        metrics = OwnMetrics()
        metrics.serve(settings.metrics_port, settings.metrics_address)
    return FleetWatch(source, detector, settings, show, warn, clock, metrics)


def _detector(source: Source, settings: WatchSettings) -> Detector:
    if not settings.model:
        # A scheduler gives its workers what it likes.
        return outlier_detector(settings.continuity, same_work=not isinstance(source, SchedulerSource))
    minder = load_minder(settings.model)
    if isinstance(source, SchedulerSource):
        check_model(minder, settings.model, NAMES, f"a scheduler such as {source.name}")
    else:
        check_model(minder, settings.model, [metric.name for metric in source.file.metrics], source.file.path)
    return lambda window, past: minder.find(window)


def retiring(
    source: SchedulerSource, settings: WatchSettings, watch: FleetWatch, say: Callable[[str], None]
) -> Callable[[float], None]:
    """Function that retires, at an instant, one of those that the last round found."""
    limit = Retirements(share=settings.retire_share, every_seconds=settings.retire_every)
    retire = Retiring(source.asking, limit, say)
    return lambda at: retire(watch.found, watch.present, at=at)


def outlier_detector(continuity_seconds: float | None = None, *, same_work: bool = True) -> Detector:
    """:func:`~dask_efficiency.fleet.find_outliers` as the detector of a watch."""
    seconds = CONTINUITY_SECONDS if continuity_seconds is None else continuity_seconds
    return lambda window, past: find_outliers(window, history=past, continuity_seconds=seconds, same_work=same_work)


def check_model(minder: Minder, path: str, names: Sequence[str], source: str) -> None:
    """Raise ValueError if a trained detector needs metrics that the named source does not have."""
    unknown = [name for name in minder.metrics if name not in names]
    if unknown:
        raise ValueError(
            f"{path} was trained on {unknown[0][:80]!r}, which {source} does not have; "
            f"{known_names(unknown[0], names)}; expected a model of the same metrics, as `fleet train` makes"
        )
