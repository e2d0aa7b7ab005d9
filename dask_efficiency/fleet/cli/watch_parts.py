"""What a watch is made of, by its options."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import click

from dask_efficiency.cli.source import Kind, look_at
from dask_efficiency.fleet.cli.watch_options import PrometheusOptions, WatchOptions
from dask_efficiency.fleet.dask_source import Asking, Retiring, SchedulerSource
from dask_efficiency.fleet.prometheus.http_config import HttpConfig, read_http_config
from dask_efficiency.fleet.prometheus.own_metrics import OwnMetrics
from dask_efficiency.fleet.prometheus.prometheus_query import PrometheusClient
from dask_efficiency.fleet.prometheus.prometheus_source import PrometheusSource
from dask_efficiency.fleet.prometheus.receivers import Command, Receiver, Webhook
from dask_efficiency.fleet.rounds.judging import ByMinder, Detector, Outliers, check_model
from dask_efficiency.fleet.rounds.metrics_file import read_metrics_file
from dask_efficiency.fleet.rounds.rounds import Event
from dask_efficiency.fleet.scheduler.worker_series import NAMES
from dask_efficiency.fleet.watch import FleetWatch, Source
from dask_efficiency.straggler.retirements import Retirements

#: A window of fewer samples has too little in it.
MIN_SAMPLES = 16


def build(
    options: WatchOptions,
    *,
    show: Callable[[Event], None],
    warn: Callable[[str], None],
    clock: Callable[[], float],
) -> tuple[FleetWatch, Callable[[float], None] | None]:
    """The watch, and what retires whom a round found.

    Raises
    ------
    OSError, ValueError, ImportError
        If a file, a URL or an option cannot be used.
    """
    source, detector = _parts(options)
    if options.scheduler is not None:
        options.connection.announce(source.name)
    samples = options.window / source.step_seconds
    if samples < MIN_SAMPLES:
        raise ValueError(
            f"a window of {options.window:g} s has {samples:.0f} samples, one in {source.step_seconds:g} s; "
            f"expected {MIN_SAMPLES} at least"
        )
    watch = FleetWatch(
        source=source,
        detector=detector,
        window_seconds=options.window,
        history_seconds=options.history,
        show=show,
        warn=warn,
        clock=clock,
        receivers=_receivers(options),
        continuity_seconds=options.continuity,
    )
    if options.metrics_port is not None:
        metrics = OwnMetrics()
        metrics.serve(options.metrics_port)
        watch = replace(watch, observers=(metrics,))
    return watch, _retiring(options, watch, warn) if options.retire else None


def _parts(options: WatchOptions) -> tuple[Source, Detector]:
    if options.scheduler is not None:
        asking, address = _asking(options)
        source = SchedulerSource(address, asking, options.connection.timeout_seconds)
        return source, _detector(options, NAMES, f"a scheduler such as {address}")
    asked = prometheus_source(options.prometheus, options.connection.timeout_seconds)
    return asked, _detector(options, [metric.name for metric in asked.file.metrics], asked.file.path)


def _asking(options: WatchOptions) -> tuple[Asking, str]:
    """What asks the scheduler, and its address."""
    given = look_at(options.scheduler or "")
    if given.kind is not Kind.SCHEDULER:
        raise given.refusal("a scheduler, or --prometheus and --metrics")

    def asking(question: Callable[[Any], Awaitable[Any]]) -> Any:
        try:
            return options.connection.reply(given.where, question)
        except click.ClickException as error:  # a scheduler without the plugin may have it in the next round
            raise ValueError(error.message) from error

    return asking, given.where


def _retiring(options: WatchOptions, watch: FleetWatch, say: Callable[[str], None]) -> Callable[[float], None]:
    limit = Retirements(share=options.retire_share, every_seconds=options.retire_every)
    retiring = Retiring(_asking(options)[0], limit, say)

    def retire(at: float) -> None:
        retiring(watch.found, watch.present, at=at)

    return retire


def prometheus_source(options: PrometheusOptions, timeout_seconds: float) -> PrometheusSource:
    """The metrics of a file from a Prometheus."""
    config = HttpConfig() if options.http_config is None else read_http_config(options.http_config)
    file = read_metrics_file(options.metrics or "")
    if options.step is not None:
        file = replace(file, step_seconds=options.step)
    return PrometheusSource(PrometheusClient(options.url or "", config, timeout_seconds), file)


def _detector(options: WatchOptions, names: Sequence[str], source: str) -> Detector:
    if options.model is None:
        return Outliers(options.continuity)
    from dask_efficiency.fleet.minder.detector import load_minder

    minder = load_minder(options.model)
    check_model(minder, options.model, names, source)
    return ByMinder(minder)


def _receivers(options: WatchOptions) -> tuple[Receiver, ...]:
    receivers: list[Receiver] = []
    if options.on_finding is not None:
        receivers.append(Webhook(options.on_finding))
    if options.on_finding_command is not None:
        receivers.append(Command.of(options.on_finding_command))
    return tuple(receivers)
