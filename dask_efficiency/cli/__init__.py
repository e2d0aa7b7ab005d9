"""The command line: `dask-efficiency`, and `dask efficiency` through Dask's own."""

from __future__ import annotations

import click

from dask_efficiency import __version__
from dask_efficiency.files import storage
from dask_efficiency.fleet.cli import train_minder, watch
from dask_efficiency.live import cli as top
from dask_efficiency.mpi.cli import mpi_tracer, simulate_mpi
from dask_efficiency.preflights import cli as preflight
from dask_efficiency.report.cli import compare, demo, report, stragglers
from dask_efficiency.runs.cli import critical_path
from dask_efficiency.simulation import cli as simulate
from dask_efficiency.torch_traces import cli as torch_critical_path

#: As Dask's own command line has them.
CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 88}


@click.group(name="efficiency", context_settings=CONTEXT_SETTINGS)
@click.version_option(__version__, prog_name="dask-efficiency")
@click.option("--any-size", is_flag=True, help="Read files however much they hold once decompressed.")
@click.pass_context
def main(context: click.Context, any_size: bool) -> None:
    """Where the threads of a Dask cluster spend their time."""
    if any_size:
        context.with_resource(storage.any_size())


for _module in (
    demo,
    report,
    top,
    compare,
    critical_path,
    torch_critical_path,
    simulate,
    stragglers,
    watch,
    train_minder,
    preflight,
    mpi_tracer,
    simulate_mpi,
):
    main.add_command(_module.command)
