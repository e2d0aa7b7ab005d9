"""Bounds: the least time that a run could have taken, and the slack of each task."""

from __future__ import annotations

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Int64
from dask_efficiency.runs.path.scope import Scope
from dask_efficiency.runs.stragglers.long_tail import MIN_TASKS, TIMES_LONGER
from dask_efficiency.runs.trace.run_causes import RunCauses, client_waits
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import RunOutcome, values_at

_NEVER = np.iinfo(np.int64).max


def work_ns(trace: RunTrace, scope: Scope) -> tuple[Int64, Int64]:
    """By task: nanoseconds in its thread within a scope, and its start, of its first success; else 0 and MISSING."""
    runs, tasks = trace.runs, len(trace.tasks)
    begin, end = np.maximum(runs.start, scope.start), np.minimum(runs.stop, scope.stop)
    good = (runs.outcome == RunOutcome.SUCCEEDED) & (runs.start != MISSING) & (runs.task != MISSING)
    rows = np.flatnonzero(good & (begin <= end))[::-1]
    work, start = np.zeros(tasks, np.int64), np.full(tasks, MISSING, np.int64)
    # The rows go backwards, so that the first success of a task is the one that stays.
    work[runs.task[rows]] = (end - begin)[rows]
    start[runs.task[rows]] = begin[rows]
    return work, start


def useful_ns(trace: RunTrace, scope: Scope) -> tuple[Int64, Int64]:
    """Compute :func:`work_ns` with only the time in which a task's thread computed or waited for its work on a GPU."""
    work, start = work_ns(trace, scope)
    runs = trace.runs
    rows = np.flatnonzero((runs.outcome == RunOutcome.SUCCEEDED) & (runs.task != MISSING))[::-1]
    useful = np.zeros_like(work)
    useful[runs.task[rows]] = (np.maximum(runs.cpu_ns, 0) + np.maximum(runs.gpu_ns, 0))[rows]
    return np.minimum(useful, work), start


def is_one_a_worker(trace: RunTrace, work: Int64) -> bool:
    """Check if each of several workers ran one task of the longest task's prefix, all about as long.

    XGBoost and torch train like that: such a task is as long as the job, and brings threads of its own.
    """
    rows = _like_the_longest(trace, work)
    if not len(rows):
        return False
    runs = trace.runs
    succeeded = (runs.outcome == RunOutcome.SUCCEEDED) & (runs.worker != MISSING)
    workers = np.unique(runs.worker[succeeded & np.isin(runs.task, rows)])
    alike = bool(work[rows].min() >= work[rows].max() / 2)
    return alike and len(rows) == len(workers) == len(np.unique(runs.worker[succeeded])) > 1


def is_uneven(trace: RunTrace, work: Int64) -> bool:
    """Check if the longest task took several times the median of its prefix, as one with a skewed key does."""
    own = work[_like_the_longest(trace, work)]
    return len(own) >= MIN_TASKS and bool(own.max() >= TIMES_LONGER * np.median(own))


def _like_the_longest(trace: RunTrace, work: Int64) -> Int64:
    """List the tasks that worked, of the prefix of the longest one."""
    if not len(work):
        return np.empty(0, np.int64)
    return np.flatnonzero((trace.tasks.prefix == trace.tasks.prefix[np.argmax(work)]) & (work > 0))


def longest_chain(trace: RunTrace, work: Int64, start: Int64) -> tuple[int, int]:
    """Find the longest chain of tasks that need one another, by computing time: the critical path method (CPM).

    The run would take that long with any number of workers, without transfers and without a scheduler. Returns
    nanoseconds of the whole chain, and the longest task on it, or MISSING.
    """
    starts = trace.dependency_starts
    needing = np.flatnonzero((start != MISSING) & (starts[1:] > starts[:-1]))
    needing = needing[np.argsort(start[needing], kind="stable")]
    finish: list[int] = work.tolist()
    needed: list[int] = trace.dependencies.tolist()
    rows = zip(needing.tolist(), starts[needing].tolist(), starts[needing + 1].tolist(), strict=True)
    # A task without inputs finishes after its own work, so the loop leaves it out: half of the tasks of a tree.
    for task, first, last in rows:
        if last - first == 1:
            finish[task] += finish[needed[first]]
        else:
            finish[task] += max([finish[i] for i in needed[first:last]])
    length = max(finish, default=0)
    if not length:
        return 0, MISSING
    task = finish.index(length)
    longest = task
    for _ in range(len(finish)):  # the graph of a damaged trace may have circles
        before = needed[starts[task] : starts[task + 1]]
        task_before = max(before, key=finish.__getitem__, default=task)
        if not before or finish[task_before] + int(work[task]) != finish[task]:
            break
        task = task_before
        longest = max(longest, task, key=work.__getitem__)
    return length, longest


def slack_ns(trace: RunTrace, causes: RunCauses, scope: Scope) -> Int64:
    """By run: nanoseconds that it could have been reported later without delaying the end, all else unchanged.

    Runs depend on each other through inputs, the order on each slot, the order of the scheduler's queue, earlier tries
    of the same task, and clients that wait for one result before they ask for the next. The delays between runs that
    depend on each other are kept. MISSING for a run that was not reported within the scope.
    """
    runs = trace.runs
    known = (runs.reported != MISSING) & (runs.reported >= scope.start) & (runs.reported <= scope.stop)
    end = int(runs.reported[scope.run]) if scope.run != MISSING else scope.stop
    slack = np.where(known, np.maximum(end - runs.reported, 0), _NEVER)
    order = np.where(runs.executing != MISSING, runs.executing, runs.assigned)
    sources, targets, spare = _constraints(trace, causes)
    keep = known[sources] & known[targets] & (order[sources] < order[targets])
    sources, targets, spare = sources[keep], targets[keep], spare[keep]
    latest_first = np.argsort(order[targets], kind="stable")[::-1]
    sources, targets, spare = sources[latest_first], targets[latest_first], spare[latest_first]
    by_run: list[int] = slack.tolist()
    for source, target, ns in zip(sources.tolist(), targets.tolist(), spare.tolist(), strict=True):
        ns += by_run[target]
        if ns < by_run[source]:
            by_run[source] = ns
    return np.where(known, np.array(by_run, np.int64), MISSING)


def _constraints(trace: RunTrace, causes: RunCauses) -> tuple[Int64, Int64, Int64]:
    """List pairs of runs where the first had to end before the second, and how much later it could have ended."""
    runs = trace.runs
    waited = np.where((runs.after != MISSING) & (runs.ready != MISSING), runs.executing - runs.ready, 0)
    making, needing = causes.inputs(trace)
    last_input = np.full(len(runs), MISSING, np.int64)
    np.maximum.at(last_input, needing, runs.reported[making])
    # An input's end that was the cause is in the pairs of inputs already. A new try comes after the failed one.
    caused = np.flatnonzero((causes.run != MISSING) & (causes.queued | (runs.reported[causes.run] > last_input)))
    last = last_input.copy()
    last[caused] = np.maximum(last[caused], runs.reported[causes.run[caused]])
    # One run after the other in each slot.
    rows = np.flatnonzero((runs.executing != MISSING) & (runs.slot != MISSING))
    rows = rows[np.lexsort((runs.executing[rows], runs.slot[rows], runs.worker[rows]))]
    same = (np.diff(runs.worker[rows]) == 0) & (np.diff(runs.slot[rows]) == 0)
    holding, held = rows[:-1][same], rows[1:][same]
    # A client that waited for one result before it asked for another.
    waited_for = values_at(client_waits(trace), causes.graph)
    asked = np.flatnonzero(waited_for != MISSING)
    waiting = waited_for[asked]
    bound = runs.after[held] != MISSING
    freed = np.where(runs.seceded[holding] != MISSING, runs.seceded[holding], runs.ended[holding])
    gap = np.where(bound, 0, np.maximum(runs.executing[held] - freed, 0))
    late = last[needing] - runs.reported[making] + waited[needing]
    sources = np.concatenate([making, causes.run[caused], holding, waiting])
    targets = np.concatenate([needing, caused, held, asked])
    return sources, targets, np.maximum(np.concatenate([late, waited[caused], gap, waited[asked]]), 0)
