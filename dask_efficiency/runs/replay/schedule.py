"""Schedule of a replay: discrete events that give each run its slot, start and end."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, fields
from heapq import heappop, heappush

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Float64, Int64
from dask_efficiency.runs.replay.durations import Durations, prefix_of_runs
from dask_efficiency.runs.trace.run_causes import Constraints, rows_by_value
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import RunOutcome

#: Kinds of events, in the order in which those of one instant happen.
_FREE, _REPORT, _READY = range(3)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Instants of each run in a replay; MISSING for what never happens."""

    assigned: Int64
    executing: Int64
    start: Int64
    #: Computing time on the worker on which it runs now.
    compute: Int64
    freed: Int64
    reported: Int64
    worker: Int64
    slot: Int64
    #: The run that had its slot before, where it waited for one.
    after: Int64
    #: The run whose end took it out of the scheduler's queue.
    opener: Int64
    #: By graph: when it is received.
    received: Int64


class VirtualCluster:
    """A cluster in virtual time: runs wait for other runs, for a slot, or in the scheduler's queue.

    Runs stay on the workers on which they were recorded, except those that waited in the scheduler's queue: the first
    worker that has room takes the next of them, as with Dask's scheduler. Of the runs that are ready on a worker, the
    one with the smallest priority starts first. ``recorded_times`` and ``changed_times`` are by worker and prefix.
    """

    def __init__(
        self, trace: RunTrace, times: Durations, limits: Constraints, recorded_times: Float64, changed_times: Float64
    ) -> None:
        runs, count = trace.runs, len(trace.runs)
        self._trace, self._limits = trace, limits
        self._recorded_times, self._changed_times = recorded_times, changed_times
        self._prefix = prefix_of_runs(trace).tolist()
        self._lag = limits.lag.tolist()
        self._reach = (times.to_worker + times.fetch + times.before_slot).tolist()
        self._after_slot, self._prepare = times.after_slot.tolist(), times.prepare.tolist()
        self._secede, self._finish, self._report = times.secede.tolist(), times.finish.tolist(), times.report.tolist()
        self._ran, self._done = times.ran.tolist(), times.done.tolist()
        self._recorded_worker = runs.worker.tolist()
        self._lost = set(np.flatnonzero(runs.outcome == RunOutcome.LOST).tolist())
        order = _order(trace)
        self._at_rank, self._rank = order.tolist(), np.argsort(order).tolist()

        never = [MISSING] * count
        self.assigned, self.executing, self.start, self.freed = never[:], never[:], never[:], never[:]
        self.reported, self.slot, self.after, self.opener = never[:], never[:], never[:], never[:]
        self.compute: list[int] = times.compute.tolist()
        self.worker: list[int] = runs.worker.tolist()
        self.received: list[int] = trace.graphs.received.tolist()

        self._events: list[tuple[int, int, int]] = []
        self._latest = never[:]
        self._open = [list(range(max(spec.nthreads, 1))) for spec in trace.workers]
        self._waiting: list[list[int]] = [[] for _ in trace.workers]
        self._prepare_constraints()

    def _prepare_constraints(self) -> None:
        limits, runs, count = self._limits, self._trace.runs, len(self._trace.runs)
        order = np.argsort(limits.source, kind="stable")
        self._targets = limits.target[order].tolist()
        self._first = np.searchsorted(limits.source[order], np.arange(count + 1)).tolist()
        others = [column != MISSING for column in (limits.opener, limits.graph, limits.stolen_from)]
        self._missing = (np.bincount(limits.target, minlength=count) + np.sum(others, axis=0)).tolist()
        queued = np.flatnonzero(limits.opener != MISSING)
        self._queue = deque(queued[np.argsort(runs.assigned[queued], kind="stable")].tolist())
        self._opens = np.bincount(limits.opener[queued], minlength=count).tolist()
        #: As long as every report comes at its recorded time, the queue moves as it was recorded.
        self._recorded_reports = runs.reported.tolist()
        self._as_recorded = True
        self._processing = [0] * len(self._trace.workers)
        self._counted: set[int] = set()
        self._room = room(self._trace, limits.opener)
        self._thieves, self._of_graph = rows_by_value(limits.stolen_from), rows_by_value(limits.graph)
        self._graphs_after = rows_by_value(limits.waited_for)

    def run(self) -> Schedule:
        """Run to the end."""
        for graph, waited_for in enumerate(self._limits.waited_for.tolist()):
            if waited_for == MISSING:
                self._receive(graph, self.received[graph])
        recorded = self._trace.runs.assigned.tolist()
        for run, missing in enumerate(self._missing[:]):
            if not missing and self.assigned[run] == MISSING:
                self._assign(run, recorded[run])
        self._turn()
        for run in np.argsort(self._trace.runs.assigned, kind="stable").tolist():
            # A run that waits for something that never happens is assigned at its recorded time.
            if self.assigned[run] == MISSING:
                self._missing[run] = 0
                self._assign(run, max(recorded[run], self._latest[run]))
                self._turn()
        return Schedule(*(np.array(getattr(self, column.name), np.int64) for column in fields(Schedule)))

    def _turn(self) -> None:
        events = self._events
        while events:
            at, kind, run = heappop(events)
            if kind == _READY:
                self._ready(run, at)
            elif kind == _FREE:
                self._free(run, at)
            else:
                self._reported(run, at)

    def _receive(self, graph: int, at: int) -> None:
        self.received[graph] = at
        for run in self._of_graph.get(graph, ()):
            self._resolve(run, at)

    def _resolve(self, run: int, at: int) -> None:
        """Count down the events that a run waits for, and assign it after the last."""
        if at > self._latest[run]:
            self._latest[run] = at
        self._missing[run] -= 1
        if not self._missing[run]:
            self._assign(run, self._latest[run] + self._lag[run])

    def _assign(self, run: int, at: int) -> None:
        self.assigned[run] = at
        worker = self.worker[run]
        if worker != MISSING and run not in self._counted:
            self._processing[worker] += 1
        if self._ran[run]:
            heappush(self._events, (at + self._reach[run], _READY, run))
        elif self._done[run]:
            runs = self._trace.runs
            reported = int(runs.reported[run])
            # The worker of a lost run dies at the recorded time.
            ends = max(at, reported) if run in self._lost else at + max(reported - int(runs.assigned[run]), 0)
            heappush(self._events, (ends, _REPORT, run))
        for thief in self._thieves.get(run, ()):
            self._resolve(thief, at)

    def _ready(self, run: int, at: int) -> None:
        worker = self.worker[run]
        if worker == MISSING:
            self._execute(run, at, MISSING)
        elif self._open[worker]:
            self._execute(run, at, heappop(self._open[worker]))
        else:
            heappush(self._waiting[worker], self._rank[run])

    def _free(self, run: int, at: int) -> None:
        worker = self.worker[run]
        if worker == MISSING:
            return
        if self._waiting[worker]:
            following = self._at_rank[heappop(self._waiting[worker])]
            self.after[following] = run
            self._execute(following, at + self._after_slot[following], self.slot[run])
        else:
            heappush(self._open[worker], self.slot[run])

    def _execute(self, run: int, at: int, slot: int) -> None:
        self.executing[run], self.slot[run] = at, slot
        start = self.start[run] = at + self._prepare[run]
        worker, before = self.worker[run], self._recorded_worker[run]
        prefix, known = self._prefix[run], worker != MISSING and before != MISSING
        factor = float(self._changed_times[worker, prefix] / self._recorded_times[before, prefix]) if known else 1.0
        if factor != 1.0:
            self.compute[run] = round(self.compute[run] * factor)
            if self._secede[run] != MISSING:
                self._secede[run] = round(self._secede[run] * factor)
        ended = start + self.compute[run] + self._finish[run]
        freed = start + self._secede[run] if self._secede[run] != MISSING else ended
        self.freed[run] = freed
        if self._done[run]:
            heappush(self._events, (freed, _FREE, run))
            heappush(self._events, (ended + self._report[run], _REPORT, run))

    def _reported(self, run: int, at: int) -> None:
        self.reported[run] = at
        for i in range(self._first[run], self._first[run + 1]):
            self._resolve(self._targets[i], at)
        for graph in self._graphs_after.get(run, ()):
            self._receive(graph, at + int(self._limits.thinking[graph]))
        worker = self.worker[run]
        if worker != MISSING:
            self._processing[worker] -= 1
        if at != self._recorded_reports[run]:
            self._as_recorded = False
        if self._as_recorded:
            for _ in range(min(self._opens[run], len(self._queue))):
                self._from_queue(run, self._recorded_worker[self._queue[0]], at)
        elif worker != MISSING and run not in self._lost:
            while self._queue and self._processing[worker] < self._room[worker]:
                self._from_queue(run, worker, at)

    def _from_queue(self, opener: int, worker: int, at: int) -> None:
        following = self._queue.popleft()
        self.opener[following], self.worker[following] = opener, worker
        self._resolve(following, at)
        if self.assigned[following] == MISSING and worker != MISSING:
            # It takes up room on the worker, although it still waits for something else.
            self._processing[worker] += 1
            self._counted.add(following)


def room(trace: RunTrace, opener: Int64) -> list[int]:
    """By worker: tasks that it may have before those in the scheduler's queue have to wait.

    The largest number that it had when a task came from the queue. For a worker that got no task from the queue, that
    of other workers with as many threads.
    """
    runs, workers = trace.runs, len(trace.workers)
    rows = np.flatnonzero(runs.worker != MISSING)
    ended = rows[runs.reported[rows] != MISSING]
    at = np.concatenate([runs.reported[ended], runs.assigned[rows]])
    step = np.repeat([-1, 1], [len(ended), len(rows)])
    worker = np.concatenate([runs.worker[ended], runs.worker[rows]])
    queued = np.concatenate([np.zeros(len(ended), np.bool_), opener[rows] != MISSING])
    order = np.argsort(at, kind="stable")
    observed = []
    for i in range(workers):
        mine = order[worker[order] == i]
        observed.append(int(np.cumsum(step[mine])[queued[mine]].max(initial=0)))
    by_size: dict[int, int] = {}
    for spec, most in zip(trace.workers, observed, strict=True):
        by_size[spec.nthreads] = max(by_size.get(spec.nthreads, spec.nthreads), most)
    return [most or by_size[spec.nthreads] for spec, most in zip(trace.workers, observed, strict=True)]


def _order(trace: RunTrace) -> Int64:
    """Sort runs by priority, and by recorded execution where priorities are equal or unknown."""
    runs, tasks = trace.runs, trace.tasks
    task = np.maximum(runs.task, 0)
    priorities = (tasks.priority_order, tasks.priority_graph, tasks.priority_user)
    columns = [priority[task] for priority in priorities] if len(tasks) else []
    return np.lexsort((runs.assigned, np.where(runs.executing != MISSING, runs.executing, runs.start), *columns))
