"""`dask-efficiency fleet watch`: every few minutes, which machines of a fleet are unlike their peers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import click

from dask_efficiency.cli.connection import Connection
from dask_efficiency.cli.errors import NotJudgedError, one_line_errors
from dask_efficiency.cli.options import json_lines_option, scheduler_options
from dask_efficiency.cli.output import tell
from dask_efficiency.fleet.cli.options import between_option, metrics_option, settings_option

if TYPE_CHECKING:
    from dask_efficiency.fleet.rounds.rounds import Event
    from dask_efficiency.fleet.watch import FleetWatch


@click.command("watch")
@click.argument("source")
@metrics_option
@settings_option
@click.option("--once", is_flag=True, help="One round now, and end.")
@between_option
@click.option(
    "--fail", is_flag=True, help="With --once or --between: exit code 1 if somebody is found, 2 without a round."
)
@click.option("--retire", is_flag=True, help="Retire workers that are found, one at a time.")
@json_lines_option
@partial(scheduler_options, timeout="30s", who="a scheduler or Prometheus")
def command(
    source: str,
    metrics: str | None,
    settings: str | None,
    once: bool,
    between: tuple[float, float] | None,
    fail: bool,
    retire: bool,
    as_json: bool,
    connection: Connection,
) -> None:
    """Name the machines that are unlike their peers.

    SOURCE is the address of a Dask cluster with the plugin, or its scheduler file; with --metrics, the URL of a
    Prometheus that has the metrics of any machines. Every few minutes, a machine is told once when it begins to be
    unlike others, and once when that has ended. Ctrl-C ends the watch.

    \b
    Exit codes:
      0  watched; without --fail also where somebody is found
      1  with --fail, somebody is found; without, an error
      2  with --fail, nothing could be judged; a wrong option
    """  # noqa: D301 click wants the character
    _check(source, metrics=metrics, once=once, between=between, fail=fail, retire=retire)
    with one_line_errors(kind=NotJudgedError if fail else click.ClickException):
        from dask_efficiency.fleet.cli import watch_parts as parts
        from dask_efficiency.fleet.dask_source import SchedulerSource
        from dask_efficiency.fleet.settings import WatchSettings, read_settings

        chosen = WatchSettings() if settings is None else read_settings(settings)
        if metrics is None:
            origin: parts.Source = parts.scheduler_source(source, connection)
        else:
            origin = parts.prometheus_source(source, metrics, chosen, connection.timeout_seconds)
        watch = parts.fleet_watch(origin, chosen, show=_shown(as_json), warn=_warn, clock=time.monotonic)
        then = None
        if isinstance(origin, SchedulerSource):
            connection.announce(origin.name)
            then = parts.retiring(origin, chosen, watch, _warn) if retire else None
        try:
            instants = _instants(between, once, chosen.every)
            found, judged = _watched(watch, instants, ends=once or between is not None, then=then)
        except KeyboardInterrupt:
            return
    if once and judged and not found:
        _warn(f"nobody of {len(watch.window.workers) if watch.window else 0} is unlike the others")
    if fail and (found or not judged):
        raise SystemExit(1 if found else 2)


def _check(
    source: str, *, metrics: str | None, once: bool, between: tuple[float, float] | None, fail: bool, retire: bool
) -> None:
    """Raise UsageError where options do not go together."""
    rules = (
        (metrics is None and source.startswith(("http://", "https://")), "a Prometheus is asked for --metrics FILE"),
        (metrics is None and between is not None, "--between is for a Prometheus; a scheduler has no past"),
        (once and between is not None, "--once is now, and --between in the past; expected one of them"),
        (fail and not (once or between), "--fail is for --once and --between"),
        (retire and metrics is not None, "--retire is for the workers of a scheduler"),
        (retire and once, "--retire is for a watch that goes on: a new one knows of no earlier retirements"),
    )
    for is_wrong, text in rules:
        if is_wrong:
            raise click.UsageError(text)


def _watched(
    watch: FleetWatch, instants: Iterator[float], *, ends: bool, then: Callable[[float], None] | None = None
) -> tuple[bool, bool]:
    """Whether somebody was found, and whether somebody could have been."""
    found = judged = answered = False
    told = ""
    for at in instants:
        try:
            found = bool(watch.round(at)) or found
            answered, judged = True, judged or not watch.unjudged
            if watch.unjudged and not told:
                _warn(f"not judged yet: {watch.unjudged}")
            told = watch.unjudged
            if then is not None:
                then(at)
        except BrokenPipeError:  # nobody reads what is shown
            raise
        except OSError as error:
            if ends:
                raise
            _warn(str(error))
        except ValueError as error:  # what is wrong from the beginning does not get better
            if not answered:
                raise
            _warn(str(error))
    return found, judged


def _instants(between: tuple[float, float] | None, once: bool, every: float) -> Iterator[float]:
    """When rounds are; of a watch that goes on, each comes when it is due."""
    from dask_efficiency.fleet.watch import instants

    if between is not None:
        yield from instants(*between, every_seconds=every)
        return
    due = time.time()
    while True:
        yield time.time()
        if once:
            return
        due = max(due + every, time.time())
        time.sleep(max(due - time.time(), 0))


def _shown(as_json: bool) -> Callable[[Event], None]:
    from dask_efficiency.fleet.rounds import messages as said
    from dask_efficiency.fleet.rounds.rounds import Change

    def show(event: Event) -> None:
        if as_json:
            click.echo(json.dumps(said.record(event)))
        else:
            tell(said.line(event), fg="red" if event.change is Change.BEGINS else "green")

    return show


def _warn(text: str) -> None:
    from dask_efficiency.fleet.rounds.messages import instant as shown

    tell(f"{shown(time.time())} {' '.join(text.split())}", err=True)
