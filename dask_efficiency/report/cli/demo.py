"""`dask-efficiency demo`: what a report looks like, in a quarter of a minute."""

from __future__ import annotations

import click

from dask_efficiency.cli.errors import one_line_errors
from dask_efficiency.cli.options import save_option


@click.command("demo")
@click.option("--workers", type=click.IntRange(min=2), default=2, show_default=True, help="Worker processes.")
@click.option("--threads", type=click.IntRange(min=1), default=2, show_default=True, help="Threads of each worker.")
@click.option("--dashboard", is_flag=True, help="Serve Dask's dashboard too.")
@save_option("the report", default="dask-efficiency-demo.json", show_default=True)
def command(workers: int, threads: int, save: str, dashboard: bool) -> None:
    """Report on 10 to 20 seconds of work on a local cluster."""
    from dask_efficiency.report.demo import run_demo

    with one_line_errors():
        run_demo(workers=workers, threads=threads, output=save, dashboard=dashboard)
