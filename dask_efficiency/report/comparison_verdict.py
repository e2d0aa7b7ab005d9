"""A comparison in one sentence, and what stands against comparing at all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.causes import UNKNOWN
from dask_efficiency.accounts.causes import name_of as cause_name
from dask_efficiency.report.clauses import loss_name
from dask_efficiency.report.compare import Comparison, Difference
from dask_efficiency.report.comparison_table import ComparisonTable, comparison_table, fine_scale
from dask_efficiency.report.wall_clock import WORTH_SAYING
from dask_efficiency.show.figures import Scale, format_seconds, format_share, name_of, sentence

#: Below this change, two runtimes are the same to a reader.
SAME_RUNTIME = 0.005
#: A smaller change is not put into per cent.
SMALLEST_RISE = 0.001
#: A cause that changed by less than this part of the largest change says less than the bucket's name does.
STANDS_OUT = 0.5
#: From this part of the largest change on, the largest in the other direction is named too.
WORTH_NAMING = 0.5

#: From this share on, unmeasured time stands against comparing.
WORTH_A_CAVEAT = 0.01

MORE = "more than the runs differ among themselves"


def headline(comparison: Comparison) -> str:
    """The comparison in one sentence, without a full stop.

    A rise of 14 % is always one of the figure before: "14 % slower" takes 1.14 times as long. Thread
    times are those of the table, rounded together, so that they agree.
    """
    for side, reports in (("before", comparison.before), ("after", comparison.after)):
        if not any(report.thread_seconds for report in reports):
            return f"Nothing to compare: nothing ran {side}"
    table = comparison_table(comparison)
    if comparison.is_same:
        took = f"took {format_seconds(comparison.wall_clock_seconds.after)} and " if _has_wall(comparison) else ""
        return f"No difference: both {took}lost {table.lost.after} thread-{table.thread_scale.word}"
    clauses = [*_runtime(comparison), *_useful(comparison, table), _lost(comparison, table)]
    if _has_wall(comparison) and comparison.wall_clock_seconds.within_spread and comparison.lost.within_spread:
        clauses.append(f"neither runtime nor lost time changed by {MORE}")
    clauses += [f"{named} thread-{table.thread_scale.word}{where}" for named, where in _named(comparison, table)]
    clauses += [*_unmeasured(comparison, WORTH_SAYING), *_not_ended(comparison)]
    first = clauses[0][0].upper() + clauses[0][1:]
    return "; ".join([first, *clauses[1:]])


def excess(comparison: Comparison) -> str:
    """A rise of lost time, in a clause of its own."""
    lost = comparison.lost
    by = f" by {rise_size(lost.rise) or '<0.1 %'}" if lost.before else ""
    noise = f" (not {MORE})" if lost.within_spread else ""
    return f"lost time rose{by}, from {lost.before / 1e9:.3f} to {lost.after / 1e9:.3f} thread-seconds{noise}"


def pair(difference: Difference[float] | Difference[int], scale: Scale) -> str:
    """Both figures of one scale: ``"61.5 -> 70.1"``."""
    before, after = (scale.figure(value) for value in (difference.before, difference.after))
    return f"{before} -> {after}"


def format_rise(rise: float) -> str:
    """A change as a part of what was before: ``"+12 %"``, ``"-3.4 %"``; empty where either is nothing."""
    size = rise_size(rise)
    return f"{'+' if rise > 0 else '-'}{size}" if size else ""


def rise_size(rise: float) -> str:
    """The same without its sign."""
    size = abs(rise)
    if not SMALLEST_RISE <= size < math.inf:
        return ""
    return format_share(size) if size <= 1 else f"{100 * size:.0f} %"


def _has_wall(comparison: Comparison) -> bool:
    wall = comparison.wall_clock_seconds
    return math.isfinite(wall.before) and math.isfinite(wall.after)


def _runtime(comparison: Comparison) -> Iterator[str]:
    if not _has_wall(comparison):
        return
    wall = comparison.wall_clock_seconds
    scale = fine_scale(max(wall.before, wall.after))
    if abs(wall.rise) < SAME_RUNTIME:
        said = "as fast as before"
    else:
        said = f"{rise_size(wall.rise)} {'slower' if wall.change > 0 else 'faster'}"
    threads = comparison.threads
    on = f" on {threads.after} threads instead of {threads.before}" if threads.change and threads.before else ""
    noise = f", not {MORE}" if wall.within_spread and not comparison.lost.within_spread else ""
    yield f"{said}: {pair(wall, scale)} {scale.unit}{on}{noise}{_elsewhere(comparison, scale)}"


def _elsewhere(comparison: Comparison, scale: Scale) -> str:
    """Where most of a change of the wall clock was, if that was not the work on the cluster."""
    change = comparison.wall_clock_seconds.change
    parts = {"on the client": comparison.client_seconds, "without any worker": comparison.no_workers_seconds}
    for what, part in parts.items():
        if abs(part.change) > abs(change) / 2 and part.change * change > 0:
            return f", mostly {what}, {pair(part, scale)} {scale.unit}"
    return ""


def _useful(comparison: Comparison, table: ComparisonTable) -> Iterator[str]:
    if _useful_differs(comparison):
        yield f"useful time {_moved(comparison.useful, table.useful.before, table.useful.after, table)}"


def _lost(comparison: Comparison, table: ComparisonTable) -> str:
    lost = comparison.lost
    if table.lost.before == table.lost.after:
        return f"lost time is the same, {table.lost.after} thread-{table.thread_scale.word}"
    alone = not (_has_wall(comparison) and comparison.wall_clock_seconds.within_spread)
    noise = f", not {MORE}" if lost.within_spread and alone else ""
    return f"lost time {_moved(lost, table.lost.before, table.lost.after, table)}{noise}"


def _moved(time: Difference[int], before: str, after: str, table: ComparisonTable) -> str:
    size = rise_size(time.rise)
    by = f" by {size}" if size else ""
    return f"{'rose' if time.change > 0 else 'fell'}{by}, {before} -> {after} thread-{table.thread_scale.word}"


@dataclass(frozen=True, slots=True)
class _Changed:
    """A bucket, or a cause in one, that changed."""

    bucket: Bucket
    cause: str
    time: Difference[int]
    by_prefix: Mapping[str, Difference[int]]


def _largest(comparison: Comparison, table: ComparisonTable) -> list[_Changed]:
    """The largest change in the direction of the sum, and one against it that is of its size."""
    up = comparison.lost.change >= 0
    notable = [
        changed
        for changed in _all_changed(comparison, table)
        # nobody knows what unmeasured time was good for; it has a clause of its own
        if changed.time.change and not changed.time.within_spread and changed.bucket is not Bucket.UNMEASURED
    ]
    along = _standing_out([changed for changed in notable if (changed.time.change > 0) == up])
    against = _standing_out([changed for changed in notable if (changed.time.change > 0) != up])
    if along and against and abs(against[0].time.change) < WORTH_NAMING * abs(along[0].time.change):
        against = []
    return along + against


def _all_changed(comparison: Comparison, table: ComparisonTable) -> Iterator[_Changed]:
    """Every bucket, and every known cause that the table shows."""
    for cause in comparison.causes:
        yield _Changed(cause.bucket, "", cause.time, cause.by_prefix)
        shown = {row.label for row in table.parts.get(cause.bucket, ())} - {UNKNOWN}
        for part in cause.parts:
            if part.cause in shown:
                yield _Changed(cause.bucket, part.cause, part.time, part.by_prefix)


def _standing_out(changed: Sequence[_Changed]) -> list[_Changed]:
    """The cause that changed most, unless a bucket changed more than twice as much; a bucket without causes is one."""
    if not changed:
        return []
    by_cause = {one.bucket for one in changed if one.cause}
    causes = [one for one in changed if one.cause or one.bucket not in by_cause]
    largest, cause = (max(some, key=lambda one: abs(one.time.change)) for some in (changed, causes))
    return [cause if abs(cause.time.change) >= STANDS_OUT * abs(largest.time.change) else largest]


def _named(comparison: Comparison, table: ComparisonTable) -> Iterator[tuple[str, str]]:
    """What changed most, up to the unit of the figure; and the prefix that most of it is in."""
    rows = {row.name: row for row in table.rows}
    # another cause may have changed more, by less than its runs differ
    beyond = "" if comparison.lost.spread is None else " beyond the runs' own spread"
    for changed in _largest(comparison, table):
        change = rows[cause_name(changed.bucket, changed.cause) if changed.cause else changed.bucket].change
        if change.strip("+-0."):
            what = "growth" if changed.time.change > 0 else "drop"
            name = loss_name(changed.bucket, changed.cause)
            yield f"the largest {what}{beyond} is {name}, {change}", _where(changed)


def _where(cause: _Changed) -> str:
    change = cause.time.change
    sign = 1 if change > 0 else -1
    most = max(cause.by_prefix, key=lambda name: sign * cause.by_prefix[name].change, default=None)
    if most is None or 2 * sign * cause.by_prefix[most].change <= abs(change):
        return ""
    return f", mostly in {name_of(most) or '(no prefix)'}"


def caveats(comparison: Comparison) -> tuple[str, ...]:
    """Why the two sides may not be comparable, a sentence each."""
    return (
        *_other_size(comparison),
        *_other_work(comparison),
        *_other_causes(comparison),
        *(f"{said}: there is no comparing that part" for said in _unmeasured(comparison, WORTH_A_CAVEAT)),
        *_not_ended(comparison),
        *_other_price(comparison),
        *_notes(comparison),
    )


def _other_size(comparison: Comparison) -> Iterator[str]:
    sizes = (("workers", comparison.workers), ("threads", comparison.threads))
    differ = [f"{size.before} -> {size.after} {name}" for name, size in sizes if size.change]
    if differ:
        yield f"{' and '.join(differ)}: the wall time says more than thread-seconds, which idle threads add to"
    elif any(set(size.runs_before) | set(size.runs_after) != {size.after} for _, size in sizes):
        yield "the runs of one side did not all have the same workers and threads"


def _other_work(comparison: Comparison) -> Iterator[str]:
    if _useful_differs(comparison):
        yield (
            "useful time differs: the runs did not do the same work, or not at the same speed, "
            "and lost time may have changed with it"
        )


def _other_causes(comparison: Comparison) -> Iterator[str]:
    """Where one side knows why threads waited, and the other does not: libraries' own work is lost time there."""
    unknown = [
        any(report.breakdown.ns(Bucket.THREAD_NONCPU) and not report.waiting for report in reports)
        for reports in (comparison.before, comparison.after)
    ]
    if unknown[0] != unknown[1]:
        side = "before" if unknown[0] else "after"
        yield f"why threads waited is not known {side}: what libraries' threads computed is among thread-noncpu there"


def _useful_differs(comparison: Comparison) -> bool:
    useful = comparison.useful
    return bool(useful.change) and not useful.within_spread and abs(useful.rise) >= WORTH_SAYING


def _unmeasured(comparison: Comparison, from_share: float) -> Iterator[str]:
    return _unknown(comparison, Bucket.UNMEASURED, from_share, "was not measured")


def _not_ended(comparison: Comparison) -> Iterator[str]:
    return _unknown(comparison, Bucket.RUNNING, WORTH_SAYING, "was in tasks that had not ended")


def _unknown(comparison: Comparison, bucket: Bucket, from_share: float, said: str) -> Iterator[str]:
    for side, reports in (("before", comparison.before), ("after", comparison.after)):
        wholes = [report.breakdown for report in reports]
        shares = [whole.ns(bucket) / there for whole in wholes if (there := whole.total_ns - whole.ns(Bucket.NO_WORK))]
        if shares and max(shares) >= from_share:
            yield f"{side}, {'up to ' if len(shares) > 1 else ''}{format_share(max(shares))} of the time {said}"


def _other_price(comparison: Comparison) -> Iterator[str]:
    prices = {report.price_per_worker_hour for report in (*comparison.before, *comparison.after)}
    if len(prices) > 1:
        said = ", ".join("none" if price is None else f"{price:g}" for price in sorted(prices, key=lambda p: p or -1.0))
        yield f"the price of a worker's hour is not the same in all runs: {said}"


def _notes(comparison: Comparison) -> Iterator[str]:
    for side, reports in (("before", comparison.before), ("after", comparison.after)):
        for note in dict.fromkeys(note for report in reports for note in report.notes):
            yield f"{side}: {sentence(note)}"
