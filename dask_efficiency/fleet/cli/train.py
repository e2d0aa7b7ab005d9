"""`dask-efficiency fleet train`: a detector that has learnt how a fleet behaves while all is well."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from dask_efficiency.cli.errors import one_line_errors
from dask_efficiency.cli.options import save_option, timeout_option
from dask_efficiency.cli.output import tell
from dask_efficiency.cli.source import is_file, look_at
from dask_efficiency.fleet.cli.options import between_option, metrics_option, settings_option
from dask_efficiency.runs.cli.recorded import run_or_table
from dask_efficiency.show.progress import StoppedWarning, progress

if TYPE_CHECKING:
    from dask_efficiency.fleet.outliers.metric_series import MetricSeries
    from dask_efficiency.fleet.prometheus.prometheus_source import PrometheusSource


@click.command("train")
@click.argument("sources", nargs=-1, required=True)
@metrics_option
@between_option
@settings_option
@click.option(
    "--windows",
    type=click.IntRange(1, 10_000),
    default=40,
    show_default=True,
    help="So many, evenly spread over that past.",
)
@click.option("--steps", type=click.IntRange(min=1), default=800, show_default=True, help="Of training, each metric.")
@click.option("--seed", type=int, default=0, show_default=True)
@save_option("the detector", required=True)
@timeout_option("30s", "Prometheus")
def command(
    sources: tuple[str, ...],
    metrics: str | None,
    between: tuple[float, float] | None,
    settings: str | None,
    windows: int,
    steps: int,
    seed: int,
    save: str,
    timeout: float,
) -> None:
    """Learn how a fleet behaves while all is well.

    `fleet watch` then judges by what was learnt. SOURCES are recorded runs, or tables (.csv, .parquet) with the columns
    at (seconds) and worker, optionally group and host, and one for each metric; with --metrics and --between, the URL
    of a Prometheus. Rare faults in them do little harm. A sample is a window of the watch's settings. Needs the extra
    `minder`.
    """
    if (metrics is None) != (between is None) or (metrics is not None and len(sources) > 1):
        raise click.UsageError("expected files, or the URL of a Prometheus with --metrics and --between")
    with one_line_errors():
        from dask_efficiency.fleet.cli.watch_parts import prometheus_source
        from dask_efficiency.fleet.minder.train import train_minder
        from dask_efficiency.fleet.settings import WatchSettings, read_settings

        chosen = WatchSettings() if settings is None else read_settings(settings)
        if metrics is None or between is None:
            runs = [run_or_table(look_at(file)) for file in sources]
        else:
            if between[1] - between[0] < chosen.window:
                raise click.UsageError(
                    f"--between are {between[1] - between[0]:g} s; expected a window of {chosen.window:g} s at least"
                )
            asked = prometheus_source(sources[0], metrics, chosen, timeout)
            runs = list(_pulled(asked, between, chosen.window, windows))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", StoppedWarning)
            minder = train_minder(runs, steps=steps, seed=seed)
        for one in caught:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
        if any(issubclass(one.category, StoppedWarning) for one in caught) and is_file(save):
            raise click.ClickException(
                f"{save} stays as it was; of the new detector only {', '.join(minder.metrics)} was learnt"
            )
        minder.save(save)
    tell(f"{save}: {', '.join(minder.metrics)}, of {len(runs)} runs or windows.")


def _pulled(
    source: PrometheusSource, between: tuple[float, float], window: float, windows: int
) -> Iterator[MetricSeries]:
    """Windows of the past, evenly spread."""
    first, last = between
    count = min(windows, max(int((last - first) // window), 1))
    with progress("reading the past", unit="windows", of=count) as report:
        for number in range(count):
            start = first + number * (last - first - window) / max(count - 1, 1)
            series = source.pull(start=start, stop=start + window)
            report(number + 1)
            if number == 0:
                source.check(series)
            if series.workers:
                yield series
