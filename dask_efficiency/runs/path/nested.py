"""Nested tasks: those that a task submitted itself, and waited for after it left its slot."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter

import numpy as np

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import Outcome

#: The names of the clients that workers have for their tasks (``worker_client``, ``get_client``) begin with this.
WORKER_CLIENT = "Client-worker-"


class Nested:
    """Index of the graphs that seceded tasks submitted, by the run of the task.

    A worker has one client for all of its tasks, and the client's name does not say which worker it belongs to. So the
    worker is the one on which a seceded task was running when most of the graphs came in, and the task is, of those
    that were running there when a graph came in, the one that began last.
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
        inside = (runs.task >= 0) & (runs.task < len(tasks)) & (runs.outcome == Outcome.SUCCEEDED)
        rows = np.flatnonzero(inside & (runs.reported != MISSING))
        graph = tasks.graph[runs.task[rows]]
        for run, number in zip(rows.tolist(), graph.tolist(), strict=True):
            if number in self._parents and tasks.wanted[runs.task[run]]:
                results = self._results.setdefault(self._parents[number], [])
                results.append((int(runs.reported[run]), run))
        for results in self._results.values():
            results.sort()

    def parent(self, graph: int) -> int:
        """The run that submitted a graph; MISSING for a graph that no task submitted."""
        return self._parents.get(graph, MISSING)

    def last_result(self, run: int, at: int) -> int:
        """The run that made the last of the results that a run had asked for and got by then; MISSING without any."""
        results = self._results.get(run, [])
        found = bisect_right(results, (at, len(results) + (1 << 62))) - 1
        return results[found][1] if found >= 0 else MISSING
