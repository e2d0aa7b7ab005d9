"""What a client did itself in a recorded run, at the times at which it would have done it in a simulated one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Int64
from dask_efficiency.runs.trace.clients import heard_by_clients
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import Phases


def with_phases(simulated: RunTrace, recorded: RunTrace) -> RunTrace:
    """A simulated run with the phases of its recorded run's clients.

    Each phase begins and ends as long after the client's last graph or result before it as in the recorded run; results
    are matched by how many the client had heard of.
    """
    phases = recorded.phases
    columns: dict[str, list[NDArray[Any]]] = {"client": [], "phase": [], "start": [], "stop": []}
    for number in np.unique(phases.client).tolist():
        name = recorded.clients[number] if number != MISSING else ""
        here = simulated.clients.index(name) if name in simulated.clients else MISSING
        before, after = _instants(recorded, number), _instants(simulated, here)
        rows = np.flatnonzero(phases.client == number)
        columns["client"].append(np.full(len(rows), here, np.int32))
        columns["phase"].append(phases.phase[rows])
        columns["start"].append(_moved(phases.start[rows], before, after))
        columns["stop"].append(_moved(phases.stop[rows], before, after))
    if not len(phases):
        return simulated
    table = Phases(**{name: np.concatenate(parts) for name, parts in columns.items()})
    table = table.take(np.argsort(table.start, kind="stable"))
    return replace(simulated, phases=table, stop=max(simulated.stop, int(table.stop.max())))


def _instants(trace: RunTrace, client: int) -> tuple[Int64, Int64]:
    """When a client's graphs were received, and when the results were there that it heard of; both in order."""
    heard = np.flatnonzero(heard_by_clients(trace))
    graph = trace.tasks.graph[trace.runs.task[heard]]
    known = (graph >= 0) & (graph < len(trace.graphs))
    results = trace.runs.reported[heard[known][trace.graphs.client[graph[known]] == client]]
    return np.sort(trace.graphs.received[trace.graphs.client == client]), np.sort(results)


def _moved(at: Int64, before: tuple[Int64, Int64], after: tuple[Int64, Int64]) -> Int64:
    """Instants, moved as what came last before them was; what came before everything stays."""
    counts = [min(len(old), len(new)) for old, new in zip(before, after, strict=True)]
    old = np.concatenate([column[:count] for column, count in zip(before, counts, strict=True)])
    new = np.concatenate([column[:count] for column, count in zip(after, counts, strict=True)])
    order = np.argsort(old, kind="stable")
    shifts = np.concatenate([[0], (new - old)[order]])
    moved: Int64 = at + shifts[np.searchsorted(old[order], at, "right")]
    return moved
