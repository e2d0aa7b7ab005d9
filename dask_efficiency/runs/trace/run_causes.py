"""Causes of each run of a task, read from the transitions and the graph, and the constraints that follow from them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Int64
from dask_efficiency.runs.trace.clients import ClientLog
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import STATES, RunOutcome, Runs, values_at

_PROCESSING, _QUEUED, _NO_WORKER = map(STATES.index, ("processing", "queued", "no-worker"))


class RunsByTask:
    """Runs of each task, in the order in which they were assigned."""

    def __init__(self, runs: Runs, tasks: int) -> None:
        self._runs = runs
        known = np.flatnonzero(runs.task != MISSING)
        self._rows = known[np.argsort(runs.task[known], kind="stable")]
        self._starts = np.searchsorted(runs.task[self._rows], np.arange(tasks + 1))
        #: By task: its only run; MISSING if there is none, or more than one, and in one more row for the task MISSING.
        counts = np.diff(self._starts, append=self._starts[-1])
        self.only: Int64 = np.where(counts == 1, np.append(self._rows, MISSING)[self._starts], MISSING)

    def of(self, task: int) -> list[int]:
        """List the positions of a task's runs."""
        return self._rows[self._starts[task] : self._starts[task + 1]].tolist() if task != MISSING else []

    def before(self, run: int) -> int:
        """Find the run of the same task before this one; MISSING if this is the first."""
        runs = self.of(int(self._runs.task[run]))
        return runs[runs.index(run) - 1] if runs and runs[0] != run else MISSING

    def latest(self, tasks: NDArray[np.integer], column: Int64, at: Int64) -> Int64:
        """Find each task's last run whose ``column`` is no later than ``at``, or else its first run that has one."""
        latest: Int64 = self.only[tasks]
        several = np.flatnonzero((tasks != MISSING) & (latest == MISSING))
        latest[(latest != MISSING) & (column[latest] == MISSING)] = MISSING
        for i in several.tolist():
            runs = [run for run in self.of(int(tasks[i])) if column[run] != MISSING]
            if runs:
                latest[i] = runs[max(bisect_right(runs, at[i], key=column.__getitem__) - 1, 0)]
        return latest


def rows_by_value(column: NDArray[np.integer]) -> dict[int, list[int]]:
    """Positions of each value of a column but MISSING, in order."""
    rows: dict[int, list[int]] = {}
    known = np.flatnonzero(column != MISSING)
    for row, value in zip(known.tolist(), column[known].tolist(), strict=True):
        rows.setdefault(value, []).append(row)
    return rows


class RunCauses:
    """Causes of each run; all arrays are by run, and positions are MISSING where nothing is known.

    Rows that contradict each other lead to missing causes, not to errors.
    """

    def __init__(self, trace: RunTrace) -> None:
        runs, transitions = trace.runs, trace.transitions
        self.by_task = RunsByTask(runs, len(trace.tasks))
        #: The transition that assigned the run.
        self.transition = _assigning_transitions(trace, self.by_task)
        #: By stimulus: its first transition.
        self.first = np.full(len(trace.stimuli), MISSING, np.int64)
        known = np.flatnonzero(transitions.stimulus != MISSING)
        self.first[transitions.stimulus[known][::-1]] = known[::-1]
        #: True if it waited on the scheduler for a worker with room.
        self.queued: Bool = np.isin(values_at(transitions.start, self.transition), (_QUEUED, _NO_WORKER))
        stimulus = values_at(transitions.stimulus, self.transition)
        #: The graph whose arrival assigned it.
        self.graph = values_at(trace.stimuli.graph, stimulus)
        first = values_at(self.first, stimulus)
        ended = (values_at(transitions.start, first) == _PROCESSING) & (self.graph == MISSING)
        cause = np.where(ended, first, MISSING)
        at, task = values_at(transitions.at, cause), values_at(transitions.task, cause)
        #: The run whose end, good or bad, assigned it.
        self.run = self.by_task.latest(task, runs.assigned, at - 1)
        self.run[self.run == np.arange(len(runs))] = MISSING

    def inputs(self, trace: RunTrace) -> tuple[Int64, Int64]:
        """List pairs of the run that made an input, and the run that needed it."""
        runs, starts = trace.runs, trace.dependency_starts
        known = np.flatnonzero(runs.task != MISSING)
        first, counts = starts[runs.task[known]], np.diff(starts)[runs.task[known]]
        needing = np.repeat(known, counts)
        needed = trace.dependencies[np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(len(needing))]
        done = np.where(runs.outcome == RunOutcome.SUCCEEDED, runs.reported, MISSING)
        making = self.by_task.latest(needed, done, runs.assigned[needing])
        known = making != MISSING
        return making[known], needing[known]


def _assigning_transitions(trace: RunTrace, by_task: RunsByTask) -> Int64:
    """By run: its transition to ``processing``. A stolen task's second run has none."""
    runs, transitions = trace.runs, trace.transitions
    given = np.flatnonzero((transitions.finish == _PROCESSING) & (transitions.task != MISSING))
    of_task = np.full(len(by_task.only), MISSING, np.int64)
    of_task[transitions.task[given]] = given
    counts = np.bincount(transitions.task[given], minlength=len(of_task))
    simple = (by_task.only[runs.task] != MISSING) & (counts[runs.task] == 1)
    row = np.where(simple, of_task[runs.task], MISSING)
    left = np.flatnonzero((runs.task != MISSING) & ~simple)
    given = given[np.isin(transitions.task[given], runs.task[left])]
    several = rows_by_value(transitions.task[given])
    for run in left.tolist():
        candidates = given[several.get(int(runs.task[run]), [])]
        times = transitions.at[candidates].tolist()
        place = bisect_right(times, runs.assigned[run]) - 1
        earlier = by_task.before(run)
        # A transition no later than the assignment of the run before belongs to that one.
        if place >= 0 and (earlier == MISSING or times[place] > runs.assigned[earlier]):
            row[run] = candidates[place]
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
    graph = np.where(values_at(graphs.received, graph) <= runs.assigned, graph, MISSING)
    last = np.maximum(last, values_at(graphs.received, graph))
    stolen_from = np.full(len(runs), MISSING, np.int64)
    for run in np.flatnonzero((causes.transition == MISSING) & (last == MISSING)).tolist():
        before = causes.by_task.before(run)
        if before != MISSING and runs.assigned[before] <= runs.assigned[run]:
            stolen_from[run] = before
            last[run] = runs.assigned[before]
    # A run without any known cause is assigned at its recorded time.
    lag = np.where(last != MISSING, runs.assigned - last, 0)
    waited_for = client_waits(trace)
    thinking = np.where(waited_for != MISSING, graphs.received - values_at(runs.reported, waited_for), 0)
    return Constraints(source, target, stolen_from, graph, waited_for, thinking, opener, np.maximum(lag, 0))


def client_waits(trace: RunTrace) -> Int64:
    """By graph: the run whose result its client waited for before; MISSING where it waited for none."""
    clients = ClientLog(trace)
    sent = zip(trace.graphs.client.tolist(), trace.graphs.received.tolist(), strict=True)
    return np.array([clients.back(client, received, trace.start)[1] for client, received in sent], np.int64)
