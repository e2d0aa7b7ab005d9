"""What a simulation is compared with: greedy list scheduling, and Amdahl's law.

Both know the recorded durations of tasks and how fast each worker is, and nothing of Dask: no messages, no transfers,
no policy but priorities.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np

from dask_efficiency import RunTrace, critical_path
from dask_efficiency.accounts.tables import MISSING, Float64
from dask_efficiency.runs.path.bounds import longest_chain, work_ns
from dask_efficiency.runs.replay.task_times import task_times
from dask_efficiency.runs.trace.schema import Outcome


def task_seconds(trace: RunTrace) -> Float64:
    """By task: how long it computes on a worker of usual speed; 0 for those that never succeeded."""
    runs = trace.runs
    seconds = np.zeros(len(trace.tasks))
    rows = np.flatnonzero((runs.outcome == Outcome.SUCCEEDED) & (runs.start != MISSING))
    times = task_times(trace)
    usual = np.median(times, axis=0)
    prefix, worker = trace.tasks.prefix[runs.task[rows]], runs.worker[rows]
    seconds[runs.task[rows]] = (runs.stop - runs.start)[rows] / 1e9 * usual[prefix] / times[worker, prefix]
    return seconds


def list_schedule(trace: RunTrace, speeds: list[float]) -> float:
    """Makespan in seconds: whenever a slot is free, it takes the task of the first priority that is ready.

    Parameters
    ----------
    trace
        A recorded run. Its graphs run one after the other.
    speeds
        Of each slot; 1 is the usual one. Where several are free, the first one takes the task.
    """
    seconds = task_seconds(trace).tolist()
    tasks, starts = trace.tasks, trace.dependency_starts
    rank = np.empty(len(tasks), np.int64)
    rank[np.lexsort((tasks.priority_order, tasks.priority_graph, tasks.priority_user))] = np.arange(len(tasks))
    needing: list[list[int]] = [[] for _ in range(len(tasks))]
    missing = np.diff(starts).tolist()
    for task in range(len(tasks)):
        for needed in trace.dependencies[starts[task] : starts[task + 1]].tolist():
            needing[needed].append(task)
    now, graphs = 0.0, tasks.graph.tolist()
    for graph in sorted(set(graphs)):
        ready = [(int(rank[task]), task) for task in range(len(tasks)) if graphs[task] == graph and not missing[task]]
        now = _run(ready, now, speeds, seconds, (rank.tolist(), needing, missing, graphs))
    return now


def _run(
    ready: list[tuple[int, int]],
    now: float,
    speeds: list[float],
    seconds: list[float],
    graph: tuple[list[int], list[list[int]], list[int], list[int]],
) -> float:
    """When all that is ready, and what becomes ready of the same graph, has run."""
    rank, needing, missing, graphs = graph
    free = list(range(len(speeds)))
    running: list[tuple[float, int, int]] = []
    heapify(ready)
    while ready or running:
        while ready and free:
            task, slot = heappop(ready)[1], heappop(free)
            heappush(running, (now + seconds[task] / speeds[slot], slot, task))
        now, slot, task = heappop(running)
        heappush(free, slot)
        for after in needing[task]:
            missing[after] -= 1
            if not missing[after] and graphs[after] == graphs[task]:
                heappush(ready, (rank[after], after))
    return now


def amdahl(trace: RunTrace, speeds: list[float]) -> float:
    """Makespan in seconds by Amdahl's law, with the serial share that explains the recorded makespan.

    References
    ----------
    Karp and Flatt, Measuring Parallel Processor Performance, CACM 1990. On one slot that share is unknown; it is then
    the longest chain of tasks.
    """
    path = critical_path(trace)
    recorded, work = path.makespan_seconds, float(task_seconds(trace).sum())
    slots = _recorded_slots(trace)
    if slots > 1:
        serial = max(0.0, (recorded - work / slots) / (1 - 1 / slots))
    else:
        serial = longest_chain(trace, *work_ns(trace, path.scope))[0] / 1e9
        work += recorded - work
    serial = min(serial, work)
    return serial + (work - serial) / sum(speeds)


def _recorded_slots(trace: RunTrace) -> float:
    """Slots of the recorded cluster, each counted by its speed."""
    speeds = worker_speeds(trace)
    return sum(worker.nthreads * speeds[worker.name] for worker in trace.workers)


def worker_speeds(trace: RunTrace) -> dict[str, float]:
    """By worker's name: how many times as fast as the middle one it is."""
    times = task_times(trace)
    prefixes = np.unique(trace.tasks.prefix)
    found = np.exp(np.mean(np.log(times / np.median(times, axis=0))[:, prefixes], axis=1))
    return {worker.name: 1.0 / float(slower) for worker, slower in zip(trace.workers, found, strict=True)}
