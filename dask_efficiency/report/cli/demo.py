"""`dask-efficiency demo`: what a report looks like, in a quarter of a minute."""

from __future__ import annotations

import click

from dask_efficiency.cli.errors import one_line_errors


@click.command("demo")
@click.option("--workers", type=click.IntRange(min=2), default=2, show_default=True, help="Worker processes.")
@click.option("--threads", type=click.IntRange(min=1), default=2, show_default=True, help="Threads of each worker.")
@click.option("--output", default="dask-efficiency-demo.json", show_default=True, help="File or URL to save to.")
@click.option("--dashboard/--no-dashboard", default=False, show_default=True, help="Serve Dask's dashboard too.")
def command(workers: int, threads: int, output: str, dashboard: bool) -> None:
    """Run a workload of 10 to 20 seconds on a local cluster and report on it."""
    from dask_efficiency.report.demo import run_demo

    with one_line_errors():
        run_demo(workers=workers, threads=threads, output=output, dashboard=dashboard)
