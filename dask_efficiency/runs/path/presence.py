"""Presence: the intervals in which each worker of a trace was present, the slots, and the gaps without any worker."""

from __future__ import annotations

from dask_efficiency.runs.path.kinds import KINDS, Kind
from dask_efficiency.runs.path.scope import Scope
from dask_efficiency.runs.path.segments import Interval, Row, Segments, relabelled
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import WorkerChange

#: Kinds that need no worker, and the time that was lost with one.
_NEEDS_NO_WORKER = {Kind.CLIENT_SUBMIT, Kind.RESULT_GATHER, Kind.LOST_WORKER}


def presence(trace: RunTrace, scope: Scope) -> list[list[Interval]]:
    """Find the intervals in which each worker was present in a scope; from its start, if no joining was recorded."""
    here: list[int | None] = [scope.start] * len(trace.workers)
    found: list[list[Interval]] = [[] for _ in trace.workers]
    events = trace.worker_events
    for at, worker, change in zip(events.at.tolist(), events.worker.tolist(), events.change.tolist(), strict=True):
        if not 0 <= worker < len(here):
            continue
        at = min(max(at, scope.start), scope.stop)
        since = here[worker]
        if change == WorkerChange.JOINED:
            here[worker] = at
        elif change == WorkerChange.LEFT and since is not None:
            found[worker].append((since, at))
            here[worker] = None
    for worker, since in enumerate(here):
        if since is not None:
            found[worker].append((since, scope.stop))
    return found


def without_workers(trace: RunTrace, scope: Scope) -> list[Interval]:
    """The stretches of a scope in which there was no worker, in time order."""
    gaps, covered = [], scope.start
    for start, stop in sorted(interval for intervals in presence(trace, scope) for interval in intervals):
        if start > covered:
            gaps.append((covered, start))
        covered = max(covered, stop)
    return [*gaps, (covered, scope.stop)] if covered < scope.stop else gaps


def slots(trace: RunTrace, scope: Scope) -> float:
    """Mean number of slots while there was any worker in a scope; 0.0 where there never was one."""
    if scope.stop <= scope.start:
        return float(sum(worker.nthreads for worker in trace.workers))
    there = scope.stop - scope.start - sum(stop - start for start, stop in without_workers(trace, scope))
    held = sum(
        (stop - start) * worker.nthreads
        for worker, intervals in zip(trace.workers, presence(trace, scope), strict=True)
        for start, stop in intervals
    )
    return held / there if there else 0.0


def name_without_workers(segments: Segments, trace: RunTrace, scope: Scope) -> Segments:
    """Rename the parts of segments in which work waited and there was no worker to :attr:`Kind.NO_WORKERS`."""
    gaps = without_workers(trace, scope)
    if not gaps:
        return segments
    parts: list[Row] = []
    for row in segments.rows():
        parts += [row] if KINDS[row[0]] in _NEEDS_NO_WORKER else relabelled(row, gaps, Kind.NO_WORKERS)
    return Segments.from_rows(parts)
