"""Overheads of event loops, messages and threads around tasks, as samples of a recorded run."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Int32, Int64
from dask_efficiency.runs.replay.durations import prefix_of_runs
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import BLOCKED_BY, RunOutcome, Runs

#: Nanoseconds from which a blocked loop counts as a cold start: reading a message with a task takes 0.1 ms, importing
#: pandas for it 300 ms and more.
MIN_NS = 50_000_000
#: Nanoseconds between the reading of a message and the loop's next tick: Dask's interval of ticks.
_TURN = 20_000_000
#: Causes of a loop that is blocked by reading a message: data, or its own work; not waiting for a core or the lock.
_READING = (MISSING, BLOCKED_BY.index("computing"), BLOCKED_BY.index("call"))


def cold_starts(trace: RunTrace) -> tuple[Int64, Bool]:
    """Find loops that were blocked while they read the first task of a prefix, such as for importing a library.

    By recorded worker and prefix, shape (workers, prefixes + 1): its time, or 0. By run: True if read meanwhile/later.
    """
    runs, blocked, prefix = trace.runs, trace.blocked, prefix_of_runs(trace)
    ns = np.zeros((len(trace.workers), len(trace.prefixes) + 1), np.int64)
    waited = np.zeros(len(runs), np.bool_)
    long = (blocked.stop - blocked.start >= MIN_NS) & np.isin(blocked.cause, _READING)
    inside = (blocked.worker >= 0) & (blocked.worker < len(trace.workers))
    known = (runs.assigned != MISSING) & (runs.received != MISSING)
    for row in np.flatnonzero(long & inside).tolist():
        worker, start, stop = int(blocked.worker[row]), int(blocked.start[row]), int(blocked.stop[row])
        of_worker = known & (runs.worker == worker)
        took = runs.received - np.maximum(runs.assigned, start)
        read = of_worker & (runs.received > start) & (runs.received <= stop + _TURN) & (took >= MIN_NS)
        if not read.any():
            continue
        first = np.flatnonzero(read)[np.argmin(runs.received[read])]
        # A worker that had read such tasks before read a large one.
        if not (of_worker & (prefix == prefix[first]) & (runs.received < runs.received[first])).any():
            ns[worker, prefix[first]] = took[first]
            waited |= read
    return ns, waited


#: Assumed nanoseconds where a trace shows none, as are the next ones; medians of Dask 2026.8 on one machine: a message
#: on its way, around a task in its thread, from one task to the next in a slot.
_MESSAGE, AROUND, _SWITCH = 1_000_000, 500_000, 45_000
#: A scheduler's time for a message that changes no task's state, and for each transition of a task.
_SCHEDULER, _TRANSITION = 250_000, 50_000
#: A worker's time for a task that it is given.
_WORKER = 50_000
#: Nanoseconds between two messages of one batch, at most: a later one did not wait for the one before.
_BATCH = 1_000_000
#: Nanoseconds between two batches of messages of a worker, and of a scheduler: as in Dask.
_TO_SCHEDULER, _TO_WORKER = 2_000_000, 5_000_000
#: Fewest samples of which a median or a low quantile says something: a guess.
_MIN_SAMPLES = 20


@dataclass(frozen=True, slots=True)
class Overheads:
    """Samples in nanoseconds, none empty, to draw from; messages that waited for others have no travel time here."""

    #: By prefix, and last for tasks without one: from the slot to the start in the thread, without reading inputs from
    #: disk; from the end in the thread until the slot is free, without writing to disk.
    prepare: tuple[Int64, ...]
    finish: tuple[Int64, ...]
    #: From a free slot until the next task has it.
    switch: Int64
    #: A message's way from the scheduler until a worker reads it, and back.
    to_worker: Int64
    to_scheduler: Int64
    #: The scheduler's time for the end of a task without its transitions; for a transition.
    scheduler: int
    transition: int
    #: A worker's time for a task that it is given.
    worker: int
    #: By graph: from the creation of its tasks until all of them have their first state.
    settling: Int64
    #: By recorded worker and prefix: extra time, once, to read the first task.
    cold: Int64


def overheads(trace: RunTrace) -> Overheads:
    """Read the overheads from a recorded run."""
    runs, prefix, prefixes = trace.runs, prefix_of_runs(trace), len(trace.prefixes)
    instants = (runs.executing, runs.start, runs.stop, runs.ended)
    ended = np.logical_and.reduce([runs.outcome == RunOutcome.SUCCEEDED, *(column != MISSING for column in instants)])
    first, last, transitions = _stimuli(trace)
    scheduler = _per_report(runs)
    cold, during_cold = cold_starts(trace)
    # Messages during a cold start, or while the loop used the disk, waited for that.
    to_workers = _ways_to_workers(runs, last, during_cold | _at_disk(trace, runs.assigned, runs.received))
    to_scheduler = _ways_to_scheduler(runs, _at_disk(trace, runs.ended, runs.reported)) - scheduler
    return Overheads(
        prepare=_by_prefix(runs.start - runs.executing - runs.unspill_ns, ended, prefix, prefixes),
        finish=_by_prefix(runs.ended - runs.stop - runs.spill_ns, ended, prefix, prefixes),
        switch=_sample(_switches(runs), _SWITCH),
        to_worker=_sample(to_workers, _MESSAGE),
        to_scheduler=_sample(to_scheduler, _MESSAGE),
        scheduler=scheduler,
        transition=_per_transition(trace, last - first, transitions),
        worker=_per_task(runs),
        settling=_settling(trace, last),
        cold=cold,
    )


def _sample(ns: Int64, otherwise: int) -> Int64:
    return np.maximum(ns, 0) if len(ns) else np.array([otherwise])


def _by_prefix(ns: Int64, known: Bool, prefix: Int32, prefixes: int) -> tuple[Int64, ...]:
    """Collect the samples of each prefix, those of all prefixes if it has none."""
    everything = _sample(ns[known], AROUND)
    order = np.flatnonzero(known)[np.argsort(prefix[known], kind="stable")]
    starts = np.searchsorted(prefix[order], np.arange(prefixes + 1))
    own = [np.maximum(ns[order[a:b]], 0) for a, b in pairwise(starts.tolist())]
    return (*(sample if len(sample) else everything for sample in own), everything)


def _successive(known: Bool, *columns: NDArray[Any]) -> tuple[Int64, Int64]:
    """Find pairs of known rows that follow each other in the last column, and agree in the columns before it."""
    rows = np.flatnonzero(known)
    order = rows[np.lexsort([column[rows] for column in reversed(columns)])]
    before, after = order[:-1], order[1:]
    same = np.logical_and.reduce([column[before] == column[after] for column in columns[:-1]])
    return before[same], after[same]


def _switches(runs: Runs) -> Int64:
    """Measure the time from each free slot to the next run in it, if that was ready before."""
    known = (runs.slot >= 0) & (runs.ready != MISSING) & (runs.executing != MISSING)
    before, after = _successive(known, runs.worker, runs.slot, runs.executing)
    ended, begun = runs.ended[before], runs.executing[after]
    took: Int64 = (begun - ended)[(ended != MISSING) & (runs.ready[after] <= ended) & (begun >= ended)]
    return took


def _at_disk(trace: RunTrace, since: Int64, until: Int64) -> Bool:
    """Mark the runs whose worker's loop used the disk at any time between two instants."""
    runs, blocked = trace.runs, trace.blocked
    seen = blocked.take(np.isin(blocked.cause, [BLOCKED_BY.index("spill"), BLOCKED_BY.index("unspill")]))
    read = np.flatnonzero((runs.unspill_ns > 0) & (runs.submitted != MISSING))
    wrote = np.flatnonzero((runs.spill_ns > 0) & (runs.ended != MISSING))
    worker = np.concatenate([seen.worker, runs.worker[read], runs.worker[wrote]])
    begin = np.concatenate(
        [seen.start, runs.submitted[read] - runs.unspill_ns[read], runs.ended[wrote] - runs.spill_ns[wrote]]
    )
    end = np.concatenate([seen.stop, runs.submitted[read], runs.ended[wrote]])
    used = np.zeros(len(runs), np.bool_)
    for number in np.unique(worker).tolist():
        rows, of_worker = np.flatnonzero(runs.worker == number), worker == number
        # Intervals that overlap the run's: more have begun by its end than ended by its beginning.
        begun = np.searchsorted(np.sort(begin[of_worker]), until[rows], side="left")
        used[rows] = begun > np.searchsorted(np.sort(end[of_worker]), since[rows], side="right")
    return used


def _ways_to_workers(runs: Runs, last: Int64, waited: Bool) -> Int64:
    """Measure the time from a task's assignment to its arrival, for messages that waited for no other one."""
    known = np.flatnonzero((runs.assigned != MISSING) & (runs.received != MISSING) & (runs.worker >= 0))
    assigned, ends = runs.assigned[known], np.sort(last[last != MISSING])
    # Messages of a stimulus leave after all its transitions.
    sent = np.maximum(assigned, np.append(ends, MISSING)[np.searchsorted(ends, assigned)])
    order = np.lexsort((sent, runs.worker[known]))
    rows, sent = known[order], sent[order]
    same = runs.worker[rows][1:] == runs.worker[rows][:-1]
    alone = np.ones(len(rows), np.bool_)
    alone[1:] = ~same | (
        (sent[1:] - sent[:-1] > _TO_WORKER) & (runs.received[rows][1:] - runs.received[rows][:-1] > _BATCH)
    )
    took: Int64 = (runs.received[rows] - sent)[alone & ~waited[rows]]
    return took


def _ways_to_scheduler(runs: Runs, waited: Bool) -> Int64:
    """Measure the time from a run's end to its report, for messages that waited for no other one."""
    known = (runs.ended != MISSING) & (runs.reported != MISSING)
    waited = waited.copy()
    before, after = _successive(known, runs.worker, runs.ended)
    waited[after[runs.ended[after] - runs.ended[before] <= _TO_SCHEDULER]] = True
    by_report = np.flatnonzero(known)[np.argsort(runs.reported[known], kind="stable")]
    waited[by_report[1:][np.diff(runs.reported[by_report]) <= _BATCH]] = True
    took: Int64 = (runs.reported - runs.ended)[known & ~waited]
    return took


def _per_report(runs: Runs) -> int:
    """Estimate the scheduler's time for the end of a task: the 1 % quantile between two of them."""
    reported = np.unique(runs.reported[runs.reported != MISSING])
    gaps = np.diff(reported)
    return min(int(np.quantile(gaps, 0.01)), 2 * _SCHEDULER) if len(gaps) >= 5 * _MIN_SAMPLES else _SCHEDULER


def _per_task(runs: Runs) -> int:
    """Estimate a worker's time for a task that it is given: the median between two of one batch."""
    before, after = _successive((runs.received != MISSING) & (runs.worker >= 0), runs.worker, runs.received)
    gaps = runs.received[after] - runs.received[before]
    gaps = gaps[(gaps > 0) & (gaps < _BATCH // 2)]
    return int(np.median(gaps)) if len(gaps) >= _MIN_SAMPLES else _WORKER


def _stimuli(trace: RunTrace) -> tuple[Int64, Int64, Int64]:
    """By stimulus: instants of its first and last transition, MISSING if it has none, and their number."""
    transitions, count = trace.transitions, len(trace.stimuli)
    known = (transitions.stimulus >= 0) & (transitions.stimulus < count) & (transitions.at != MISSING)
    of, at = transitions.stimulus[known], transitions.at[known]
    first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, MISSING, np.int64)
    np.minimum.at(first, of, at)
    np.maximum.at(last, of, at)
    return np.where(last == MISSING, MISSING, first), last, np.bincount(of, minlength=count)


def _per_transition(trace: RunTrace, took: Int64, number: Int64) -> int:
    """Estimate the time of a transition, from stimuli with several, without those of graphs."""
    several = (number > 2) & (trace.stimuli.graph == MISSING) & (took > 0)
    return int(np.median(took[several] / (number[several] - 1))) if several.sum() >= _MIN_SAMPLES else _TRANSITION


def _settling(trace: RunTrace, last: Int64) -> Int64:
    """By graph: time from the creation of its tasks until all of them had their first state."""
    taken_in, took = trace.graphs.taken_in, np.zeros(len(trace.graphs), np.int64)
    graph = trace.stimuli.graph
    rows = np.flatnonzero((graph >= 0) & (graph < len(took)) & (last != MISSING))
    known = rows[taken_in[graph[rows]] != MISSING]
    np.maximum.at(took, graph[known], last[known] - taken_in[graph[known]])
    return took
