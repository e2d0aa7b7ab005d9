"""`dask-efficiency top`: current activity of a cluster's threads."""

from __future__ import annotations

import sys
from contextlib import ExitStack, suppress
from functools import partial

import click

from dask_efficiency.cli.inputs import scheduler_address
from dask_efficiency.cli.options import Connection, json_lines_option, scheduler_options, timedelta
from dask_efficiency.cli.output import answers_of, one_line_errors


@click.command("top")
@click.option(
    "--interval",
    default="2s",
    show_default=True,
    callback=timedelta,
    metavar="TIME",
    help="Time between two observations.",
)
@click.option("--once", is_flag=True, help="Print what happened in one interval, and end.")
@json_lines_option
@partial(scheduler_options, source="scheduler")
def command(scheduler: str, interval: float, once: bool, as_json: bool, connection: Connection) -> None:
    """Watch what the threads of a cluster do now.

    The least useful workers come first. SCHEDULER is a scheduler's address: tcp://host:8786, tls://host:8786 or
    host:8786. Ctrl-C ends it. A terminal needs rich: pip install 'dask-efficiency[report]'.
    """
    with one_line_errors():
        _watch(scheduler_address(scheduler), interval, once, as_json, connection)


def _watch(address: str, interval: float, once: bool, as_json: bool, connection: Connection) -> None:
    import asyncio

    from dask_efficiency.live.top import blocks, json_lines, show_views, terminal

    address, security = connection.secured(address)
    connection.announce(address)
    timeout = connection.timeout_seconds
    with ExitStack() as stack:
        if as_json:
            show = json_lines(sys.stdout)
        elif once:
            show = blocks(sys.stdout, height=None)
        elif not sys.stdout.isatty():
            show = blocks(sys.stdout)
        else:
            show = stack.enter_context(terminal(sys.stdout))
        showing = show_views(
            show, address, security=security, interval_seconds=interval, once=once, timeout_seconds=timeout
        )
        with answers_of(address), suppress(KeyboardInterrupt):
            asyncio.run(showing)
