"""`dask-efficiency watch`: every few minutes, which machines of a fleet are unlike their peers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from dask_efficiency.cli.connection import Connection
from dask_efficiency.cli.errors import one_line_errors
from dask_efficiency.cli.options import timedelta, tls_options
from dask_efficiency.fleet.cli.watch_options import WatchOptions, instant, prometheus_options
from dask_efficiency.straggler.retirements import RETIRE_SHARE

if TYPE_CHECKING:
    from dask_efficiency.fleet.rounds.rounds import Event
    from dask_efficiency.fleet.watch import FleetWatch


class _NotJudgedError(click.ClickException):
    """With --fail, exit code 1 says one thing only."""

    exit_code = 2


@click.command("watch")
@click.argument("scheduler", required=False)
@prometheus_options
@click.option(
    "--every", default="8m", show_default=True, callback=timedelta, metavar="TIME", help="Between two rounds."
)
@click.option("--window", default="15m", show_default=True, callback=timedelta, metavar="TIME", help="What is judged.")
@click.option(
    "--history",
    default="1h",
    show_default=True,
    callback=timedelta,
    metavar="TIME",
    help="What came before it, by which lasting differences are known.",
)
@click.option("--detector", type=click.Choice(("outlier", "minder")), default="outlier", show_default=True)
@click.option("--model", metavar="FILE", help="What `train-minder` has made, for --detector minder.")
@click.option("--continuity", callback=timedelta, metavar="TIME", help="For how long a machine must be unlike others.")
@click.option("--once", is_flag=True, help="One round now, and end.")
@click.option("--from", "first", callback=instant, metavar="WHEN", help="Rounds of the past, as if they were live.")
@click.option("--to", "last", callback=instant, metavar="WHEN", help="Until when.  [default: now]")
@click.option(
    "--fail", is_flag=True, help="With --once or --from: exit code 1 if somebody is found, 2 without a round."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each event, on a line of its own.")
@click.option("--on-finding", metavar="URL", help="Post what is new there, as Alertmanager does to webhooks.")
@click.option("--on-finding-command", metavar="COMMAND", help="Run this with it on standard input; no shell is used.")
@click.option("--metrics-port", type=click.IntRange(1, 65535), help="Serve metrics of the watch itself on this port.")
@click.option("--retire", is_flag=True, help="Retire workers that are found, one at a time.")
@click.option(
    "--retire-share",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=RETIRE_SHARE,
    show_default=True,
    help="Never more of the workers within a day, or one.",
)
@click.option(
    "--retire-every",
    default="30m",
    show_default=True,
    callback=timedelta,
    metavar="TIME",
    help="Between two retirements, at least.",
)
@click.option(
    "--timeout",
    default="30s",
    show_default=True,
    callback=timedelta,
    metavar="TIME",
    help="How long a scheduler or Prometheus may be silent.",
)
@tls_options
def command(scheduler: str | None, timeout: float, connection: Connection, **given: Any) -> None:
    """Watch a fleet: every few minutes, name the machines that are unlike their peers.

    SCHEDULER is the address of a Dask cluster with the plugin, or its scheduler file; or --prometheus and --metrics say
    where the metrics of any machines are. A machine is told once when it begins to be unlike others, and once when that
    has ended. Ctrl-C ends the watch.

    \b
    Exit codes:
      0  watched; without --fail also where somebody is found
      1  with --fail, somebody is found; without, an error
      2  with --fail, nothing could be judged; a wrong option
    """  # noqa: D301 click wants the character
    options = WatchOptions(scheduler=scheduler, connection=replace(connection, timeout_seconds=timeout), **given)
    options.check()
    with one_line_errors(_NotJudgedError if options.fail else click.ClickException):
        from dask_efficiency.fleet.cli.watch_parts import build

        watch, retire = build(options, show=_shown(options.as_json), warn=_warn, clock=time.monotonic)
        try:
            found, judged = _watched(watch, options, retire)
        except KeyboardInterrupt:
            return
    if options.fail and (found or not judged):
        raise SystemExit(1 if found else 2)


def _watched(watch: FleetWatch, options: WatchOptions, retire: Callable[[float], None] | None) -> tuple[bool, bool]:
    """Whether somebody was found, and whether somebody could have been."""
    found = judged = answered = False
    told = ""
    for at in _instants(options):
        try:
            found = bool(watch.round(at)) or found
            answered, judged = True, judged or not watch.unjudged
            if watch.unjudged and not told:
                _warn(f"not judged yet: {watch.unjudged}")
            elif options.once and not found:
                _warn(f"nobody of {len(watch.window.workers) if watch.window else 0} is unlike the others")
            told = watch.unjudged
            if retire is not None:
                retire(at)
        except BrokenPipeError:  # nobody reads what is shown
            raise
        except OSError as error:
            if options.ends:
                raise
            _warn(str(error))
        except ValueError as error:  # what is wrong from the beginning does not get better
            if not answered:
                raise
            _warn(str(error))
    return found, judged


def _instants(options: WatchOptions) -> Iterator[float]:
    """When rounds are; of a watch that goes on, each comes when it is due."""
    from dask_efficiency.fleet.watch import instants

    if options.first is not None:
        yield from instants(options.first, options.last or time.time(), every_seconds=options.every)
        return
    due = time.time()
    while True:
        yield time.time()
        if options.once:
            return
        due = max(due + options.every, time.time())
        time.sleep(max(due - time.time(), 0))


def _shown(as_json: bool) -> Callable[[Event], None]:
    from dask_efficiency.fleet.rounds import messages as said

    def show(event: Event) -> None:
        click.echo(json.dumps(said.record(event)) if as_json else said.line(event))

    return show


def _warn(text: str) -> None:
    from dask_efficiency.fleet.rounds.messages import instant as shown

    click.echo(f"{shown(time.time())} {' '.join(text.split())}", err=True)
