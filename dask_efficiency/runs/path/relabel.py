"""Passes over a path that name the time in which an event loop was blocked, and in which there was no worker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.path.kinds import CODES, KINDS, Kind, SegmentRow, Segments, TimeRange, overlaps, relabelled
from dask_efficiency.runs.path.scope import Scope
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import BLOCKED_BY, WorkerChange

#: By process: the kinds of segments whose time is attributed to its event loop while that was blocked. GRAPH_UPDATE is
#: in none of them, because taking a graph in is itself what blocks the scheduler.
_BY_SCHEDULER = {Kind.REPORT, Kind.SCHEDULER_TO_WORKER, Kind.SCHEDULER_QUEUE, Kind.RESULT_GATHER}
_BY_WORKER = {Kind.REPORT, Kind.SCHEDULER_TO_WORKER, Kind.TRANSFER, Kind.TRANSFER_QUEUE, Kind.READY_WAIT}
_BY_SENDER = {Kind.TRANSFER}
#: Kinds that keep the time in which an event loop moved data, no matter whose data it was.
_MOVES = {Kind.TRANSFER, Kind.TRANSFER_QUEUE, Kind.RESULT_GATHER}


def relabel(segments: Segments, trace: RunTrace) -> Segments:
    """Cut segments up where an event loop was blocked; they tile the makespan as before.

    The time in which a message lies unread in a busy scheduler becomes ``scheduler-transition``. In a busy worker it
    becomes ``worker-loop``; or ``spill`` or ``unspill`` while that worker writes to disk or reads from it, for any task
    or because its memory is full. A transfer stays a transfer while the loop itself reads or writes data.
    """
    table = trace.blocked
    blocked = _by_process(table.worker, table.start, table.stop)
    # It is unknown when the loop moved data within an interval: its beginning is counted.
    otherwise = _by_process(table.worker, table.start + np.maximum(table.moving_ns, 0), table.stop)
    disk = {
        Kind.SPILL: _disk(trace, "spill", "spill_ns", "ended"),
        Kind.UNSPILL: _disk(trace, "unspill", "unspill_ns", "submitted"),
    }
    if not blocked and not any(disk.values()):
        return segments
    rows: list[SegmentRow] = []
    for row in segments.rows():
        kind, worker, sender = KINDS[row[0]], row[5], row[6]
        when = otherwise if kind in _MOVES else blocked
        # A segment's MISSING worker is no worker, while a blocked row's MISSING worker is the scheduler.
        cuts = [(when.get(worker), kind, Kind.WORKER_LOOP, worker)] if kind in _BY_WORKER and worker != MISSING else []
        if kind in _BY_SENDER and sender != MISSING:
            cuts.append((when.get(sender), kind, Kind.WORKER_LOOP, sender))
        if kind in _BY_SCHEDULER:
            cuts.append((when.get(MISSING), kind, Kind.SCHEDULER_TRANSITION, worker))
        parts = [row]
        for intervals, of, to, blamed in cuts:
            parts = [cut for part in parts for cut in _cut(part, intervals, of, to, blamed)]
        for name, by_worker in disk.items():
            loops = ((part, by_worker.get(part[5]), Kind.WORKER_LOOP, name, part[5]) for part in parts)
            parts = [cut for loop in loops for cut in _cut(*loop)]
        rows += parts
    return Segments.from_rows(rows)


def _cut(
    row: SegmentRow, intervals: Sequence[TimeRange] | None, kind: Kind, to: Kind, worker: int
) -> Iterable[SegmentRow]:
    """Give a row of one kind another kind, and worker, within some intervals."""
    return relabelled(row, intervals, to, worker=worker) if intervals and row[0] == CODES[kind] else (row,)


def loop_causes(segments: Segments, trace: RunTrace) -> dict[str, float]:
    """Seconds of ``worker-loop`` by what kept the event loop busy, largest first, as far as that was recorded."""
    blocked = trace.blocked
    by_cause: dict[str, int] = {}
    rows = segments.take(segments.kind == CODES[Kind.WORKER_LOOP])
    for number, cause in enumerate(BLOCKED_BY):
        mine = blocked.take(blocked.cause == number)
        intervals = _by_process(mine.worker, mine.start, mine.stop)
        for _, start, stop, _, _, worker, _ in rows.rows():
            for first, last in overlaps(intervals.get(worker, []), start, stop):
                by_cause[cause] = by_cause.get(cause, 0) + last - first
    return {cause: ns / 1e9 for cause, ns in sorted(by_cause.items(), key=lambda item: -item[1])}


def _by_process(worker: NDArray[Any], start: NDArray[Any], stop: NDArray[Any]) -> dict[int, list[TimeRange]]:
    """Sort and merge the intervals of each worker."""
    by_process: dict[int, list[TimeRange]] = {}
    for process, first, last in sorted(zip(worker.tolist(), start.tolist(), stop.tolist(), strict=True)):
        intervals = by_process.setdefault(process, [])
        if intervals and first <= intervals[-1][1]:
            intervals[-1] = (intervals[-1][0], max(last, intervals[-1][1]))
        elif first < last:
            intervals.append((first, last))
    return by_process


def _disk(trace: RunTrace, cause: str, duration: str, until: str) -> dict[int, list[TimeRange]]:
    """Find the intervals in which each worker's event loop used the disk, from the loop's and its tasks' records."""
    runs, blocked = trace.runs, trace.blocked
    seen = blocked.take(blocked.cause == BLOCKED_BY.index(cause))
    took, stop = getattr(runs, duration), getattr(runs, until)
    rows = np.flatnonzero((took > 0) & (stop != MISSING))
    start = np.append(seen.start, stop[rows] - took[rows])
    return _by_process(np.append(seen.worker, runs.worker[rows]), start, np.append(seen.stop, stop[rows]))


#: Kinds that need no worker, and the time that was lost with one.
_NEEDS_NO_WORKER = {Kind.CLIENT_SUBMIT, Kind.RESULT_GATHER, Kind.LOST_WORKER}


def presence(trace: RunTrace, scope: Scope) -> list[list[TimeRange]]:
    """Find the intervals in which each worker was present; from the scope's start if its joining was not recorded."""
    here: list[int | None] = [scope.start] * len(trace.workers)
    present: list[list[TimeRange]] = [[] for _ in trace.workers]
    events = trace.worker_events
    for at, worker, change in zip(events.at.tolist(), events.worker.tolist(), events.change.tolist(), strict=True):
        if worker == MISSING:
            continue
        at = min(max(at, scope.start), scope.stop)
        since = here[worker]
        if change == WorkerChange.JOINED:
            here[worker] = at
        elif change == WorkerChange.LEFT and since is not None:
            present[worker].append((since, at))
            here[worker] = None
    for worker, since in enumerate(here):
        if since is not None:
            present[worker].append((since, scope.stop))
    return present


def without_workers(trace: RunTrace, scope: Scope) -> list[TimeRange]:
    """Find the intervals of a scope without any worker, in time order."""
    gaps, covered = [], scope.start
    for start, stop in sorted(interval for intervals in presence(trace, scope) for interval in intervals):
        if start > covered:
            gaps.append((covered, start))
        covered = max(covered, stop)
    return [*gaps, (covered, scope.stop)] if covered < scope.stop else gaps


def slots(trace: RunTrace, scope: Scope) -> float:
    """Mean number of slots while there was any worker in a scope; 0.0 if there never was one."""
    if scope.stop <= scope.start:
        return float(sum(worker.nthreads for worker in trace.workers))
    with_workers = scope.stop - scope.start - sum(stop - start for start, stop in without_workers(trace, scope))
    present = zip(trace.workers, presence(trace, scope), strict=True)
    held = sum((stop - start) * worker.nthreads for worker, intervals in present for start, stop in intervals)
    return held / with_workers if with_workers else 0.0


def name_without_workers(segments: Segments, trace: RunTrace, scope: Scope) -> Segments:
    """Rename the parts of segments in which work waited and there was no worker to :attr:`Kind.NO_WORKERS`."""
    gaps = without_workers(trace, scope)
    if not gaps:
        return segments
    parts: list[SegmentRow] = []
    for row in segments.rows():
        parts += [row] if KINDS[row[0]] in _NEEDS_NO_WORKER else relabelled(row, gaps, Kind.NO_WORKERS)
    return Segments.from_rows(parts)
