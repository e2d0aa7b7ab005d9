"""Causes of each run of a task, read from the transitions and the graph, and the constraints that follow from them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Int64
from dask_efficiency.runs.trace.clients import ClientLog
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import STATES, RunOutcome, Runs

_PROCESSING = STATES.index("processing")
_QUEUED = STATES.index("queued")
_NO_WORKER = STATES.index("no-worker")


class RunsByTask:
    """Runs of each task, in the order in which they were assigned."""

    def __init__(self, runs: Runs, tasks: int) -> None:
        self._runs = runs
        valid = np.flatnonzero((runs.task >= 0) & (runs.task < tasks))
        self._rows = valid[np.argsort(runs.task[valid], kind="stable")]
        self._starts = np.searchsorted(runs.task[self._rows], np.arange(tasks + 1))
        #: The only run of a task; MISSING if there is none, or more than one.
        first = np.append(self._rows, MISSING)[self._starts[:-1]]
        self.only: Int64 = np.where(np.diff(self._starts) == 1, first, MISSING)

    def of(self, task: int) -> list[int]:
        """List the positions of a task's runs."""
        known = 0 <= task < len(self.only)
        return self._rows[self._starts[task] : self._starts[task + 1]].tolist() if known else []

    def before(self, run: int) -> int:
        """Find the run of the same task before this one; MISSING if this is the first."""
        runs = self.of(int(self._runs.task[run]))
        position = runs.index(run) if run in runs else 0
        return runs[position - 1] if position else MISSING

    def latest(self, tasks: NDArray[np.integer], column: Int64, at: Int64) -> Int64:
        """Find each task's last run whose ``column`` is no later than ``at``, or else its first run that has one."""
        found = np.full(len(tasks), MISSING, np.int64)
        inside = (tasks >= 0) & (tasks < len(self.only))
        found[inside] = self.only[tasks[inside]]
        several = np.flatnonzero(inside & (found == MISSING))
        found[(found != MISSING) & (column[found] == MISSING)] = MISSING
        for i in several.tolist():
            runs = [run for run in self.of(int(tasks[i])) if column[run] != MISSING]
            if runs:
                times = [int(column[run]) for run in runs]
                found[i] = runs[max(bisect_right(times, int(at[i])) - 1, 0)]
        return found


def rows_by_value(column: NDArray[np.integer]) -> dict[int, list[int]]:
    """Positions of each value of a column but MISSING, in order."""
    found: dict[int, list[int]] = {}
    known = np.flatnonzero(column != MISSING)
    for row, value in zip(known.tolist(), column[known].tolist(), strict=True):
        found.setdefault(value, []).append(row)
    return found


class RunCauses:
    """Causes of each run; all arrays are by run, and positions are MISSING where nothing is known.

    Rows that contradict each other lead to missing causes, not to errors.
    """

    def __init__(self, trace: RunTrace) -> None:
        runs, transitions = trace.runs, trace.transitions
        tasks = len(trace.tasks)
        self.by_task = RunsByTask(runs, tasks)
        #: The transition that assigned the run.
        self.transition = _assigning_transitions(trace, self.by_task)
        #: By stimulus: its first transition.
        self.first = np.full(len(trace.stimuli), MISSING, np.int64)
        known = np.flatnonzero((transitions.stimulus >= 0) & (transitions.stimulus < len(trace.stimuli)))
        self.first[transitions.stimulus[known][::-1]] = known[::-1]

        found = self.transition != MISSING
        row = self.transition[found]
        stimulus = np.where(transitions.stimulus[row] < len(trace.stimuli), transitions.stimulus[row], MISSING)
        start = np.full(len(runs), MISSING, np.int64)
        start[found] = transitions.start[row]
        #: True if it waited on the scheduler for a worker with room.
        self.queued: Bool = (start == _QUEUED) | (start == _NO_WORKER)
        #: The graph whose arrival assigned it.
        self.graph = np.full(len(runs), MISSING, np.int64)
        #: The run whose end, good or bad, assigned it.
        self.run = np.full(len(runs), MISSING, np.int64)
        if len(row) and len(trace.stimuli):
            graph = np.where(stimulus >= 0, trace.stimuli.graph[stimulus], MISSING)
            self.graph[found] = np.where((graph >= 0) & (graph < len(trace.graphs)), graph, MISSING)
            first = np.where(stimulus >= 0, self.first[stimulus], MISSING)
            ended = (first >= 0) & (transitions.start[first] == _PROCESSING) & (graph == MISSING)
            at = np.where(ended, transitions.at[first], MISSING)
            task = np.where(ended, transitions.task[first], MISSING)
            self.run[found] = self.by_task.latest(task, runs.assigned, at - 1)
            own = self.run == np.arange(len(runs))
            self.run[own] = MISSING

    def inputs(self, trace: RunTrace) -> tuple[Int64, Int64]:
        """List pairs of the run that made an input, and the run that needed it."""
        runs, starts = trace.runs, trace.dependency_starts
        inside = np.flatnonzero((runs.task >= 0) & (runs.task < len(trace.tasks)))
        first, last = starts[runs.task[inside]], starts[runs.task[inside] + 1]
        counts = last - first
        needing = np.repeat(inside, counts)
        offsets = np.arange(len(needing)) - np.repeat(np.cumsum(counts) - counts, counts)
        needed = trace.dependencies[np.repeat(first, counts) + offsets]
        done = np.where(runs.outcome == RunOutcome.SUCCEEDED, runs.reported, MISSING)
        making = self.by_task.latest(needed, done, runs.assigned[needing])
        known = making != MISSING
        return making[known], needing[known]


def _assigning_transitions(trace: RunTrace, by_task: RunsByTask) -> Int64:
    """By run: its transition to ``processing``. A stolen task's second run has none."""
    runs, transitions = trace.runs, trace.transitions
    tasks = len(trace.tasks)
    given = np.flatnonzero((transitions.finish == _PROCESSING) & (transitions.task >= 0) & (transitions.task < tasks))
    of_task = np.full(tasks, MISSING, np.int64)
    of_task[transitions.task[given]] = given
    counts = np.bincount(transitions.task[given], minlength=tasks)
    row = np.full(len(runs), MISSING, np.int64)
    inside = (runs.task >= 0) & (runs.task < tasks)
    simple = inside.copy()
    simple[inside] = (by_task.only[runs.task[inside]] != MISSING) & (counts[runs.task[inside]] == 1)
    row[simple] = of_task[runs.task[simple]]

    left = np.flatnonzero(inside & ~simple)
    given = given[np.isin(transitions.task[given], runs.task[left])]
    several = rows_by_value(transitions.task[given])
    for run in left.tolist():
        candidates = given[several.get(int(runs.task[run]), [])]
        times = transitions.at[candidates].tolist()
        found = bisect_right(times, int(runs.assigned[run])) - 1
        earlier = by_task.before(run)
        # A transition no later than the assignment of the run before belongs to that one.
        if found >= 0 and (earlier == MISSING or times[found] > runs.assigned[earlier]):
            row[run] = candidates[found]
    return row


@dataclass(frozen=True, slots=True)
class Constraints:
    """Events before which no run can be assigned, and the time from the last of them until it was."""

    #: Pairs of runs: the first must be reported before the second can be assigned.
    source: Int64
    target: Int64
    #: By run: the earlier run of the same task that it was stolen from; MISSING where it was not stolen.
    stolen_from: Int64
    #: By run: the graph whose arrival assigned it.
    graph: Int64
    #: By graph: the run whose result its client waited for before sending it.
    waited_for: Int64
    #: By graph: the time from that result until the graph was received, in nanoseconds.
    thinking: Int64
    #: By run: the run whose end took it from the scheduler's queue; MISSING where it was not queued.
    opener: Int64
    #: By run: nanoseconds from the last of all these until it was assigned.
    lag: Int64


def constraints(trace: RunTrace, causes: RunCauses, inputs: tuple[Int64, Int64]) -> Constraints:
    """Derive the constraints from the causes of each run."""
    runs, graphs = trace.runs, trace.graphs
    opener = np.where(causes.queued, causes.run, MISSING)
    other = np.flatnonzero((causes.run != MISSING) & ~causes.queued)
    source = np.concatenate([inputs[0], causes.run[other]])
    target = np.concatenate([inputs[1], other])
    # A cause after its effect, as a jumping clock makes it, is no constraint.
    sound = (runs.reported[source] != MISSING) & (runs.reported[source] <= runs.assigned[target])
    source, target = source[sound], target[sound]
    in_time = (runs.reported[opener] != MISSING) & (runs.reported[opener] <= runs.assigned)
    opener[~in_time] = MISSING

    last = np.full(len(runs), MISSING, np.int64)
    np.maximum.at(last, target, runs.reported[source])
    last = np.maximum(last, np.where(opener != MISSING, runs.reported[opener], MISSING))
    graph = np.where(opener == MISSING, causes.graph, MISSING)
    if len(graphs):
        received = graphs.received[graph]
        graph = np.where((graph != MISSING) & (received <= runs.assigned), graph, MISSING)
        last = np.maximum(last, np.where(graph != MISSING, received, MISSING))
    stolen_from = np.full(len(runs), MISSING, np.int64)
    for run in np.flatnonzero((causes.transition == MISSING) & (last == MISSING)).tolist():
        before = causes.by_task.before(run)
        if before != MISSING and runs.assigned[before] <= runs.assigned[run]:
            stolen_from[run] = before
            last[run] = runs.assigned[before]
    # A run without any known cause is assigned at its recorded time.
    lag = np.where(last != MISSING, runs.assigned - last, 0)
    waited_for, thinking = _client_waits(trace)
    return Constraints(source, target, stolen_from, graph, waited_for, thinking, opener, np.maximum(lag, 0))


def _client_waits(trace: RunTrace) -> tuple[Int64, Int64]:
    """By graph: the run whose result its client waited for before, and the time until the graph came."""
    clients = ClientLog(trace)
    waited_for = np.full(len(trace.graphs), MISSING, np.int64)
    thinking = np.zeros(len(trace.graphs), np.int64)
    columns = (trace.graphs.client.tolist(), trace.graphs.received.tolist())
    for graph, (client, received) in enumerate(zip(*columns, strict=True)):
        _, run = clients.back(client, received, trace.start)
        if run != MISSING:
            waited_for[graph] = run
            thinking[graph] = received - int(trace.runs.reported[run])
    return waited_for, thinking
