"""What a watch is made of: where metrics come from, who judges them, and who retires workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import click

from dask_efficiency.cli.connection import Connection
from dask_efficiency.cli.source import scheduler_address
from dask_efficiency.fleet.dask_source import Retiring, SchedulerSource
from dask_efficiency.fleet.prometheus.own_metrics import OwnMetrics
from dask_efficiency.fleet.prometheus.prometheus_query import PrometheusClient
from dask_efficiency.fleet.prometheus.prometheus_source import PrometheusSource
from dask_efficiency.fleet.rounds.judging import ByMinder, Detector, Outliers, check_model
from dask_efficiency.fleet.rounds.metrics_file import read_metrics_file
from dask_efficiency.fleet.rounds.rounds import Event
from dask_efficiency.fleet.scheduler.worker_series import NAMES
from dask_efficiency.fleet.settings import WatchSettings
from dask_efficiency.fleet.watch import FleetWatch
from dask_efficiency.straggler.retirements import Retirements

Source = SchedulerSource | PrometheusSource

#: A window of fewer samples has too little in it.
MIN_SAMPLES = 16


def scheduler_source(scheduler: str, connection: Connection) -> SchedulerSource:
    """The metrics that a scheduler keeps of its workers."""
    address = scheduler_address(scheduler, "a scheduler, or a Prometheus with --metrics")

    def asking(question: Callable[[Any], Awaitable[Any]]) -> Any:
        try:
            return connection.reply(address, question)
        except click.ClickException as error:  # a scheduler without the plugin may have it in the next round
            raise ValueError(error.message) from error

    return SchedulerSource(address, asking, connection.timeout_seconds)


def prometheus_source(url: str, metrics: str, settings: WatchSettings, timeout_seconds: float) -> PrometheusSource:
    """The metrics of a file from a Prometheus."""
    return PrometheusSource(PrometheusClient(url, settings.http_config, timeout_seconds), read_metrics_file(metrics))


def fleet_watch(
    source: Source,
    settings: WatchSettings,
    *,
    show: Callable[[Event], None],
    warn: Callable[[str], None],
    clock: Callable[[], float],
) -> FleetWatch:
    """The watch of a source.

    Raises
    ------
    OSError, ValueError, ImportError
        If a file or a setting cannot be used.
    """
    detector = _detector(source, settings)
    samples = settings.window / source.step_seconds
    if samples < MIN_SAMPLES:
        raise ValueError(
            f"a window of {settings.window:g} s has {samples:.0f} samples, one in {source.step_seconds:g} s; "
            f"expected {MIN_SAMPLES} at least"
        )
    observers: tuple[OwnMetrics, ...] = ()
    if settings.metrics_port:
        metrics = OwnMetrics()
        metrics.serve(settings.metrics_port, settings.metrics_address)
        observers = (metrics,)
    return FleetWatch(
        source=source,
        detector=detector,
        window_seconds=settings.window,
        history_seconds=settings.history,
        show=show,
        warn=warn,
        clock=clock,
        receivers=settings.receivers,
        observers=observers,
        continuity_seconds=settings.continuity,
    )


def _detector(source: Source, settings: WatchSettings) -> Detector:
    if not settings.model:
        return Outliers(settings.continuity)
    from dask_efficiency.fleet.minder.detector import load_minder

    minder = load_minder(settings.model)
    if isinstance(source, SchedulerSource):
        check_model(minder, settings.model, NAMES, f"a scheduler such as {source.name}")
    else:
        check_model(minder, settings.model, [metric.name for metric in source.file.metrics], source.file.path)
    return ByMinder(minder)


def retiring(
    source: SchedulerSource, settings: WatchSettings, watch: FleetWatch, say: Callable[[str], None]
) -> Callable[[float], None]:
    """What retires, at an instant, whom the last round found."""
    limit = Retirements(share=settings.retire_share, every_seconds=settings.retire_every)
    retire = Retiring(source.asking, limit, say)
    return lambda at: retire(watch.found, watch.present, at=at)
