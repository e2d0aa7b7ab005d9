"""Headline, findings and caveats of a comparison."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from dask_efficiency.accounts.buckets import UNKNOWN, Bucket
from dask_efficiency.report.compare import CauseChange, Comparison
from dask_efficiency.report.comparison_table import ComparisonRow, comparison_table, fine_scale
from dask_efficiency.report.conditions_of import conditions_of
from dask_efficiency.report.difference import Difference
from dask_efficiency.report.findings import loss_finding, wall_clock_finding
from dask_efficiency.report.lost_time import WORTH_A_ROW, CauseLoss
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.wall_clock import NO_WORKERS, WORTH_SAYING, wall_clock_known
from dask_efficiency.show.figures import (
    format_bytes,
    format_seconds,
    format_share,
    lower_first,
    name_of,
    sentence,
    shorten,
    upper_first,
)
from dask_efficiency.show.finding import MAX_FINDINGS, MAX_HEADLINE, MAX_TITLE, WORTH_FINDING, Basis, Finding

#: Relative change below which two runtimes are called equal: less than a reader cares about.
SAME_RUNTIME = 0.005
#: Range of relative changes given in per cent: smaller ones say nothing, larger ones are not read.
SMALLEST_RISE, LARGEST_RISE = 0.001, 100.0
#: Runs before and runs after.
Sides: TypeAlias = tuple[tuple[EfficiencyReport, ...], ...]

NOISE = "more than the spread of the runs"


def find(comparison: Comparison) -> tuple[Finding, ...]:
    """New, grown, reduced and gone losses, the largest change of the wall clock first.

    Lost time costs its thread-seconds over the mean number of threads, so runs with different threads can be compared.
    A change is a finding if it exceeds the spread of the runs and 3 % of the wall clock of the side that has more of
    it. Undoing it saves at most that much, and no more than the ideal runtime leaves.
    """
    sides = tuple(tuple(run for run in runs if _comparable(run)) for runs in (comparison.before, comparison.after))
    if not all(sides):
        return ()
    found = [*_losses(comparison, sides), *_elsewhere(comparison, sides)]
    return tuple(one for _, one in sorted(found, key=lambda pair: -pair[0])[:MAX_FINDINGS])


def _comparable(run: EfficiencyReport) -> bool:
    return wall_clock_known(run) and run.mean_threads > 0


def _seconds_if_finding(wall: Difference[float], runs: Sequence[EfficiencyReport], most: float = math.inf) -> float:
    """Seconds by which a change may have lengthened the runs that have more of it; 0.0 if too few."""
    seconds = min(abs(wall.change), most)
    least = WORTH_FINDING * statistics.median(run.wall_clock_seconds for run in runs)
    return seconds if seconds >= least and not wall.within_spread else 0.0


def _losses(comparison: Comparison, sides: Sides) -> Iterator[tuple[float, Finding]]:
    table = comparison_table(comparison)
    rows = {row.name: row for row in table.rows}
    for part in (part for cause in comparison.causes for part in cause.parts or (cause,)):
        time, wall = part.time, _wall(part.time, comparison)
        runs = sides[wall.change > 0]
        most = statistics.median(run.cluster_seconds - run.ideal_seconds for run in runs)
        row, seconds = rows.get(part.name), _seconds_if_finding(wall, runs, most)
        # Unmeasured time may have been useful: a caveat covers it.
        if row is None or not seconds or part.bucket is Bucket.UNMEASURED:
            continue
        loss = CauseLoss(part.bucket, "" if part.cause == UNKNOWN else part.cause, max(time.change, 0))
        # With different threads, thread time may be equal, or have changed the other way.
        along = not comparison.threads.change and wall.change * time.change > 0
        changed = replace(
            loss_finding(runs[-1], conditions_of(runs[-1]), loss),
            where=f"{row.before} -> {row.after} thread-{table.thread_scale.word}"
            + (_main_prefix(part) if along else f", {_before_after(wall)} of the wall clock"),
            evidence={"thread_seconds_before": time.before / 1e9, "thread_seconds_after": time.after / 1e9},
        )
        yield seconds, _with_change(changed, wall, seconds)


def _elsewhere(comparison: Comparison, sides: Sides) -> Iterator[tuple[float, Finding]]:
    """Changes of the client's own time, and of time without workers."""
    for what, time in ((NO_WORKERS, comparison.no_workers_seconds), ("", comparison.client_seconds)):
        runs = sides[time.change > 0]
        if seconds := _seconds_if_finding(time, runs):
            evidence = {"seconds_before": time.before, "seconds_after": time.after}
            changed = replace(
                wall_clock_finding(runs[-1], what, seconds, conditions_of(runs[-1])),
                where=_before_after(time),
                evidence=evidence,
            )
            yield seconds, _with_change(changed, time, seconds)


def _with_change(one: Finding, wall: Difference[float], seconds: float) -> Finding:
    """Word a finding as a change; below 3 % of the other side, a side counts as nothing."""
    less, more = sorted((wall.before, wall.after))
    grown, there = wall.change > 0, less >= WORTH_FINDING * more
    word = ("Grown" if there else "New") if grown else ("Less" if there else "Gone")
    known = grown and one.saves_seconds is not None
    return replace(
        one,
        title=shorten(f"{word}: {lower_first(one.title)}", MAX_TITLE),
        lost_seconds=one.lost_seconds if grown else 0.0,
        saves_seconds=seconds if known else None,
        saves_interval=None,
        basis=Basis.BOUNDED if known else Basis.UNKNOWN,
        advice=one.advice if grown else "",
    )


def _wall(time: Difference[int], comparison: Comparison) -> Difference[float]:
    def wall(runs: Sequence[EfficiencyReport], times: Sequence[int]) -> tuple[float, ...]:
        return tuple(ns / 1e9 / run.mean_threads for run, ns in zip(runs, times, strict=True) if _comparable(run))

    return Difference(wall(comparison.before, time.runs_before), wall(comparison.after, time.runs_after))


def _before_after(wall: Difference[float]) -> str:
    scale = fine_scale(max(wall.before, wall.after))
    return f"{scale.figure(wall.before)} -> {scale.figure(wall.after)} {scale.unit}"


def _main_prefix(part: CauseChange) -> str:
    change = part.time.change
    sign = 1 if change > 0 else -1
    most = max(part.by_prefix, key=lambda name: sign * part.by_prefix[name].change, default=None)
    if most is None or 2 * sign * part.by_prefix[most].change <= abs(change):
        return ""
    return f", mostly in {name_of(most) or '(no prefix)'}"


def headline(comparison: Comparison) -> str:
    """Change of runtime and of lost time; at most 100 characters, no full stop.

    Rises are relative to the figure before: "14 % slower" takes 1.14 times as long. Thread times are those of the
    table, rounded together, so that they agree.
    """
    for side, runs in comparison.sides.items():
        if not any(run.thread_seconds for run in runs):
            return f"Nothing to compare: nothing ran {side}"
    table, wall = comparison_table(comparison), comparison.wall_clock_seconds
    unit, known = f"thread-{table.thread_scale.word}", math.isfinite(wall.change)
    if comparison.is_same:
        took = f"took {format_seconds(wall.after)} and " if known else ""
        return f"No difference: both {took}lost {table.lost.after} {unit}"
    if known and wall.within_spread and comparison.lost.within_spread:
        return f"Neither runtime nor lost time changed by {NOISE}"
    lost = _lost_clause(comparison.lost, table.lost, unit, short=known and wall.within_spread)
    text = f"{_runtime_clause(wall)}; {lost}" if known else lost
    return shorten(upper_first(text), MAX_HEADLINE)


def _runtime_clause(wall: Difference[float]) -> str:
    if abs(wall.rise) < SAME_RUNTIME:
        return f"as fast as before: {_before_after(wall)}"
    text = f"{rise_size(wall.rise)} {'slower' if wall.change > 0 else 'faster'}".strip()
    return f"{text}, not {NOISE}" if wall.within_spread else f"{text}: {_before_after(wall)}"


def _lost_clause(lost: Difference[int], row: ComparisonRow, unit: str, *, short: bool) -> str:
    if row.before == row.after:
        return "lost time is the same" + ("" if short else f", {row.after} {unit}")
    if lost.within_spread:
        return f"lost time {'rose' if lost.change > 0 else 'fell'} no {NOISE}"
    return _rise_clause(lost) + ("" if short else f", {row.before} -> {row.after} {unit}")


def _rise_clause(lost: Difference[int]) -> str:
    size = rise_size(lost.rise)
    return f"lost time {'rose' if lost.change > 0 else 'fell'}{f' by {size}' if size else ''}"


def excess(comparison: Comparison) -> str:
    """Rise of lost time, as a clause of an error."""
    lost = comparison.lost
    noise = f" (not {NOISE})" if lost.within_spread else ""
    return f"{_rise_clause(lost)}, from {lost.before / 1e9:.3f} to {lost.after / 1e9:.3f} thread-seconds{noise}"


def peak_excess(comparison: Comparison) -> str:
    """Rise of the largest peak of a worker's memory, as a clause of an error."""
    peak = comparison.peaks["worker"]
    noise = f" (not {NOISE})" if peak.within_spread else ""
    sizes = f"from {format_bytes(peak.before)} to {format_bytes(peak.after)}"
    return f"the peak of a worker's memory rose by {rise_size(peak.rise)}, {sizes}{noise}"


def format_rise(rise: float) -> str:
    """Relative change: ``"+12 %"``, ``"-3.4 %"``; empty outside :data:`SMALLEST_RISE` and :data:`LARGEST_RISE`."""
    size = rise_size(rise)
    return f"{'+' if rise > 0 else '-'}{size}" if size else ""


def rise_size(rise: float) -> str:
    """Size of a relative change without its sign; may be empty."""
    size = abs(rise)
    if not SMALLEST_RISE <= size <= LARGEST_RISE:
        return ""
    return format_share(size) if size <= 1 else f"{100 * size:.0f} %"


def caveats(comparison: Comparison) -> tuple[str, ...]:
    """Reasons why the sides may not be comparable, a sentence each."""
    return (
        *_other_size(comparison),
        *_other_work(comparison),
        *_other_causes(comparison),
        *_unknown(comparison, Bucket.UNMEASURED, WORTH_A_ROW, "was not measured: there is no comparing that part"),
        *_unknown(comparison, Bucket.RUNNING, WORTH_SAYING, "was in tasks that had not ended"),
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
    useful = comparison.useful
    if useful.change and not useful.within_spread and abs(useful.rise) >= WORTH_SAYING:
        yield (
            "useful time differs: the runs did not do the same work, or not at the same speed, "
            "and lost time may have changed with it"
        )


def _other_causes(comparison: Comparison) -> Iterator[str]:
    """Caveat if only one side knows why threads waited: on the other, libraries' own work counts as lost."""
    unknown = [
        side
        for side, runs in comparison.sides.items()
        if any(run.breakdown.ns(Bucket.THREAD_NONCPU) and not run.waiting for run in runs)
    ]
    if len(unknown) == 1:
        (side,) = unknown
        yield f"why threads waited is not known {side}: what libraries' threads computed is among thread-noncpu there"


def _unknown(comparison: Comparison, bucket: Bucket, from_share: float, text: str) -> Iterator[str]:
    for side, runs in comparison.sides.items():
        wholes = [run.breakdown for run in runs]
        shares = [whole.ns(bucket) / there for whole in wholes if (there := whole.total_ns - whole.ns(Bucket.NO_WORK))]
        if shares and max(shares) >= from_share:
            yield f"{side}, {'up to ' if len(shares) > 1 else ''}{format_share(max(shares))} of the time {text}"


def _other_price(comparison: Comparison) -> Iterator[str]:
    prices = {run.price_per_worker_hour for run in comparison.runs}
    if len(prices) > 1:
        text = ", ".join("none" if price is None else f"{price:g}" for price in sorted(prices, key=lambda p: p or -1.0))
        yield f"the price of a worker's hour is not the same in all runs: {text}"


def _notes(comparison: Comparison) -> Iterator[str]:
    for side, runs in comparison.sides.items():
        for note in dict.fromkeys(note for run in runs for note in run.notes):
            yield f"{side}: {sentence(note)}"
