"""What is said about a critical path, as titled lines and tables for any renderer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dask_efficiency.critical_paths.compare import COMPARED, PathChange, PathComparisonValues
from dask_efficiency.critical_paths.path import NOBODY, PathValues
from dask_efficiency.report.figures import (
    Scale,
    apportion,
    format_percent,
    format_seconds,
    format_share,
    harmless,
    shorten,
    time_scale,
)
from dask_efficiency.report.section import NOTE_LENGTH, Section, name_of

#: Rows of a table by name; the rest is summed up.
TOP_NAMES = 8

#: Rows of a table of differences.
MAX_DIFFERENCES = 12

#: Characters of the longest bar in a table.
BAR_LENGTH = 24

#: A share that is not worth a sentence, nor a row of its own.
HARDLY = 0.001


def title(path: PathValues) -> str:
    """The run's name."""
    return f"Critical path of {name_of(path.trace.name) or 'a run'}"


def context(path: PathValues) -> str:
    """How much it covers."""
    trace = path.trace
    counts = [_count(len(trace.tasks), "task"), _count(len(trace.workers), "worker")]
    counts.append(_count(round(path.slots), "slot"))
    return f"{', '.join(counts)}; makespan: from the client's first activity to the last result"


def sections(path: PathValues) -> tuple[Section, ...]:
    """Every section that has something to say, in reading order."""
    found = (kinds(path), bounds(path), by_name(path, "prefix"), by_name(path, "worker"), by_host(path), notes(path))
    return tuple(section for section in found if section.lines or section.rows)


def kinds(path: PathValues) -> Section:
    """The makespan by kind, largest first; the last column is a bar."""
    seconds = path.seconds("kind")
    worth = sum(value >= HARDLY * path.makespan_seconds for value in seconds.values())
    return _table("What the makespan was spent on", "kind", _top(seconds, max(worth, 1)))


def bounds(path: PathValues) -> Section:
    """What the run could not have been faster than."""
    lines = []
    if 0 < path.floor_seconds < math.inf:
        lines.append(
            f"The longest chain of tasks that need one another takes {format_seconds(path.floor_seconds)}: "
            "where they take as long as they did, no cluster is faster, however large."
        )
    if 0 < path.slot_bound_seconds < math.inf:
        lines.append(
            f"The time of all tasks divided by the {_count(round(path.slots), 'slot')} is "
            f"{format_seconds(path.slot_bound_seconds)}: where tasks take as long as they did, these slots need that."
        )
    return Section("Bounds", tuple(lines))


def by_name(path: PathValues, by: str) -> Section:
    """The makespan by task prefix, worker or host."""
    seconds = path.seconds(by)
    if set(seconds) <= {NOBODY}:
        return Section("")
    named = {_named(name, by): value for name, value in _top(seconds, TOP_NAMES).items()}
    return _table(f"By {'task prefix' if by == 'prefix' else by}", by, named)


def by_host(path: PathValues) -> Section:
    """By host, where that says more than the workers do."""
    hosts = {worker.host for worker in path.trace.workers}
    return by_name(path, "host") if 1 < len(hosts) < len(path.trace.workers) else Section("")


def notes(path: PathValues) -> Section:
    """What a reader must know to trust the path."""
    lines = [shorten(harmless(note), NOTE_LENGTH) for note in path.trace.notes]
    dropped = ", ".join(f"{count} {name_of(table)}" for table, count in path.trace.dropped.items() if count)
    if dropped:
        lines.append(f"Not recorded, as there was no room or it was lost: {dropped}.")
    if path.unattributed > HARDLY:
        lines.append(f"{format_share(path.unattributed)} of the time is unattributed: nothing recorded explains it.")
    return Section("Notes", tuple(lines), caveat=True)


def what_if(before: PathValues, after: PathValues, changes: str) -> tuple[Section, ...]:
    """What changes would do to a run.

    Parameters
    ----------
    before, after
        The path as recorded, and of the replay with changes.
    changes
        The changes in words.
    """
    said = f"{changes}: {format_seconds(after.makespan_seconds)} instead of {format_seconds(before.makespan_seconds)}"
    change = after.makespan_seconds / before.makespan_seconds - 1 if before.makespan_seconds else 0.0
    said += f", {format_share(abs(change))} {_than(change)}." if abs(change) > HARDLY else ", no shorter."
    lines = [said]
    if change > HARDLY:
        lines.append(
            "A faster part can make the whole slower: tasks become ready in another order, here and on a cluster."
        )
    return Section("What if", tuple(lines)), *differences(
        PathComparisonValues.of(before, after), ("recorded", "what if")
    )


def improvements(path: PathValues, percent: float = 10.0) -> Section:
    """Where an improvement by some percent would help most, by replays; the last column is a bar."""
    found = path.improvements(percent)
    largest = max((speedup.saved_seconds for speedup in found), default=0.0)
    if largest <= 0:
        return Section("")
    # What is within its error is in no order, and its sign means nothing.
    clear = [s for s in found if s.saved_seconds > 2 * s.error_seconds or math.isnan(s.error_seconds)]
    worth = [s for s in clear if s.saved_seconds >= HARDLY * path.makespan_seconds][:TOP_NAMES]
    lines = [f"What {percent:g} % less time in each would save, by replays of the run."]
    if len(worth) < len(found):
        lines.append(f"{_count(len(found) - len(worth), 'other')} would save little, or nothing that is certain.")
    scale = time_scale(largest)
    rows = tuple(
        (
            name_of(s.what),
            scale.text(scale.steps(s.saved_seconds)),
            "" if math.isnan(s.error_seconds) else scale.text(scale.steps(s.error_seconds)),
            f"{100 * s.saved_seconds / path.makespan_seconds:.1f}",
            "#" * math.ceil(BAR_LENGTH * s.saved_seconds / largest),
        )
        for s in worth
    )
    heads = ("what", f"saved, {scale.unit}", "+-", "% of the run", "")
    return Section(f"Where {percent:g} % would help most", tuple(lines), heads if rows else (), rows, words=(0, 4))


def differences(comparison: PathComparisonValues, heads: tuple[str, str] = ("before", "after")) -> tuple[Section, ...]:
    """What two paths were spent on, by kind and by prefix, with what moved onto the path or off it."""
    return tuple(_differences([c for c in comparison.changes if c.by == by], by, heads) for by in COMPARED)


def _differences(changes: Sequence[PathChange], by: str, heads: tuple[str, str]) -> Section:
    was, now = sum(change.before for change in changes), sum(change.after for change in changes)
    scale = time_scale(max(was, now))
    worth = [c for c in changes if scale.steps(c.before) or scale.steps(c.after)][:MAX_DIFFERENCES]
    rest = len(changes) - len(worth)
    shown = [(_named(c.name, by), c.before, c.after, f"{c.moved} the path" if c.moved else "") for c in worth]
    if rest:
        rest_was, rest_now = was - sum(c.before for c in worth), now - sum(c.after for c in worth)
        shown.append((f"{rest} more", rest_was, rest_now, ""))
    rows = [(name, *_change(scale, one, other), moved) for name, one, other, moved in [*shown, ("total", was, now, "")]]
    title = f"By {'task prefix' if by == 'prefix' else by}"
    columns = (by, *(f"{head}, {scale.unit}" for head in heads), "change", "moved")
    return Section(title, (), columns, tuple(rows), words=(0, 4), sums=(len(rows) - 1,))


def _change(scale: Scale, was: float, now: float) -> tuple[str, str, str]:
    one, other = scale.steps(was), scale.steps(now)
    return scale.text(one), scale.text(other), _signed(scale.text(other - one), other - one)


def _than(change: float) -> str:
    return "shorter" if change < 0 else "longer"


def _signed(text: str, steps: int) -> str:
    return f"+{text}" if steps > 0 else text if steps else ""


def _table(heading: str, name: str, seconds: Mapping[str, float]) -> Section:
    if not seconds:
        return Section(heading)
    largest = max(seconds.values())
    scale = time_scale(largest)
    tenths = apportion([round(value * 1e9) for value in seconds.values()], 1000)
    rows = tuple(
        (label, scale.text(scale.steps(value)), format_percent(share), "#" * math.ceil(BAR_LENGTH * (value / largest)))
        for (label, value), share in zip(seconds.items(), tenths, strict=True)
    )
    return Section(heading, (), (name, f"time, {scale.unit}", "%", ""), rows, words=(0, 3))


def _named(name: str, by: str) -> str:
    if name != NOBODY:
        return name_of(name)
    return "(no task)" if by == "prefix" else "(client and scheduler)"


def _top(seconds: Mapping[str, float], number: int) -> dict[str, float]:
    names = list(seconds)
    top = {name: seconds[name] for name in names[:number]}
    rest = names[number:]
    return top | ({f"{len(rest)} more": sum(seconds[name] for name in rest)} if rest else {})


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
