"""The command line: `dask-efficiency`, and `dask efficiency` through Dask's own."""

from __future__ import annotations

import click

from dask_efficiency.cli.commands import COMMANDS, GROUPS, LazyGroup
from dask_efficiency.files import storage

#: As Dask's own command line has them.
CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 88}


@click.group(name="efficiency", cls=LazyGroup, table=COMMANDS, groups=GROUPS, context_settings=CONTEXT_SETTINGS)
@click.version_option(package_name="dask-efficiency", prog_name="dask-efficiency")
@click.option("--any-size", is_flag=True, help="Read files however much they hold once decompressed.")
@click.pass_context
def main(context: click.Context, any_size: bool) -> None:
    """Find out where the threads of a Dask cluster spend their time."""
    if any_size:
        context.with_resource(storage.any_size())
