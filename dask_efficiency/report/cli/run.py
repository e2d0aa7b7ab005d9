"""`dask-efficiency run` and `demo`: the report of a script, or of a sample workload."""

from __future__ import annotations

import os

import click

from dask_efficiency.cli.options import html_option, save_option, target
from dask_efficiency.cli.output import one_line_errors
from dask_efficiency.report.runner import ScriptRun, replace_process


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is a module's name, as for python -m.")
@click.option("--local", is_flag=True, help="Give the script a LocalCluster; for one that makes no Client.")
@click.option("--all", "everything", is_flag=True, help="Print the whole report, not only the first screen.")
@html_option
@click.option("--json", "json", callback=target, metavar="FILE", help="Save the report to this file or URL.")
@click.option(
    "--trace", callback=target, metavar="FILE", help="Record every task, and save the trace to this file or URL."
)
@click.option("--save-to", metavar="FOLDER", help="Save the report in this folder, under a name with the time.")
def run_command(
    script: str, arguments: tuple[str, ...], is_module: bool, save_to: str | None, **options: object
) -> None:
    """Run a script, and report on the clusters that it used.

    The script runs as with `python SCRIPT ARGS`: its output, exit code and signals are its own. Each cluster that one
    of its Clients connects to is metered while that Client is open; an existing plugin stays as it is. When the script
    ends, fails or is interrupted, the report's first screen goes to standard error; with several clusters, the one with
    most thread time is shown, and a line for each of the others.

    Metering costs some 3 % of a task that does nothing, and --trace some 6 %. There is no report if the process is
    killed, or ends by os._exit.
    """
    if not is_module and not os.path.isfile(script):
        raise click.UsageError(f"{script!r} is no file; expected a Python script, or -m and a module's name")
    with one_line_errors():
        if save_to is not None and "://" not in save_to:
            os.makedirs(save_to, exist_ok=True)
    replace_process(ScriptRun(script, is_module=is_module, save_to=save_to, **options), arguments)  # type: ignore[arg-type]


@click.command("demo")
@click.option("--workers", type=click.IntRange(min=2), default=2, show_default=True, help="Worker processes.")
@click.option("--threads", type=click.IntRange(min=1), default=2, show_default=True, help="Threads of each worker.")
@click.option("--dashboard", is_flag=True, help="Serve Dask's dashboard too.")
@save_option("the report", default="dask-efficiency-demo.json", show_default=True)
def demo_command(workers: int, threads: int, save: str, dashboard: bool) -> None:
    """Report on 10 to 20 seconds of work on a local cluster."""
    from dask_efficiency.report.demo import run_demo

    with one_line_errors():
        run_demo(workers=workers, threads=threads, output=save, dashboard=dashboard)
