"""Documents of a critical path: one path, one with changes, and two compared; and its figures as plain data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from dask_efficiency.accounts.intake import finite
from dask_efficiency.runs.path.compare import COMPARED, PathChange, PathComparison, compare_paths
from dask_efficiency.runs.path.path import GROUPS, NOBODY, CriticalPath
from dask_efficiency.runs.sections.by_kind import TOP_NAMES, along, kind_label, kind_labels, seconds_table, top
from dask_efficiency.show.document import Along, Document, Section, Share, Table, section, with_content
from dask_efficiency.show.figures import format_count, format_seconds, format_share, name_of, sentence, time_scale
from dask_efficiency.show.finding import MAX_SHOWN

#: Rows of a table of differences, the largest first; the rest is one row.
MAX_DIFFERENCES = 12
#: Runs of a trace up to which a page shows where an improvement would help: some 3 seconds of replays.
MAX_RUNS = 10_000
#: Share of the makespan below which nothing gets a sentence or a row of its own.
HARDLY = 0.001


def title(path: CriticalPath) -> str:
    """Title with the run's name."""
    return f"Critical path of {name_of(path.trace.name) or 'a run'}"


def context(path: CriticalPath) -> str:
    """Line with the size of the run."""
    sizes = ((len(path.trace.tasks), "task"), (len(path.trace.workers), "worker"), (round(path.slots), "slot"))
    counts = ", ".join(format_count(*size) for size in sizes)
    return f"{counts}; makespan: from the client's first activity to the last result"


def document(path: CriticalPath) -> Document:
    """Make the document of a path."""
    first = tuple(finding.lines for finding in path.findings[:MAX_SHOWN])
    return Document(title(path), context(path), path.headline, sections(path), findings=first)


def page(path: CriticalPath) -> Document:
    """Make a page of a path: the document with key figures, and for a short run the best improvements."""
    stats = [("makespan", format_seconds(path.makespan_seconds))]
    if 0 < path.slot_bound_seconds < math.inf:
        stats.append((f"at least, on {round(path.slots)} slots", format_seconds(path.slot_bound_seconds)))
    if path.floor_seconds:
        stats.append(("at least, on any cluster", format_seconds(path.floor_seconds)))
    shown = with_content(*sections(path), quick_improvements(path))
    return replace(document(path), sections=shown, stats=tuple(stats), data=to_dict(path))


def what_if_document(before: CriticalPath, after: CriticalPath, changes: str) -> Document:
    """Make the document of the effect of changes, in words as the beginning of a sentence."""
    then = (f"Then: {after.headline}.",)
    return Document(title(before), "", before.headline, what_if(before, after, changes), last=then)


def improvements_document(path: CriticalPath) -> Document:
    """Make the document of the best improvements; some seconds of replays."""
    return Document(title(path), "", path.headline, (improvements(path),))


def comparison_document(comparison: PathComparison) -> Document:
    """Make the document of the differences between two paths."""
    both = f"{title(comparison.before)}, and of {name_of(comparison.after.trace.name) or 'a run'}"
    last = (f"Before: {comparison.before.headline}.", f"Now: {comparison.after.headline}.")
    return Document(both, "", comparison.headline, differences(comparison), last=last)


def sections(path: CriticalPath) -> tuple[Section, ...]:
    """List all sections with content, in reading order."""
    prefixes, workers = by_name(path, "prefix"), by_name(path, "worker")
    return with_content(kinds(path), bounds(path), prefixes, workers, by_host(path), notes(path))


def kinds(path: CriticalPath) -> Section:
    """Section of the makespan along the run, and by kind, the largest first."""
    seconds = path.seconds("kind")
    worth = sum(value >= HARDLY * path.makespan_seconds for value in seconds.values())
    shown = top(seconds, max(worth, 1))
    table = replace(seconds_table("kind", shown, {name: kind_label(name) for name in shown}), hint_head="what it is")
    strip = [along_the_run(path)] if len(path.segments) else []
    return section("What the makespan was spent on", *strip, table)


def along_the_run(path: CriticalPath) -> Along:
    """Strip along the run of the kind that fills most of each step."""
    segments = path.segments
    window = path.scope.start, path.scope.stop
    return along(segments.kind, segments.start, segments.stop, window, kind_labels())


def bounds(path: CriticalPath) -> Section:
    """Section of the lower bounds of the run."""
    lines = []
    if 0 < path.floor_seconds < math.inf:
        lines.append(
            f"The longest chain of tasks that need one another takes {format_seconds(path.floor_seconds)}: "
            "where they take as long as they did, no cluster is faster, however large."
        )
    if 0 < path.slot_bound_seconds < math.inf:
        lines.append(
            f"The time of all tasks divided by the {format_count(round(path.slots), 'slot')} is "
            f"{format_seconds(path.slot_bound_seconds)}: where tasks take as long as they did, these slots need that."
        )
    return section("Bounds", *lines)


def by_name(path: CriticalPath, by: str) -> Section:
    """Section of the makespan by task prefix, worker or host."""
    seconds = path.seconds(by)
    if set(seconds) <= {NOBODY}:
        return Section("")
    named = {_display_name(name, by): value for name, value in top(seconds, TOP_NAMES).items()}
    return section(_by(by), seconds_table(by, named, {}), narrow=True)


def by_host(path: CriticalPath) -> Section:
    """Section of the makespan by host, if some host has several workers."""
    hosts = {worker.host for worker in path.trace.workers}
    return by_name(path, "host") if 1 < len(hosts) < len(path.trace.workers) else Section("")


def notes(path: CriticalPath) -> Section:
    """Section of the caveats of the path."""
    lines = list(map(sentence, (*path.trace.notes, *path.notes)))
    dropped = ", ".join(f"{count} {name_of(table)}" for table, count in path.trace.dropped.items() if count)
    if dropped:
        lines.append(f"Not recorded, as there was no room or it was lost: {dropped}.")
    if path.unattributed > HARDLY:
        lines.append(f"{format_share(path.unattributed)} of the time is unattributed: nothing recorded explains it.")
    return section("Notes", *lines, caveat=True)


def what_if(before: CriticalPath, after: CriticalPath, changes: str) -> tuple[Section, ...]:
    """Sections of the effect of changes, in words."""
    was, now = before.makespan_seconds, after.makespan_seconds
    change = now / was - 1 if was else 0.0
    longer = f"{format_share(abs(change))} {'shorter' if change < 0 else 'longer'}"
    effect = longer if abs(change) > HARDLY else "no shorter"
    lines = [f"{changes}: {format_seconds(now)} instead of {format_seconds(was)}, {effect}."]
    if change > HARDLY:
        lines.append(
            "A faster part can make the whole slower: tasks become ready in another order, here and on a cluster."
        )
    return section("What if", *lines), *differences(compare_paths(before, after), ("recorded", "what if"))


def quick_improvements(path: CriticalPath) -> Section:
    """Section of the best improvements by 10 %, for a run that is replayed within a few seconds."""
    return improvements(path) if len(path.trace.runs) <= MAX_RUNS else Section("")


def improvements(path: CriticalPath, percent: float = 10.0) -> Section:
    """Section of the best improvements by some percent, by replays."""
    speedups = path.improvements(percent)
    largest = max((speedup.saved_seconds for speedup in speedups), default=0.0)
    if largest <= 0:
        return Section("")
    # Savings within their error are noise.
    clear = [s for s in speedups if s.saved_seconds > 2 * s.error_seconds or math.isnan(s.error_seconds)]
    worth = [s for s in clear if s.saved_seconds >= HARDLY * path.makespan_seconds][:TOP_NAMES]
    lines = [f"What {percent:g} % less time in each would save, by replays of the run."]
    if len(worth) < len(speedups):
        lines.append(
            f"{format_count(len(speedups) - len(worth), 'other')} would save little, or nothing that is certain."
        )
    scale = time_scale(largest)
    rows = []
    for s in worth:
        error = "" if math.isnan(s.error_seconds) else scale.figure(s.error_seconds)
        share = f"{100 * s.saved_seconds / path.makespan_seconds:.1f}"
        rows.append((name_of(s.what), scale.figure(s.saved_seconds), error, share))
    heads = ("what", f"saved, {scale.unit}", "+-", "% of the run")
    table = Table(heads, tuple(rows), drawings=tuple(Share(s.saved_seconds / largest) for s in worth))
    return section(f"Where {percent:g} % would help most", *lines, table)


def differences(comparison: PathComparison, heads: tuple[str, str] = ("before", "after")) -> tuple[Section, ...]:
    """Sections of the differences of two paths, by kind and by prefix, with moves onto the path or off it."""
    return tuple(_differences([c for c in comparison.changes if c.by == by], by, heads) for by in COMPARED)


def _differences(changes: Sequence[PathChange], by: str, heads: tuple[str, str]) -> Section:
    was, now = sum(change.before for change in changes), sum(change.after for change in changes)
    scale = time_scale(max(was, now))
    worth = [c for c in changes if scale.steps(c.before) or scale.steps(c.after)][:MAX_DIFFERENCES]
    shown = [(_display_name(c.name, by), c.before, c.after, f"{c.moved} the path" if c.moved else "") for c in worth]
    if len(changes) > len(worth):
        rest_was, rest_now = was - sum(c.before for c in worth), now - sum(c.after for c in worth)
        shown.append((f"{len(changes) - len(worth)} more", rest_was, rest_now, ""))
    rows = []
    for name, before, after, moved in [*shown, ("total", was, now, "")]:
        old, new = scale.steps(before), scale.steps(after)
        change = "" if old == new else f"{'+' if new > old else ''}{scale.text(new - old)}"
        rows.append((name, scale.text(old), scale.text(new), change, moved))
    columns = (by, *(f"{head}, {scale.unit}" for head in heads), "change", "moved")
    return section(_by(by), Table(columns, tuple(rows), words=(0, 4), sums=(len(rows) - 1,)))


def _by(by: str) -> str:
    return f"By {'task prefix' if by == 'prefix' else by}"


def _display_name(name: str, by: str) -> str:
    if name != NOBODY:
        return name_of(name)
    return "(no task)" if by == "prefix" else "(client and scheduler)"


def to_dict(path: CriticalPath) -> dict[str, Any]:
    """The path's figures, ready for JSON: seconds, and shares in [0, 1]; None where a figure is not finite."""
    return {
        "name": path.trace.name,
        "headline": path.headline,
        "findings": [finding.to_dict() for finding in path.findings],
        "makespan_seconds": path.makespan_seconds,
        "floor_seconds": path.floor_seconds,
        "slot_bound_seconds": finite(path.slot_bound_seconds),
        "slots": path.slots,
        "unattributed": path.unattributed,
        **{f"seconds_by_{by}": path.seconds(by) for by in GROUPS},
        "notes": list(path.trace.notes),
        "dropped": dict(path.trace.dropped),
    }


def improvement_rows(path: CriticalPath) -> list[dict[str, Any]]:
    """Savings of 10 % improvements, ready for JSON; the error of a single replay is None."""
    rows = [asdict(speedup) for speedup in path.improvements()]
    return [row | {"error_seconds": finite(row["error_seconds"])} for row in rows]
