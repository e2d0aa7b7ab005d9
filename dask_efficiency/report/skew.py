"""Skew: prefixes with uneven tasks, and the cost of their longest task."""

from __future__ import annotations

import math

from dask_efficiency.accounts.buckets import HELD, Bucket, cause_name
from dask_efficiency.accounts.rows import OTHER
from dask_efficiency.accounts.skew import Skew
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.sizes import LARGE_RESULTS
from dask_efficiency.runs.stragglers.long_tail import SHARE_OF_RUN, TIMES_LONGER
from dask_efficiency.show.figures import name_of
from dask_efficiency.show.finding import MOST, Finding
from dask_efficiency.straggler.observations import SIZES_DIFFER
from dask_efficiency.straggler.wording import long_task

#: Tasks from which a median is meaningful. By judgement.
MIN_TASKS = 8
#: Ratio of the maximum to the median from which tasks are uneven. By judgement.
MIN_TIMES = 2.0
#: Share of the work on the cluster by which the longest task must exceed the median to be listed. By judgement.
MIN_SHARE = 0.01
#: Causes of idle time in which tasks were waiting that the idle threads may not, or did not, take.
TIED = ("restricted", "imbalance")


def uneven_times(report: EfficiencyReport) -> dict[str, Skew]:
    """Prefixes whose longest task exceeds the median by enough to matter."""
    least = MIN_SHARE * report.cluster_seconds
    excess = {prefix: one.max_seconds - one.median_seconds for prefix, one in report.skew.items()}
    return {
        prefix: one
        for prefix, one in sorted(_comparable(report), key=lambda item: -excess[item[0]])
        if one.times_longer >= MIN_TIMES and excess[prefix] > 0 and excess[prefix] >= least
    }


def uneven_sizes(report: EfficiencyReport) -> dict[str, Skew]:
    """Prefixes whose largest result exceeds the median by enough to matter."""
    ranked = sorted(_comparable(report), key=lambda item: -item[1].max_bytes)
    return {prefix: one for prefix, one in ranked if one.times_larger >= MIN_TIMES and one.max_bytes >= LARGE_RESULTS}


def long_tasks(report: EfficiencyReport) -> dict[str, Skew]:
    """Prefixes whose longest task took far longer than the others, and a good part of the run.

    Tasks in the long tail of a recorded run are left out.
    """
    recorded = {one.prefix for one in report.long_tail}
    return {
        prefix: one
        for prefix, one in uneven_times(report).items()
        if prefix not in recorded
        and one.times_longer > TIMES_LONGER
        and one.max_seconds >= SHARE_OF_RUN * report.cluster_seconds
    }


def held_up(report: EfficiencyReport) -> dict[str, Skew]:
    """Long tasks that all else waited for, for a good part of the run."""
    least = max(SHARE_OF_RUN * report.cluster_seconds, 1e-9)
    behind = waited_behind(report)
    return {prefix: one for prefix, one in long_tasks(report).items() if one.alone_seconds >= least or prefix in behind}


def waited_behind(report: EfficiencyReport) -> dict[str, Skew]:
    """Long tasks behind which tasks queued that may not run elsewhere, as after a shuffle, while threads were idle.

    The other threads were idle for most of the time by which such a task exceeds its like.
    """
    causes = report.causes_ns(Bucket.IDLE)
    tied = sum(causes.get(cause, 0) for cause in TIED)
    idle = tied + causes.get("parallelism", 0)
    others = 1e9 * max(report.mean_threads - 1.0, 0.0)
    return {
        prefix: one
        for prefix, one in long_tasks(report).items()
        if 0 < MOST * idle < tied and idle > MOST * others * (one.max_seconds - one.median_seconds) > 0
    }


def ran_alone(report: EfficiencyReport) -> Skew | None:
    """Skew of the prefix whose longest task ran alone for most seconds, while threads were free; None if none did."""
    found = max(report.skew.values(), key=lambda one: one.alone_seconds, default=None)
    return found if found is not None and found.alone_seconds > 0 else None


def longest_slept(report: EfficiencyReport) -> bool:
    """True if tasks like the one that ran alone, for a good part of the run, slept for most of their time."""
    alone = ran_alone(report)
    prefix = next((prefix for prefix, one in report.skew.items() if one is alone), "")
    row = report.by_prefix.get(prefix)
    slept = report.causes_by_prefix.get(prefix, {}).get(cause_name(Bucket.THREAD_NONCPU, "sleep"), 0)
    if alone is None or row is None or alone.alone_seconds < SHARE_OF_RUN * report.cluster_seconds:
        return False
    return slept > MOST * row.ns(*HELD)


def median_seconds(report: EfficiencyReport) -> float:
    """Seconds that half of the tasks took at most, by the medians of prefixes; NaN without any."""
    count, half = 0, sum(one.count for one in report.skew.values()) / 2
    for one in sorted(report.skew.values(), key=lambda one: one.median_seconds):
        count += one.count
        if count > half:
            return one.median_seconds
    return math.nan


def ran_in_turn(report: EfficiencyReport, prefix: str) -> bool:
    """True if tasks of a prefix took most of the run, though never two of them at a time."""
    skew = report.skew.get(prefix)
    if skew is None or skew.count < MIN_TASKS or not report.cluster_seconds:
        return False
    took = skew.count * skew.median_seconds
    # Then the other threads were idle.
    idle = report.causes_ns(Bucket.IDLE).get("parallelism", 0) / 1e9
    return MOST * report.cluster_seconds < took <= report.cluster_seconds and (
        idle > MOST * (report.mean_threads - 1.0) * took
    )


def recorded_tasks(report: EfficiencyReport) -> list[Finding]:
    """Findings of the long tail of a recorded run."""
    alone = {one.longest_key: one.alone_seconds for one in report.skew.values()}
    return [one.finding(alone.get(one.key, 0.0)) for one in report.long_tail]


def longest(report: EfficiencyReport, prefix: str) -> Finding:
    """Finding of a prefix's longest task."""
    skew = report.skew[prefix]
    both = skew.longest_key == skew.largest_key and skew.times_larger >= SIZES_DIFFER
    return long_task(
        f"The {'largest' if both else 'longest'} of {skew.count} {name_of(prefix)}",
        skew.max_seconds,
        skew.times_longer,
        times_larger=math.nan if both else input_of(report, skew),
        alone_seconds=skew.alone_seconds,
    )


def larger_input(report: EfficiencyReport, waited_for: str = "") -> float:
    """Ratio of input size to the usual, of the task that took far longer than others of its prefix.

    NaN without such a task, if its input is unknown, or if all waited for tasks of another prefix.
    """
    if report.long_tail:
        recorded = report.long_tail[0]
        known = recorded.median_bytes > 0 and waited_for in ("", recorded.prefix)
        return recorded.times_larger if known else math.nan
    prefix, task = next(iter(held_up(report).items()), ("", None))
    waited_for = "" if prefix in waited_behind(report) else waited_for
    return input_of(report, task) if task is not None and waited_for in ("", prefix) else math.nan


def input_of(report: EfficiencyReport, skew: Skew) -> float:
    """Ratio of input size to the usual of a prefix's longest task, without a trace.

    The input is a far larger result of the same partition, as the end of the keys tells. NaN without one.
    """
    _, tells, partition = skew.longest_key.partition(",")
    found = (
        one.times_larger
        for one in uneven_sizes(report).values()
        if one.largest_key == skew.longest_key or (tells and one.largest_key.endswith(tells + partition))
    )
    return max(found, default=math.nan)


def _comparable(report: EfficiencyReport) -> list[tuple[str, Skew]]:
    """Prefixes with enough tasks; those joined under one name are not alike."""
    return [(prefix, one) for prefix, one in report.skew.items() if one.count >= MIN_TASKS and prefix != OTHER]
