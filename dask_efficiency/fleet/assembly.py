"""Source, detector and watch, as the options and settings of a command ask for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import click

from dask_efficiency.cli.inputs import scheduler_address
from dask_efficiency.cli.options import Connection
from dask_efficiency.files.text_files import known_names
from dask_efficiency.fleet.dask_source import SchedulerSource
from dask_efficiency.fleet.minder.detector import load_minder
from dask_efficiency.fleet.outliers.departures import CONTINUITY_SECONDS
from dask_efficiency.fleet.outliers.outliers import find_outliers
from dask_efficiency.fleet.prometheus.prometheus_query import PrometheusClient
from dask_efficiency.fleet.prometheus.prometheus_source import PrometheusSource
from dask_efficiency.fleet.prometheus.receivers import OwnMetrics
from dask_efficiency.fleet.rounds.exclusions import Detector
from dask_efficiency.fleet.rounds.metrics_file import read_metrics_file
from dask_efficiency.fleet.rounds.rounds import Event
from dask_efficiency.fleet.scheduler.worker_series import NAMES
from dask_efficiency.fleet.settings import WatchSettings
from dask_efficiency.fleet.watch import FleetWatch, Source

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
        found = f"a window of {settings.window:g} s has {samples:.0f} samples, one in {source.step_seconds:g} s"
        raise ValueError(f"{found}; expected {MIN_SAMPLES} at least")
    metrics = None
    if settings.metrics_port:
        metrics = OwnMetrics()
        metrics.serve(settings.metrics_port, settings.metrics_address)
    return FleetWatch(source, detector, settings, show, warn, clock, metrics)


def _detector(source: Source, settings: WatchSettings) -> Detector:
    same_work = not isinstance(source, SchedulerSource)  # a scheduler gives its workers what it likes
    if not settings.model:
        return outlier_detector(settings.continuity, same_work=same_work)
    minder = load_minder(settings.model)
    names, whose = list(NAMES), f"a scheduler such as {source.name}"
    if isinstance(source, PrometheusSource):
        names, whose = [metric.name for metric in source.file.metrics], source.file.path
    unknown = [name for name in minder.metrics if name not in names]
    if unknown:
        raise ValueError(
            f"{settings.model} was trained on {unknown[0][:80]!r}, which {whose} does not have; "
            f"{known_names(unknown[0], names)}; expected a model of the same metrics, as `fleet train` makes"
        )
    return lambda window, past: minder.find(window, continuity_seconds=settings.continuity, same_work=same_work)


def outlier_detector(continuity_seconds: float = CONTINUITY_SECONDS, *, same_work: bool = True) -> Detector:
    """:func:`~dask_efficiency.fleet.find_outliers` as the detector of a watch."""
    return lambda window, past: find_outliers(
        window, history=past, continuity_seconds=continuity_seconds, same_work=same_work
    )
