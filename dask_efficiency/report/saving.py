"""Saving: how long the recorded run would have taken without its largest loss, by replays."""

from __future__ import annotations

from collections.abc import Mapping

from dask_efficiency.buckets import GOOD, Breakdown, Bucket
from dask_efficiency.causes import name_of
from dask_efficiency.critical_paths.path import PathValues
from dask_efficiency.critical_paths.scope import Question
from dask_efficiency.critical_paths.speedups import replays, speedups
from dask_efficiency.replay.changes import Changes
from dask_efficiency.report.largest import Largest, largest_loss
from dask_efficiency.report.model import ReportValues
from dask_efficiency.trace.errors import EmptyTraceError

#: The replays of more runs are not worth waiting for as a report is made: these take some 2 s.
MAX_RUNS = 20_000

#: Losses that are the time of one part of a replay.
PARTS: dict[tuple[str, str], str] = {
    (Bucket.SPILL, ""): "spill",
    (Bucket.WAITING_ON_DATA, ""): "transfer",
    (Bucket.IDLE, "scheduler"): "scheduler",
}

#: What goes away with more cores only, so that those that are there set no bound.
NEEDS_CORES = ("core", "throttled")


def saving(report: ReportValues) -> float | None:
    """How long the recorded run would have taken without its largest loss.

    Tasks take as much less time as the cause has of the time that those of their prefix were in their threads; what is
    no task's takes no time.

    Parameters
    ----------
    report
        With its trace.

    Returns
    -------
    float or None
        Seconds, as ``report.path.makespan_seconds``, and no less than the useful work takes on the cores that are
        there. None where there is no trace or it is too long, where nothing says by how much less time tasks would have
        taken, and where what is saved is not above what replays differ by.
    """
    largest = largest_loss(report)
    if report.trace is None or len(report.trace.runs) > MAX_RUNS or largest is None:
        return None
    changed = _without(report, largest)
    if changed is None:
        return None
    try:
        path = PathValues.of(report.trace, Question())
    except EmptyTraceError:
        return None
    (found,) = speedups(path.makespan_with, {"": changed}, replays(len(report.trace.runs)))
    if not found.saved_seconds > 0 or found.saved_seconds < 2 * found.error_seconds:  # NaN after a single replay
        return None
    least = 0.0 if largest.cause in NEEDS_CORES else report.ideal_bounds.get("cores", 0.0)
    return max(path.makespan_seconds - found.saved_seconds, min(least, path.makespan_seconds))


def _without(report: ReportValues, largest: Largest) -> Changes | None:
    """What a replay is to change; None where it cannot."""
    if part := PARTS.get((largest.bucket, largest.cause)):
        return Changes(parts={part: 0.0})
    if largest.bucket is not Bucket.THREAD_NONCPU or not largest.cause:
        return None
    waited = name_of(largest.bucket, largest.cause)
    shares = {
        prefix: _share(report.by_prefix, prefix, row.get(waited, 0)) for prefix, row in report.causes_by_prefix.items()
    }
    factors = {prefix: 1.0 - share for prefix, share in shares.items() if share}
    return Changes(prefixes=factors) if factors else None


def _share(by_prefix: Mapping[str, Breakdown], prefix: str, ns: int) -> float:
    """The part of the time in their threads that tasks of a prefix lost to a cause, in [0, 1]."""
    in_threads = by_prefix.get(prefix, Breakdown()).ns(*GOOD, Bucket.THREAD_NONCPU)
    return min(ns / in_threads, 1.0) if in_threads else 0.0
