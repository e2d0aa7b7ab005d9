"""Where the time goes: the lines of code on which most was lost, and who kept others waiting."""

from __future__ import annotations

from dataclasses import replace

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.causes import DESCRIPTIONS
from dask_efficiency.report.culprits import at, find_culprits, who
from dask_efficiency.report.flame import boxes
from dask_efficiency.report.model import Culprit, EfficiencyReport
from dask_efficiency.report.profile import Hold
from dask_efficiency.report.stacks import reason, sampled_stacks
from dask_efficiency.show.document import Aside, Flames, Label, Section, Table, bucket_label, section
from dask_efficiency.show.extent import SCREEN, Extent
from dask_efficiency.show.figures import format_seconds, harmless, name_of, sentence, shorten, time_scale

#: Rows on a screen; a page has all of them.
TOP_CULPRITS = 8

#: Of those who held the GIL, below the table on a screen, where a column of them has no room.
MAX_HELD_BY = 3

#: Of the longest holds, and of the longest blocks, those that are named.
MAX_HOLDS = 5

#: What Dask itself warns of is 3 s; in a tenth of a second, 8 threads lose about one thread-second.
MIN_HOLD_SECONDS = 0.1

#: Characters of who held the GIL, in a table of a page.
HELD_BY_LENGTH = 100


def culprits(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """What most time was lost on, by cause, prefix and line; nothing where nobody looked."""
    if not report.causes_by_worker and not report.profile:
        return section("Where the time goes")
    found = find_culprits(report)
    shown = found if extent.drawn else found[:TOP_CULPRITS]
    said = f"the {len(shown)} largest losses:" if len(found) > len(shown) else ""
    below = () if extent.drawn else _held_by(shown)
    return section("Where the time goes", said, _table(shown, report.thread_seconds, extent), *below)


def _table(shown: tuple[Culprit, ...], whole: float, extent: Extent) -> Table:
    if not shown:
        return Table((), ())
    scale = time_scale(shown[0].seconds, whole)
    heads: tuple[str, ...] = ("lost to", f"thread-{scale.unit}", "prefix", "line", "in")
    rows: list[tuple[Label | str, ...]] = [
        (
            _cause_label(each),
            scale.figure(each.seconds),
            name_of(each.prefix) or "-",
            name_of(each.line) or "-",
            name_of(each.function) or "-",
        )
        for each in shown
    ]
    words: tuple[int, ...] = (0, 2, 3, 4)
    if extent.drawn and any(each.held_by for each in shown):
        heads, words = (*heads, "held by"), (*words, 5)
        rows = [(*row, shorten(harmless(each.held_by), HELD_BY_LENGTH)) for row, each in zip(rows, shown, strict=True)]
    return Table(heads, tuple(rows), words=words, sortable=extent.drawn)


def _cause_label(culprit: Culprit) -> Label:
    label, known = bucket_label(culprit.bucket), DESCRIPTIONS.get(Bucket(culprit.bucket), {})
    return replace(label, text=reason(culprit.bucket, culprit.cause), hint=known.get(culprit.cause, label.hint))


def _held_by(shown: tuple[Culprit, ...]) -> tuple[str, ...]:
    """Who held the GIL while others waited for it, one sentence for each prefix."""
    by_prefix = {each.prefix: each.held_by for each in shown if each.held_by}
    return tuple(
        sentence(f"while {name_of(prefix) or 'tasks'} waited, the GIL was held most by {held_by}")
        for prefix, held_by in list(by_prefix.items())[:MAX_HELD_BY]
    )


def flame_graph(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """What the threads of tasks did and waited for, by cause and stack, as a figure."""
    heading = "By cause and line"
    found = boxes(sampled_stacks(report)) if extent.drawn else ()
    if not found:
        return Section(heading)
    said = (
        "All time in tasks by cause, below that by prefix, and below that by what called what, down to the line. The "
        "time of each cause and prefix is exact; how it is divided over lines was sampled."
    )
    return section(heading, Aside(said), Flames(found))


def holds(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """The longest times for which one thread kept all others from the GIL, or blocked an event loop.

    They are part of what was lost to waiting, so that they stand beside the culprits and not among them.
    """
    held = [
        f"held the GIL for {format_seconds(hold.seconds)}: {who(hold.holder, hold.stack)}, on {name_of(hold.worker)}"
        for hold in _longest(report.gil_holds)
    ]
    blocked = [
        f"blocked the event loop of {name_of(hold.worker)} for {format_seconds(hold.seconds)}"
        + (f": {where}" if (where := at(hold.stack)) else "")
        for hold in _longest(report.loop_blocks)
    ]
    loop = report.scheduler_loop
    blocked += [
        f"blocked the scheduler's event loop for {format_seconds(block.seconds)}"
        + (f": {where}" if (where := at(block.stack)) else "")
        for block in (loop.blocks[:MAX_HOLDS] if loop is not None else ())
    ]
    return section("Kept others waiting", *map(sentence, (*held, *blocked)))


def _longest(found: tuple[Hold, ...]) -> list[Hold]:
    long = [hold for hold in found if hold.seconds >= MIN_HOLD_SECONDS]
    return sorted(long, key=lambda hold: -hold.seconds)[:MAX_HOLDS]
