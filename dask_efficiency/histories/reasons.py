"""Reasons for a change in a history: what else differs between the runs before and after it."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

from dask_efficiency.histories.history import Change
from dask_efficiency.report.compare import Comparison
from dask_efficiency.report.comparison_findings import format_rise
from dask_efficiency.report.wall_clock import WORTH_SAYING
from dask_efficiency.show.figures import NAMES_IN_A_LINE, format_bytes, lower_first, name_of, sentence

#: Characters of a commit, as Git shows it.
_SHORT = 10


def reasons(change: Change) -> tuple[str, ...]:
    """Differences that came with a change, a clause each: losses, memory, work, settings, labels and commit."""
    try:
        found = change.comparison
    except (OSError, ValueError) as error:
        return (f"the reports could not be compared: {sentence(str(error))}",)
    return (
        *_losses(change, found),
        *_memory(change, found),
        *_work(found),
        *_workers(found),
        *_settings(found),
        *_labels(change),
        *_commit(change),
    )


def _losses(change: Change, found: Comparison) -> Iterator[str]:
    if change.figure != "wall_clock_seconds":
        return
    words = ("New", "Grown") if change.is_worse else ("Less", "Gone")
    along = [one for one in found.findings if one.title.startswith(words)]
    for one in along[:NAMES_IN_A_LINE]:
        yield lower_first(one.title) + (f" ({one.where})" if one.where else "")


def _memory(change: Change, found: Comparison) -> Iterator[str]:
    """Parts of the highest peak that rose, or fell, as it did."""
    if change.figure != "worker_peak_bytes":
        return
    total = found.peaks["worker"].change
    along = [(size.change / total, name, size) for name, size in found.at_peak.items() if not size.within_spread]
    for part, name, size in sorted(along, key=itemgetter(0), reverse=True)[:NAMES_IN_A_LINE]:
        if part >= WORTH_SAYING:
            what = f"results of {name_of(name)}" if name else "memory beyond results"
            yield f"{what} at the peak {format_bytes(size.before)} -> {format_bytes(size.after)}"


def _work(found: Comparison) -> Iterator[str]:
    useful = found.useful
    if abs(useful.rise) >= WORTH_SAYING and not useful.within_spread:
        yield f"useful time {format_rise(useful.rise)}"
    for name, count in found.tasks.items():
        if count.change and not count.within_spread and abs(count.rise) >= WORTH_SAYING:
            yield f"{count.after} tasks {name_of(name)} instead of {count.before}"


def _workers(found: Comparison) -> Iterator[str]:
    for size, word in ((found.workers, "workers"), (found.threads, "threads")):
        if size.change and not size.within_spread:
            yield f"{size.after} {word} instead of {size.before}"


def _settings(found: Comparison) -> Iterator[str]:
    """Versions and settings that no run before shares with one after."""
    others = (name for name in found.environment if name not in ("workers", "threads", "commit"))
    differ = [name for name in others if not set.intersection(*map(set, found.environment[name]))]
    for name in differ[:NAMES_IN_A_LINE]:
        before, after = (run.environment.get(name, "") for run in (found.before[-1], found.after[0]))
        yield f"{name_of(name)} {name_of(before or 'unknown')} -> {name_of(after or 'unknown')}"
    if differ[NAMES_IN_A_LINE:]:
        yield f"{len(differ) - NAMES_IN_A_LINE} more settings"


def _labels(change: Change) -> Iterator[str]:
    before, after = change.before[-1].head.labels, change.first.head.labels
    for name in sorted(before.keys() & after.keys()):
        if before[name] != after[name]:
            yield f"{name_of(name)} {name_of(before[name])} -> {name_of(after[name])}"


def _commit(change: Change) -> Iterator[str]:
    before, after = (run.head.versions.get("commit", "")[:_SHORT] for run in (change.before[-1], change.first))
    if before and after and before != after:
        yield f"commit {name_of(before)} -> {name_of(after)}"
