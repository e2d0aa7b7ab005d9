"""Commands `dask-efficiency top` and `stacks`: what a cluster's threads do now."""

from __future__ import annotations

import sys
from contextlib import ExitStack, suppress
from functools import partial

import click

from dask_efficiency.cli.inputs import scheduler_address
from dask_efficiency.cli.options import Connection, json_lines_option, json_option, scheduler_options, timedelta
from dask_efficiency.cli.output import answers_of, one_line_errors, say


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


@click.command("stacks")
@click.option("--worker", "workers", multiple=True, metavar="NAME", help="Ask this worker, by name or address.")
@click.option("--prefix", default="", metavar="NAME", help="Show tasks of this prefix, and nothing else.")
@click.option("--native", is_flag=True, help="With native frames, where the workers have py-spy and it may look.")
@click.option("--all", "everything", is_flag=True, help="All threads and all frames, not only the first screen.")
@json_option
@partial(scheduler_options, source="scheduler")
def stacks_command(
    *,
    scheduler: str,
    workers: tuple[str, ...],
    prefix: str,
    native: bool,
    everything: bool,
    as_json: bool,
    connection: Connection,
) -> None:
    """Show what every thread of a cluster does now.

    Threads that do the same are shown once, those in the longest tasks first: task, for how long and how long usually,
    what it waits for, your line, and the stack. A worker whose event loop is blocked answers, too; who does not, is
    named. SCHEDULER is a scheduler's address: tcp://host:8786, tls://host:8786 or host:8786.
    """
    from dask_efficiency.live.thread_stacks import ask_stacks

    with one_line_errors():
        found = connection.ask(
            scheduler_address(scheduler), lambda caller: ask_stacks(caller, [*workers], prefix, native)
        )
        say(found, as_json=as_json, everything=everything)
