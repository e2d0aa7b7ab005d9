"""`dask-efficiency train-minder`: a detector that has learnt how a fleet behaves while all is well."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from dask_efficiency.cli.errors import one_line_errors
from dask_efficiency.cli.options import timedelta
from dask_efficiency.cli.tables import read_csv, read_parquet
from dask_efficiency.cli.watch_options import PrometheusOptions, instant, prometheus_options
from dask_efficiency.storage import check_target

if TYPE_CHECKING:
    import pandas as pd

    from dask_efficiency.straggler.metric_series import MetricSeries
    from dask_efficiency.trace.run_trace import TraceTables


@click.command("train-minder")
@click.argument("files", nargs=-1)
@prometheus_options
@click.option("--from", "first", callback=instant, metavar="WHEN", help="The quiet weeks of a fleet: from then on.")
@click.option("--to", "last", callback=instant, metavar="WHEN", help="Until then.")
@click.option("--window", default="15m", show_default=True, callback=timedelta, metavar="TIME", help="Of one sample.")
@click.option(
    "--windows",
    type=click.IntRange(1, 10_000),
    default=40,
    show_default=True,
    help="So many, evenly spread over that time.",
)
@click.option("--steps", type=click.IntRange(min=1), default=800, show_default=True, help="Of training, each metric.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--timeout",
    default="30s",
    show_default=True,
    callback=timedelta,
    metavar="TIME",
    help="How long Prometheus may be silent.",
)
@click.option("--output", "-o", required=True, metavar="FILE", help="Where the detector goes, such as minder.npz.")
def command(
    files: tuple[str, ...],
    prometheus: PrometheusOptions,
    first: float | None,
    last: float | None,
    window: float,
    windows: int,
    steps: int,
    seed: int,
    timeout: float,
    output: str,
) -> None:
    """Learn how a fleet behaves while all is well, for `watch --detector minder`.

    What is learnt from is a Prometheus (--prometheus, --metrics, --from and --to), or FILES: recorded runs, or tables
    (.csv, .parquet) with the columns at (seconds) and worker, optionally group and host, and one for each metric. Rare
    faults in them do little harm. Needs the extra `minder`.
    """
    if bool(files) == (prometheus.url is not None):
        raise click.UsageError("expected either FILES or --prometheus URL")
    if prometheus.url is not None and (prometheus.metrics is None or first is None or last is None):
        raise click.UsageError("--prometheus takes --metrics, --from and --to")
    if first is not None and last is not None and last - first < window:
        raise click.UsageError(
            f"from --from to --to are {last - first:g} s; expected a window of {window:g} s at least"
        )
    with one_line_errors():
        from dask_efficiency.straggler.minder.train import train_minder

        check_target(output)
        if prometheus.url is None:
            runs = [_run(file) for file in files]
        else:
            runs = list(_pulled(prometheus, first or 0.0, last or 0.0, window, windows, timeout))
        minder = train_minder(runs, steps=steps, seed=seed)
        minder.save(output)
    click.echo(f"{output}: {', '.join(minder.metrics)}, of {len(runs)} runs or windows.")


def _pulled(
    options: PrometheusOptions, first: float, last: float, window: float, windows: int, timeout: float
) -> Iterator[MetricSeries]:
    """Windows of the past, evenly spread."""
    from dask_efficiency.cli.watch_parts import prometheus_source

    source = prometheus_source(options, timeout)
    count = min(windows, max(int((last - first) // window), 1))
    for number in range(count):
        start = first + number * (last - first - window) / max(count - 1, 1)
        series = source.pull(start=start, stop=start + window)
        if number == 0:
            source.check(series)
        if series.workers:
            yield series


def _run(path: str) -> TraceTables | pd.DataFrame:
    if path.lower().endswith(".parquet"):
        return read_parquet(path)
    if path.lower().endswith((".csv", ".csv.gz")):
        return read_csv(path)
    from dask_efficiency.results import load_trace

    return load_trace(path)
