"""Sections on where time goes: lines of code, the flame graph, long holds, and the scheduler's event loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from dask_efficiency.accounts.buckets import CAUSE_DESCRIPTIONS, Bucket, cause_name
from dask_efficiency.accounts.cluster.scheduler_loop import LoopBlock, LoopPart, SchedulerLoop
from dask_efficiency.accounts.details import MAX_DEPTH
from dask_efficiency.accounts.lines import EVENT_LOOP, NO_CORE, Frame, blamed, place_of
from dask_efficiency.report.culprits import find_culprits, holder_text, place_text
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.stacks import NO_PREFIX, sampled_stacks
from dask_efficiency.report.values import Culprit, LongHold, ProfileRow
from dask_efficiency.show.columns import as_table, names, seconds, words
from dask_efficiency.show.document import (
    SCREEN,
    Aside,
    Box,
    Extent,
    Flames,
    Label,
    Section,
    Table,
    bucket_label,
    section,
)
from dask_efficiency.show.drawn_buckets import CAUSE_COLOURS, COLOURS, OTHER_COLOUR
from dask_efficiency.show.figures import (
    DETAIL_LENGTH,
    FEW_ROWS,
    NAMES_IN_A_LINE,
    ROWS_ON_A_SCREEN,
    SENTENCES_BESIDE,
    format_seconds,
    format_share,
    format_thread_time,
    harmless,
    name_of,
    sentence,
    shorten,
    time_scale,
    workers_named,
)
from dask_efficiency.show.finding import MOST

#: Seconds from which a hold is listed: 8 threads then lose about one thread-second. Dask itself warns from 3 s on.
MIN_HOLD_SECONDS = 0.1


def culprits(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Largest losses by cause, prefix and line; empty if nothing was sampled."""
    if not report.causes_by_worker and not report.profile:
        return section("Where the time goes")
    found = find_culprits(report)
    shown = found if extent.drawn else found[:ROWS_ON_A_SCREEN]
    text = f"the {len(shown)} largest losses:" if len(found) > len(shown) else ""
    below = () if extent.drawn else _held_by(shown)
    return section("Where the time goes", text, _culprit_table(shown, report.thread_seconds, extent), *below)


def _culprit_table(shown: tuple[Culprit, ...], whole: float, extent: Extent) -> Table:
    if not shown:
        return Table((), ())
    columns = {
        "lost to": names(shown, text=_cause_label),
        "thread-{}": seconds((each.seconds for each in shown), time_scale(shown[0].seconds, whole)),
        "prefix": names(each.prefix or None for each in shown),
        "line": names(each.line or None for each in shown),
        "in": names(each.function or None for each in shown),
    }
    if extent.drawn and any(each.held_by for each in shown):
        columns["held by"] = words(shorten(harmless(each.held_by), DETAIL_LENGTH) for each in shown)
    return as_table(columns, sortable=extent.drawn)


def _cause_label(culprit: Culprit) -> Label:
    label, known = bucket_label(culprit.bucket), CAUSE_DESCRIPTIONS.get(Bucket(culprit.bucket), {})
    return replace(label, text=cause_name(culprit.bucket, culprit.cause), hint=known.get(culprit.cause, label.hint))


def _held_by(shown: tuple[Culprit, ...]) -> tuple[str, ...]:
    held_by = {(each.cause, each.prefix): each.held_by for each in shown if each.held_by}
    words = {"gil": "the GIL was held most by", "lock": "at a lock, it was held by"}
    return tuple(
        sentence(f"while {name_of(prefix) or 'tasks'} waited{',' * (cause == 'gil')} {words[cause]} {holder}")
        for (cause, prefix), holder in list(held_by.items())[:SENTENCES_BESIDE]
    )


def flame_graph(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Flame graph of the tasks' threads, by cause and stack."""
    found = boxes(sampled_stacks(report)) if extent.drawn else ()
    text = (
        "All time in tasks by cause, below that by prefix, and below that by what called what, down to the line. The "
        "time of each cause and prefix is exact; how it is divided over lines was sampled."
    )
    return section("By cause and line", *((Aside(text), Flames(found)) if found else ()))


def holds(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Longest times for which one thread kept others from the GIL, or blocked an event loop.

    They are part of the time lost to waiting, so they are listed separately from the culprits.
    """
    loop = report.scheduler_loop
    held_gil, blocks = _told_once(_long(report.gil_holds), _long(report.loop_blocks))
    held = [
        f"held the GIL for {format_seconds(hold.seconds)}: {holder_text(hold.holder, blamed(hold.stack))}, "
        f"on {workers_named([hold.worker])}"
        for hold in held_gil[:FEW_ROWS]
    ]
    blocked: list[tuple[str, LongHold | LoopBlock]] = [
        (f"the event loop of {workers_named([block.worker])}", block) for block in blocks[:FEW_ROWS]
    ]
    blocked += [("the scheduler's event loop", block) for block in (loop.blocks[:FEW_ROWS] if loop is not None else ())]
    told = [
        f"blocked {whose} for {format_seconds(block.seconds)}" + (f": {by}" if (by := _by_whom(block)) else "")
        for whose, block in blocked
    ]
    return section("Kept others waiting", *map(sentence, (*held, *told)))


def _told_once(holds: list[LongHold], blocks: list[LongHold]) -> tuple[list[LongHold], list[LongHold]]:
    """Holds of the GIL and blocks of loops, each of which is listed once.

    An event loop that holds the GIL is listed as blocked, and a task that holds it and so blocks a loop as its holder.
    """
    untold, left, of_loops = list(holds), [], []
    for block in blocks:
        # The sampler does not wait for all of a hold.
        same = (hold for hold in untold if hold.worker == block.worker and hold.holder == block.holder)
        hold = next((hold for hold in same if MOST * hold.seconds <= block.seconds), None)
        if hold is not None:
            untold.remove(hold)
        if hold is not None and block.holder == EVENT_LOOP:
            of_loops.append(hold)
        if hold is None or block.holder == EVENT_LOOP:
            left.append(block)
    return [hold for hold in holds if hold not in of_loops], left


def _by_whom(block: LongHold | LoopBlock) -> str:
    """Messages or line that blocked a loop, with its thread if that is another one."""
    if block.holder == NO_CORE:
        return "it waited for a core"
    if block.doing:
        return block.doing
    where = blamed(block.stack)
    return place_text(where) if block.holder == EVENT_LOOP else holder_text(block.holder, where)


def _long(found: tuple[LongHold, ...]) -> list[LongHold]:
    return sorted((hold for hold in found if hold.seconds >= MIN_HOLD_SECONDS), key=lambda hold: -hold.seconds)


#: Share of the whole below which a box is left out or joined with its neighbours: two pixels of a screen.
MIN_SHARE = 0.002
#: Boxes of a flame graph: about 240 kilobytes of a page, with long names.
MAX_BOXES = 1_000
#: Characters of a frame's name with its line. By eye.
FRAME_LENGTH = 80


@dataclass(slots=True)
class _Node:
    ns: int = 0
    parts: dict[str | Frame, _Node] = field(default_factory=dict)


def boxes(rows: Sequence[ProfileRow]) -> tuple[Box, ...]:
    """Boxes of stacks: the whole first, each box before those in it, the widest first.

    At most :data:`MAX_BOXES`, none below :data:`MIN_SHARE` of the whole.
    """
    root, colours = _tree(rows)
    if not root.ns:
        return ()
    found = [Box("all tasks", format_thread_time(root.ns), 0, root.ns, 0, OTHER_COLOUR)]
    for name, cause, left in _wide_parts(root, 0, MIN_SHARE * root.ns):
        found += _boxes(name, cause, left, root.ns, colours.get(name, OTHER_COLOUR))
    if len(found) > MAX_BOXES:
        # a box is never wider than the box around it, which comes first
        widest = sorted(range(len(found)), key=lambda i: -found[i].ns)[:MAX_BOXES]
        found = [found[i] for i in sorted(widest)]
    return tuple(found)


def _tree(rows: Iterable[ProfileRow]) -> tuple[_Node, dict[str | Frame, str]]:
    root = _Node()
    colours: dict[str | Frame, str] = {}
    for row in rows:
        cause = cause_name(row.bucket, row.cause)
        colours[cause] = CAUSE_COLOURS[Bucket.THREAD_NONCPU].get(row.cause) or COLOURS[Bucket(row.bucket)]
        root.ns += row.ns
        node = root
        names: list[str | Frame] = [cause, row.prefix or NO_PREFIX, *row.stack[:MAX_DEPTH]]
        for name in names:
            node = node.parts.setdefault(name, _Node())
            node.ns += row.ns
    return root, colours


def _boxes(name: str | Frame, cause: _Node, left: int, whole: int, colour: str) -> Iterator[Box]:
    """The box of a cause and all boxes in it."""
    waiting = [(name, cause, left, 1)]
    while waiting:
        name, node, left, depth = waiting.pop()
        of_whole = f"{format_thread_time(node.ns)}, {format_share(node.ns / whole)} of all"
        text = of_whole if depth == 1 else f"{of_whole}, {format_share(node.ns / cause.ns)} of its cause"
        yield Box(_box_name(name), text, left, node.ns, depth, colour)
        inner = [(name, part, at, depth + 1) for name, part, at in _wide_parts(node, left, MIN_SHARE * whole)]
        waiting += reversed(inner)


def _wide_parts(node: _Node, left: int, least: float) -> Iterator[tuple[str | Frame, _Node, int]]:
    """Parts of a box that are wide enough, the widest first, with their left edges; the rest as one."""
    ranked = sorted(node.parts.items(), key=lambda item: -item[1].ns)
    wide = [(name, part) for name, part in ranked if part.ns >= least]
    rest = sum(part.ns for _, part in ranked[len(wide) :])
    if rest >= least and rest:
        wide.append((f"({len(ranked) - len(wide)} others)", _Node(rest)))
    for name, part in wide:
        yield name, part, left
        left += part.ns


def _box_name(name: str | Frame) -> str:
    if isinstance(name, str):
        return name_of(name)
    text = f"{shorten(name.function, 4 * FRAME_LENGTH)} ({shorten(place_of(name), 4 * FRAME_LENGTH)})"
    return shorten(harmless(text), FRAME_LENGTH)


LOOP_TITLE = "Scheduler's event loop"
#: Share of the handlers' time from which a plugin is named on a screen. A guess.
WORTH_NAMING = 0.1


def scheduler_loop(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Load of the scheduler's event loop in a line; on a page also the costliest handlers and plugins."""
    loop = report.scheduler_loop
    if loop is None or not loop.seconds > 0:
        return Section(LOOP_TITLE)
    if not extent.drawn:
        return section(LOOP_TITLE, "; ".join([*_loop_figures(loop), *_busiest(loop)]))
    return section(LOOP_TITLE, "; ".join(_loop_figures(loop)), _loop_table(loop), Aside(_loop_note(loop)))


def _loop_figures(loop: SchedulerLoop) -> list[str]:
    lines = []
    if loop.busy_with_work is not None:
        lines.append(f"busy {format_share(loop.busy_with_work)} of the time with work")
    if loop.busy_seconds is not None:
        lines.append(f"{format_seconds(loop.busy_seconds)} in all")
    if loop.lag_seconds is not None:
        lines.append(f"messages waited {format_seconds(loop.lag_seconds)} in the mean")
    return [*lines, f"garbage collection {format_seconds(loop.gc_seconds)}"]


def _busiest(loop: SchedulerLoop) -> list[str]:
    handlers = [f"{name_of(part.title)} {format_seconds(part.seconds)}" for part in loop.handlers[:NAMES_IN_A_LINE]]
    lines = [f"most in {', '.join(handlers)}"] if handlers else []
    if loop.hooks and loop.hooks[0].seconds >= WORTH_NAMING * loop.handlers_seconds:
        most = loop.hooks[0]
        where = f" in {place_of(most.stack[0])}" if most.file else ""
        lines.append(sentence(f"of that, `{most.name}`{where} {format_seconds(most.seconds)}"))
    return lines


def _loop_table(loop: SchedulerLoop) -> Table:
    def row(part: LoopPart) -> tuple[str, ...]:
        share = format_share(part.seconds / loop.busy_seconds) if loop.busy_seconds else "-"
        where = name_of(place_of(part.stack[0])) or "-"
        return name_of(part.title), name_of(part.kind), format_seconds(part.seconds), share, str(part.calls), where

    ranked = sorted((*loop.handlers, *loop.hooks), key=lambda part: -part.seconds)
    heads = ("what", "kind", "time", "of busy", "calls", "where")
    return Table(heads, tuple(map(row, ranked)), words=(0, 1, 5), sortable=True)


def _loop_note(loop: SchedulerLoop) -> str:
    text = (
        "Handlers, periodic callbacks and messages were timed at each call, but one in 16 short messages stands for "
        "the others, and small reads and writes were not timed. Hooks of plugins are part of that; what `transition` "
        "of each plugin took is estimated from some of the calls, and other callbacks from some turns."
    )
    if loop.busy_seconds is None:
        return text
    rest = max(0.0, loop.busy_seconds - loop.handlers_seconds)
    return f"{text} The rest of the busy time, {format_seconds(rest)}, is not known."
