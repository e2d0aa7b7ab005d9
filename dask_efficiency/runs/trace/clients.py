"""Clients of a recorded run: what each did, which results it waited for, and which task submitted a graph."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Bool
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import PHASES, RunOutcome

_GATHER = PHASES.index("gather")


@dataclass(slots=True)
class _Log:
    #: (stop, start, whether it gathered), in the order of stop.
    activities: list[tuple[int, int, bool]] = field(default_factory=list)
    #: (reported, run) of what it asked for, in order.
    results: list[tuple[int, int]] = field(default_factory=list)

    def last_result(self, after: int, until: int) -> tuple[int, int] | None:
        """The last result in (after, until]."""
        found = bisect_right(self.results, (until, np.iinfo(np.int64).max)) - 1
        return self.results[found] if found >= 0 and self.results[found][0] > after else None


class ClientLog:
    """Log of what each client did, and which results it waited for before it went on."""

    def __init__(self, trace: RunTrace) -> None:
        self._logs: dict[int, _Log] = {}
        self._everyone = _Log()
        phases, graphs, runs, tasks = trace.phases, trace.graphs, trace.runs, trace.tasks
        columns = (phases.client, phases.phase, phases.start, phases.stop)
        for client, phase, start, stop in zip(*(column.tolist() for column in columns), strict=True):
            self._of(client).activities.append((stop, start, phase == _GATHER))
        for client, received in zip(graphs.client.tolist(), graphs.received.tolist(), strict=True):
            self._of(client).activities.append((received, received, False))

        done = np.flatnonzero(heard_by_clients(trace))
        graph = tasks.graph[runs.task[done]]
        known = (graph >= 0) & (graph < len(graphs))
        client = np.full(len(done), MISSING, np.int64)
        client[known] = graphs.client[graph[known]]
        rows = sorted(zip(runs.reported[done].tolist(), done.tolist(), client.tolist(), strict=True))
        for reported, run, number in rows:
            self._of(number).results.append((reported, run))
            self._everyone.results.append((reported, run))
        for log in self._logs.values():
            log.activities.sort()

    def _of(self, client: int) -> _Log:
        return self._logs.setdefault(client, _Log())

    def back(self, client: int, at: int, since: int) -> tuple[list[tuple[int, bool]], int]:
        """Go back through what a client did before ``at``, to the result that it waited for last.

        The client waited for a result that arrived while it gathered. Where it did not gather (``wait``,
        ``as_completed``), it waited for the last one that arrived while it was idle, if it went on sooner after it than
        it had been idle before; otherwise it was thinking. Returns instants, latest first, each with True if the client
        was fetching results in the time after it; and the position of the run that made the result, MISSING if the
        client waited for none after ``since``.
        """
        log = self._of(client)
        steps: list[tuple[int, bool]] = []
        following, then_gathered = at, False
        for i in range(bisect_left(log.activities, (at + 1,)) - 1, -1, -1):
            stop, start, gathered = log.activities[i]
            if following <= since:
                break
            if stop > following:
                continue
            result = log.last_result(stop, following)
            if result is not None and following - result[0] <= result[0] - stop:
                return [*steps, (result[0], then_gathered)], result[1]
            if gathered:
                steps.append((stop, False))
                # It may be another client that asked for this first.
                result = log.last_result(start, stop) or self._everyone.last_result(start, stop)
                if result is not None:
                    return [*steps, (result[0], True)], result[1]
                steps.append((start, True))
            following, then_gathered = min(following, start), gathered
        return [*steps, (since, False)], MISSING


def heard_by_clients(trace: RunTrace) -> Bool:
    """Mark the runs whose end a client heard of, as a result that it wanted or as the last failure of its task."""
    runs, tasks = trace.runs, len(trace.tasks)
    found = np.zeros(len(runs), np.bool_)
    rows = np.flatnonzero((runs.task >= 0) & (runs.task < tasks) & (runs.reported != MISSING))
    task, reported, outcome = runs.task[rows], runs.reported[rows], runs.outcome[rows]
    last = np.full(tasks, MISSING, np.int64)
    np.maximum.at(last, task, reported)
    # A failure fails all that needs the task, so the client hears of it even if it did not ask for this one.
    failed = (outcome == RunOutcome.FAILED) & (reported == last[task])
    found[rows] = failed | ((outcome == RunOutcome.SUCCEEDED) & trace.tasks.wanted[task])
    return found


#: Prefix of the names of the clients that workers have for their tasks (``worker_client``, ``get_client``): Dask's.
WORKER_CLIENT = "Client-worker-"


class Nested:
    """Index of the graphs that seceded tasks submitted, by the run of the task.

    A worker has one client for all of its tasks, and the client's name does not tell which worker it belongs to. So the
    worker is the one on which a seceded task was running when most of the graphs came in; and the task is the one that
    began last of those that were running there when a graph came in.
    """

    def __init__(self, trace: RunTrace) -> None:
        self._parents: dict[int, int] = {}
        self._results: dict[int, list[tuple[int, int]]] = {}
        clients = {i for i, name in enumerate(trace.clients) if name.startswith(WORKER_CLIENT)}
        runs, graphs = trace.runs, trace.graphs
        away = np.flatnonzero((runs.seceded != MISSING) & (runs.stop != MISSING))
        if not clients or not len(away):
            return
        for client in clients:
            mine = np.flatnonzero(graphs.client == client).tolist()
            covering = {
                graph: away[(runs.start[away] <= graphs.received[graph]) & (graphs.received[graph] <= runs.stop[away])]
                for graph in mine
            }
            on = Counter(worker for rows in covering.values() for worker in set(runs.worker[rows].tolist()))
            if not on:
                continue
            home = on.most_common(1)[0][0]
            for graph, rows in covering.items():
                rows = rows[runs.worker[rows] == home]
                if len(rows):
                    self._parents[graph] = int(rows[np.argmax(runs.start[rows])])
        self._collect(trace)

    def _collect(self, trace: RunTrace) -> None:
        runs, tasks = trace.runs, trace.tasks
        inside = (runs.task >= 0) & (runs.task < len(tasks)) & (runs.outcome == RunOutcome.SUCCEEDED)
        rows = np.flatnonzero(inside & (runs.reported != MISSING))
        graph = tasks.graph[runs.task[rows]]
        for run, number in zip(rows.tolist(), graph.tolist(), strict=True):
            if number in self._parents and tasks.wanted[runs.task[run]]:
                results = self._results.setdefault(self._parents[number], [])
                results.append((int(runs.reported[run]), run))
        for results in self._results.values():
            results.sort()

    def parent(self, graph: int) -> int:
        """Find the run that submitted a graph; MISSING for a graph that no task submitted."""
        return self._parents.get(graph, MISSING)

    def last_result(self, run: int, at: int) -> int:
        """Find the run that made the last result that a run had asked for and got by an instant; MISSING if none."""
        results = self._results.get(run, [])
        found = bisect_right(results, (at, len(results) + (1 << 62))) - 1
        return results[found][1] if found >= 0 else MISSING
