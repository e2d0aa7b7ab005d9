"""Clients of a recorded run: what each did, which results it waited for, and which task submitted a graph."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Bool
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import PHASES, RunOutcome, values_at

_GATHER = PHASES.index("gather")
_LARGEST = np.iinfo(np.int64).max

#: Instant at which a result was reported, and the run that made it.
_Result = tuple[int, int]


def _last(results: list[_Result], until: int, after: int = MISSING) -> _Result | None:
    """The last of some sorted results in (after, until]."""
    place = bisect_right(results, (until, _LARGEST)) - 1
    return results[place] if place >= 0 and results[place][0] > after else None


class ClientLog:
    """Log of what each client did, and which results it waited for before it went on."""

    def __init__(self, trace: RunTrace) -> None:
        phases, graphs, runs, tasks = trace.phases, trace.graphs, trace.runs, trace.tasks
        #: By client: (stop, start, whether it gathered), in the order of stop; a graph arrives at one instant.
        self._activities: defaultdict[int, list[tuple[int, int, bool]]] = defaultdict(list)
        columns = (phases.client, phases.phase, phases.start, phases.stop)
        for client, phase, start, stop in zip(*(column.tolist() for column in columns), strict=True):
            self._activities[client].append((stop, start, phase == _GATHER))
        for client, received in zip(graphs.client.tolist(), graphs.received.tolist(), strict=True):
            self._activities[client].append((received, received, False))
        for activities in self._activities.values():
            activities.sort()
        done = np.flatnonzero(heard_by_clients(trace))
        clients = values_at(graphs.client, tasks.graph[runs.task[done]])
        #: Results that any client asked for, and those of each.
        self._all: list[_Result] = []
        self._results: defaultdict[int, list[_Result]] = defaultdict(list)
        rows = zip(runs.reported[done].tolist(), done.tolist(), clients.tolist(), strict=True)
        for reported, run, client in sorted(rows):
            self._all.append((reported, run))
            self._results[client].append((reported, run))

    def back(self, client: int, at: int, since: int) -> tuple[list[tuple[int, bool]], int]:
        """Go back through what a client did before ``at``, to the result that it waited for last.

        The client waited for a result that arrived while it gathered. Where it did not gather (``wait``,
        ``as_completed``), it waited for the last one that arrived while it was idle, if it went on sooner after it than
        it had been idle before; otherwise it was thinking. Returns instants, latest first, each with True if the client
        was fetching results in the time after it; and the position of the run that made the result, MISSING if the
        client waited for none after ``since``.
        """
        activities, results = self._activities[client], self._results[client]
        steps: list[tuple[int, bool]] = []
        following, then_gathered = at, False
        for i in range(bisect_left(activities, (at + 1,)) - 1, -1, -1):
            stop, start, gathered = activities[i]
            if following <= since:
                break
            if stop > following:
                continue
            result = _last(results, following, stop)
            if result is not None and following - result[0] <= result[0] - stop:
                return [*steps, (result[0], then_gathered)], result[1]
            if gathered:
                steps.append((stop, False))
                # It may be another client that asked for this first.
                result = _last(results, stop, start) or _last(self._all, stop, start)
                if result is not None:
                    return [*steps, (result[0], True)], result[1]
                steps.append((start, True))
            following, then_gathered = min(following, start), gathered
        return [*steps, (since, False)], MISSING


def heard_by_clients(trace: RunTrace) -> Bool:
    """Mark the runs whose end a client heard of, as a result that it wanted or as the last failure of its task."""
    runs, heard = trace.runs, np.zeros(len(trace.runs), np.bool_)
    rows = np.flatnonzero((runs.task != MISSING) & (runs.reported != MISSING))
    task, reported, outcome = runs.task[rows], runs.reported[rows], runs.outcome[rows]
    last = np.full(len(trace.tasks), MISSING, np.int64)
    np.maximum.at(last, task, reported)
    # A failure fails all that needs the task, so the client hears of it even if it did not ask for this one.
    failed = (outcome == RunOutcome.FAILED) & (reported == last[task])
    heard[rows] = failed | ((outcome == RunOutcome.SUCCEEDED) & trace.tasks.wanted[task])
    return heard


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
        #: By run: results that its task had asked for.
        self._results: defaultdict[int, list[_Result]] = defaultdict(list)
        runs, graphs, tasks = trace.runs, trace.graphs, trace.tasks
        away = np.flatnonzero((runs.seceded != MISSING) & (runs.stop != MISSING))
        clients = [i for i, name in enumerate(trace.clients) if name.startswith(WORKER_CLIENT)]
        for client in clients if len(away) else ():
            covering = {}
            for graph in np.flatnonzero(graphs.client == client).tolist():
                at = graphs.received[graph]
                covering[graph] = away[(runs.start[away] <= at) & (at <= runs.stop[away])]
            on = Counter(worker for rows in covering.values() for worker in set(runs.worker[rows].tolist()))
            for graph, rows in covering.items() if on else ():
                rows = rows[runs.worker[rows] == on.most_common(1)[0][0]]
                if len(rows):
                    self._parents[graph] = int(rows[np.argmax(runs.start[rows])])
        if not self._parents:
            return
        done = (runs.task != MISSING) & (runs.outcome == RunOutcome.SUCCEEDED) & (runs.reported != MISSING)
        rows = np.flatnonzero(done)
        rows = rows[tasks.wanted[runs.task[rows]] & np.isin(tasks.graph[runs.task[rows]], list(self._parents))]
        rows = rows[np.argsort(runs.reported[rows], kind="stable")]
        for run, graph in zip(rows.tolist(), tasks.graph[runs.task[rows]].tolist(), strict=True):
            self._results[self._parents[graph]].append((int(runs.reported[run]), run))

    def parent(self, graph: int) -> int:
        """Find the run that submitted a graph; MISSING for a graph that no task submitted."""
        return self._parents.get(graph, MISSING)

    def last_result(self, run: int, at: int) -> int:
        """Find the run that made the last result that a run had asked for and got by an instant; MISSING if none."""
        last = _last(self._results[run], at) if run in self._results else None
        return MISSING if last is None else last[1]
