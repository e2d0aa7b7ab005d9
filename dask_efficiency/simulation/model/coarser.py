"""Coarser tasks: neighbours of one prefix joined to one, as larger partitions or chunks do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.metered import of_shuffles
from dask_efficiency.accounts.tables import MISSING, Float64, Int64, Texts
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import RunOutcome, Shuffled
from dask_efficiency.simulation.model.calibration import Calibration, failures


@dataclass(frozen=True, slots=True)
class Coarser:
    """Run of which each task stands for several neighbours of the recorded one.

    A trace does not tell how much of a task's time is work, which grows with the partition, and how much each call of a
    library costs; nor which results do not grow with their inputs, as of reductions. So there are two ends: at the same
    work, times and sizes of those that are joined add up; with calls alone, the longest and the largest of them stay.
    """

    trace: RunTrace
    #: By recorded task: the task that stands for it.
    task: Int64
    #: By graph: number of tasks over that of the recorded ones, in (0, 1], in all graphs that were there together: a
    #: small one is taken in only when the scheduler has a moment for it.
    share: Float64

    def calibration(self, costs: Calibration, *, calls_alone: bool = False) -> Calibration:
        """Costs of these tasks, given those of the recorded ones: at the same work, or with calls alone."""
        count = len(self.trace.tasks)
        compute = np.bincount(self.task, costs.compute, count)
        first = np.full(count, MISSING, np.int64)
        first[self.task[::-1]] = np.arange(len(self.task))[::-1]

        def mean(shares: Float64) -> Float64:
            whole: Float64 = np.bincount(self.task, shares * costs.compute, count) / np.maximum(compute, 1.0)
            return whole

        def joined(values: Int64) -> Int64:
            found = np.zeros(count, np.int64)
            (np.maximum if calls_alone else np.add).at(found, self.task, values)
            return found

        settling = np.rint(costs.overheads.settling * self.share).astype(np.int64)
        return replace(
            costs,
            compute=joined(costs.compute),
            cpu=mean(costs.cpu),
            held=mean(costs.held),
            gpu=mean(costs.gpu),
            secede=costs.secede[first],
            failures=costs.failures[first],
            nbytes=joined(costs.nbytes),
            overheads=replace(costs.overheads, settling=settling),
        )


def coarser(trace: RunTrace, times: int) -> Coarser:
    """Join up to so many tasks of one graph and prefix to one, if none of them needs another.

    Tasks with constraints of their own, and those that failed, seceded or shuffled, stay as they were.
    """
    members, task = _joined(trace, times)
    last = np.array([one[-1] for one in members], np.int64)
    first = np.array([one[0] for one in members], np.int64)
    stands = np.zeros(len(task), np.bool_)
    stands[last] = True

    def kept(table: Any, **columns: NDArray[Any]) -> Any:
        """Rows of the tasks that stand for others, or of none."""
        rows = (table.task == MISSING) | stands[table.task]
        now = {name: column[rows] for name, column in (table.columns() | columns).items()}
        return type(table).from_columns(now | {"task": _at(task, now["task"])})

    starts, needed = _dependencies(trace, members, task)
    tasks, graphs = trace.tasks, trace.graphs
    columns = {name: column[first] for name, column in tasks.columns().items()}
    nbytes = np.bincount(task, np.maximum(tasks.nbytes, 0), len(members))
    share = _share_of_tasks(trace, first)
    took = np.rint((graphs.taken_in - graphs.received) * share).astype(np.int64)
    known = (graphs.taken_in != MISSING) & (graphs.received != MISSING)
    taken_in = np.where(known, graphs.received + took, graphs.taken_in)
    now = replace(
        trace,
        keys=Texts.of([trace.keys[i] for i in first.tolist()]),
        tasks=type(tasks).from_columns(columns | {"nbytes": np.rint(nbytes).astype(np.int64)}),
        dependency_starts=starts,
        dependencies=needed,
        runs=kept(trace.runs, after=_at(task, trace.runs.after)),
        graphs=type(graphs).from_columns(graphs.columns() | {"taken_in": taken_in}),
        releases=kept(trace.releases),
        transitions=kept(trace.transitions),
        transfers=kept(trace.transfers),
        shuffled=Shuffled.from_columns(trace.shuffled.columns() | {"task": _at(task, trace.shuffled.task)}),
        constraints={int(task[i]): constraint for i, constraint in trace.constraints.items()},
        profiles=(),
    )
    return Coarser(now, task, share)


def _at(task: Int64, positions: NDArray[Any]) -> NDArray[Any]:
    """Positions of the tasks that stand for those at others."""
    return np.where(positions == MISSING, MISSING, task[positions]).astype(positions.dtype)


def _joined(trace: RunTrace, times: int) -> tuple[list[list[int]], Int64]:
    """Members of each task, those that a client heard of last at the end; and the task of each member."""
    runs, tasks = trace.runs, trace.tasks
    reported = np.full(len(tasks), MISSING, np.int64)
    good = (runs.task != MISSING) & (runs.outcome == RunOutcome.SUCCEEDED) & (runs.seceded == MISSING)
    np.maximum.at(reported, runs.task[good], runs.reported[good])
    alone = (reported == MISSING) | (failures(trace) != 0) | (tasks.graph == MISSING)
    alone[list(trace.constraints)] = True
    alone[runs.task[(runs.task != MISSING) & (runs.seceded != MISSING)]] = True
    apart = np.array([*map(of_shuffles, trace.prefixes), True])
    alone |= apart[tasks.prefix]
    together: dict[tuple[int, ...], list[int]] = {}
    level = _levels(trace)
    order = np.lexsort((tasks.priority_order, tasks.priority_graph, tasks.priority_user))
    for i in order.tolist():
        alike = (int(tasks.graph[i]), int(tasks.prefix[i]), level[i], int(tasks.wanted[i]), int(tasks.span[i]))
        together.setdefault((i,) if alone[i] else alike, []).append(i)
    members = []
    for all_of_them in together.values():
        parts = -(-len(all_of_them) // times)
        members += [part.tolist() for part in np.array_split(np.array(all_of_them), parts)]
    for part in members:
        part.sort(key=reported.__getitem__)
    members.sort(key=min)
    task = np.empty(len(tasks), np.int64)
    for number, part in enumerate(members):
        task[part] = number
    return members, task


def _levels(trace: RunTrace) -> list[int]:
    """By task: tasks on the longest way to it; tasks of one level need none of each other."""
    starts, needed = trace.dependency_starts.tolist(), trace.dependencies.tolist()
    level, left = [0] * len(trace.tasks), [starts[i + 1] - starts[i] for i in range(len(trace.tasks))]
    needing: list[list[int]] = [[] for _ in left]
    for i in range(len(left)):
        for other in needed[starts[i] : starts[i + 1]]:
            needing[other].append(i)
    free = [i for i, missing in enumerate(left) if not missing]
    while free:
        i = free.pop()
        for other in needing[i]:
            level[other] = max(level[other], level[i] + 1)
            left[other] -= 1
            if not left[other]:
                free.append(other)
    return level


def _dependencies(trace: RunTrace, members: list[list[int]], task: Int64) -> tuple[Int64, NDArray[np.int32]]:
    starts, needed, counts = trace.dependency_starts, trace.dependencies, [0]
    found: list[int] = []
    for number, part in enumerate(members):
        others = {int(task[other]) for i in part for other in needed[starts[i] : starts[i + 1]].tolist()}
        found += sorted(others - {number})
        counts.append(len(found))
    return np.array(counts, np.int64), np.array(found, np.int32)


def _share_of_tasks(trace: RunTrace, first: Int64) -> Float64:
    """By graph: number of tasks of its round over that of the recorded ones, given the first member of each task."""
    rounds, graph = rounds_of_graphs(trace), trace.tasks.graph
    now, before = (
        np.bincount(rounds[of[of != MISSING]], minlength=len(rounds)).astype(float) for of in (graph[first], graph)
    )
    share: Float64 = np.divide(now, before, out=np.ones(len(now)), where=before > 0)[rounds[:-1]]
    return share


def rounds_of_graphs(trace: RunTrace) -> Int64:
    """By graph: number of its round, which begins once all that was sent before has ended; the last is for no graph."""
    runs, n = trace.runs, len(trace.graphs)
    ends = np.zeros(n + 1, np.int64)
    known = runs.task != MISSING
    np.maximum.at(ends, trace.tasks.graph[runs.task[known]], runs.stop[known])
    begins = trace.graphs.received[1:] >= np.maximum.accumulate(ends[:n])[:-1]
    return np.concatenate([[0], np.cumsum(begins), [0]])[-(n + 1) :]
