"""`dask-efficiency explain`: what a finding means, and what to do."""

from __future__ import annotations

import click

from dask_efficiency.cli.errors import one_line_errors
from dask_efficiency.cli.output import tell


@click.command("explain")
@click.argument("kind")
def command(kind: str) -> None:
    """Say what a finding means, and what to do about it.

    KIND is a bucket such as `spill`, a bucket and a cause such as `thread-noncpu/sleep`, or the cause alone.
    """
    with one_line_errors():
        from dask_efficiency.report.explain import explain

        said = explain(kind)
    tell(*said.splitlines())
