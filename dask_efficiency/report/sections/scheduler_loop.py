"""The scheduler's event loop: how busy and how late it was, and with which handlers and plugins."""

from __future__ import annotations

from dask_efficiency.accounts.cluster.scheduler_loop import LoopPart, SchedulerLoop
from dask_efficiency.accounts.lines import place_of
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.show.document import Aside, Section, Table, section
from dask_efficiency.show.extent import SCREEN, Extent
from dask_efficiency.show.figures import format_seconds, format_share, name_of, sentence

TITLE = "Scheduler's event loop"

#: Of what took most, those that are named on a screen.
MAX_NAMED = 3

#: Share of the handlers' time from which on plugins are named on a screen.
WORTH_NAMING = 0.1


def scheduler_loop(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """In a line how busy it was and with what; on a page the costliest handlers and plugins, too."""
    loop = report.scheduler_loop
    if loop is None or not loop.seconds > 0:
        return Section(TITLE)
    if not extent.drawn:
        return section(TITLE, "; ".join([*_said(loop), *_named(loop)]))
    return section(TITLE, "; ".join(_said(loop)), _table(loop), Aside(_rest(loop)))


def _said(loop: SchedulerLoop) -> list[str]:
    said = (
        [f"busy {format_share(loop.busy_with_work)} of the time with work"] if loop.busy_with_work is not None else []
    )
    if loop.busy_seconds is not None:
        said.append(f"{format_seconds(loop.busy_seconds)} in all")
    if loop.lag_seconds is not None:
        said.append(f"what came waited {format_seconds(loop.lag_seconds)} in the mean")
    return [*said, f"garbage collection {format_seconds(loop.gc_seconds)}"]


def _named(loop: SchedulerLoop) -> list[str]:
    handlers = [f"{name_of(part.name)} {format_seconds(part.seconds)}" for part in loop.handlers[:MAX_NAMED]]
    said = [f"most in {', '.join(handlers)}"] if handlers else []
    if loop.hooks and loop.hooks[0].seconds >= WORTH_NAMING * loop.handlers_seconds:
        most = loop.hooks[0]
        where = f" in {place_of(most.stack[0])}" if most.file else ""
        said.append(sentence(f"of that, `{most.name}`{where} {format_seconds(most.seconds)}"))
    return said


def _table(loop: SchedulerLoop) -> Table:
    rows = tuple(_row(part, loop) for part in sorted((*loop.handlers, *loop.hooks), key=lambda part: -part.seconds))
    return Table(("what", "kind", "time", "of busy", "calls", "where"), rows, words=(0, 1, 5), sortable=True)


def _row(part: LoopPart, loop: SchedulerLoop) -> tuple[str, ...]:
    share = format_share(part.seconds / loop.busy_seconds) if loop.busy_seconds else "-"
    where = name_of(place_of(part.stack[0])) or "-"
    return name_of(part.name), name_of(part.kind), format_seconds(part.seconds), share, str(part.calls), where


def _rest(loop: SchedulerLoop) -> str:
    said = (
        "Handlers and callbacks were timed at each call. Hooks of plugins are part of their time; what `transition` of "
        "each plugin took is estimated from some of the calls."
    )
    if loop.busy_seconds is None:
        return said
    rest = max(0.0, loop.busy_seconds - loop.handlers_seconds)
    return f"{said} The rest of the busy time, {format_seconds(rest)}, went to messages and to all else."
