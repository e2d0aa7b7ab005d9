"""Sections on where time goes: lines of code, the flame graph, long holds, and the scheduler's event loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from dask_efficiency.accounts.buckets import CAUSE_DESCRIPTIONS, Bucket, cause_name
from dask_efficiency.accounts.cluster.scheduler_loop import LoopBlock, LoopPart, SchedulerLoop
from dask_efficiency.accounts.lines import Frame, blamed, place_of
from dask_efficiency.report.culprits import find_culprits, holder_text, place_text
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.stacks import NO_PREFIX, sampled_stacks
from dask_efficiency.report.values import Culprit, LongHold, ProfileRow
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
    format_seconds,
    format_share,
    format_thread_time,
    harmless,
    name_of,
    sentence,
    shorten,
    time_scale,
)

#: Rows on a screen; a page has all of them. By eye.
TOP_CULPRITS = 8
#: Sentences on who held the GIL, below the table of a screen, which has no room for the column. By eye.
MAX_HELD_BY = 3
#: Longest holds of the GIL, and longest blocks of event loops, that are listed. By eye.
MAX_HOLDS = 5
#: Seconds from which a hold is listed: 8 threads then lose about one thread-second. Dask itself warns from 3 s on.
MIN_HOLD_SECONDS = 0.1
#: Characters of who held the GIL, in a table of a page. By eye.
HELD_BY_LENGTH = 100


def culprits(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Largest losses by cause, prefix and line; empty if nothing was sampled."""
    if not report.causes_by_worker and not report.profile:
        return section("Where the time goes")
    found = find_culprits(report)
    shown = found if extent.drawn else found[:TOP_CULPRITS]
    text = f"the {len(shown)} largest losses:" if len(found) > len(shown) else ""
    below = () if extent.drawn else _held_by(shown)
    return section("Where the time goes", text, _culprit_table(shown, report.thread_seconds, extent), *below)


def _culprit_table(shown: tuple[Culprit, ...], whole: float, extent: Extent) -> Table:
    if not shown:
        return Table((), ())
    scale = time_scale(shown[0].seconds, whole)
    heads = ("lost to", f"thread-{scale.unit}", "prefix", "line", "in", "held by")
    width = len(heads) if extent.drawn and any(each.held_by for each in shown) else len(heads) - 1
    rows: list[tuple[Label | str, ...]] = [
        (
            _cause_label(each),
            scale.figure(each.seconds),
            *(name_of(name) or "-" for name in (each.prefix, each.line, each.function)),
            shorten(harmless(each.held_by), HELD_BY_LENGTH),
        )
        for each in shown
    ]
    return Table(
        heads[:width], tuple(row[:width] for row in rows), words=(0, 2, 3, 4, 5)[: width - 1], sortable=extent.drawn
    )


def _cause_label(culprit: Culprit) -> Label:
    label, known = bucket_label(culprit.bucket), CAUSE_DESCRIPTIONS.get(Bucket(culprit.bucket), {})
    return replace(label, text=cause_name(culprit.bucket, culprit.cause), hint=known.get(culprit.cause, label.hint))


def _held_by(shown: tuple[Culprit, ...]) -> tuple[str, ...]:
    by_prefix = {each.prefix: each.held_by for each in shown if each.held_by}
    return tuple(
        sentence(f"while {name_of(prefix) or 'tasks'} waited, the GIL was held most by {held_by}")
        for prefix, held_by in list(by_prefix.items())[:MAX_HELD_BY]
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
    held = [
        f"held the GIL for {format_seconds(hold.seconds)}: {holder_text(hold.holder, blamed(hold.stack))}, "
        f"on {name_of(hold.worker)}"
        for hold in _longest(report.gil_holds)
    ]
    loop = report.scheduler_loop
    blocks: list[tuple[str, LongHold | LoopBlock]] = [
        (f"the event loop of {name_of(hold.worker)}", hold) for hold in _longest(report.loop_blocks)
    ]
    blocks += [("the scheduler's event loop", block) for block in (loop.blocks[:MAX_HOLDS] if loop is not None else ())]
    blocked = [
        f"blocked {whose} for {format_seconds(block.seconds)}"
        + (f": {where}" if (where := place_text(blamed(block.stack))) else "")
        for whose, block in blocks
    ]
    return section("Kept others waiting", *map(sentence, (*held, *blocked)))


def _longest(found: tuple[LongHold, ...]) -> list[LongHold]:
    long = [hold for hold in found if hold.seconds >= MIN_HOLD_SECONDS]
    return sorted(long, key=lambda hold: -hold.seconds)[:MAX_HOLDS]


#: Share of the whole below which a box is left out or joined with its neighbours: two pixels of a screen.
MIN_SHARE = 0.002
#: Boxes of a flame graph: about 240 kilobytes of a page, with long names.
MAX_BOXES = 1_000
#: Frames of a stack that are drawn, from the outermost on. A guess.
MAX_DEPTH = 60
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
#: Costliest handlers that are named on a screen. By eye.
MAX_LOOP_PARTS = 3
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
    handlers = [f"{name_of(part.name)} {format_seconds(part.seconds)}" for part in loop.handlers[:MAX_LOOP_PARTS]]
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
        return name_of(part.name), name_of(part.kind), format_seconds(part.seconds), share, str(part.calls), where

    ranked = sorted((*loop.handlers, *loop.hooks), key=lambda part: -part.seconds)
    heads = ("what", "kind", "time", "of busy", "calls", "where")
    return Table(heads, tuple(map(row, ranked)), words=(0, 1, 5), sortable=True)


def _loop_note(loop: SchedulerLoop) -> str:
    text = (
        "Handlers and callbacks were timed at each call. Hooks of plugins are part of their time; what `transition` of "
        "each plugin took is estimated from some of the calls."
    )
    if loop.busy_seconds is None:
        return text
    rest = max(0.0, loop.busy_seconds - loop.handlers_seconds)
    return f"{text} The rest of the busy time, {format_seconds(rest)}, went to messages and to all else."
