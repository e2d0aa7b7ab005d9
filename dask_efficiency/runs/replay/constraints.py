"""Constraints: what must have happened before the scheduler can assign each run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Int64
from dask_efficiency.runs.trace.causes import Causes
from dask_efficiency.runs.trace.clients import ClientLog
from dask_efficiency.runs.trace.run_trace import RunTrace


@dataclass(frozen=True, slots=True)
class Constraints:
    """What must have happened before each run can be assigned, and how much later it was assigned."""

    #: Pairs of runs: the first must be reported before the second can be assigned.
    source: Int64
    target: Int64
    #: By run: the earlier run of the same task that it was stolen from; MISSING where it was not stolen.
    stolen_from: Int64
    #: By run: the graph whose arrival caused it to be assigned.
    graph: Int64
    #: By graph: the run whose result its client waited for before it sent the graph.
    waited_for: Int64
    #: By graph: the time from that result until the graph was received, in nanoseconds.
    thinking: Int64
    #: By run: the run whose end took it out of the scheduler's queue; MISSING where it was not queued.
    opener: Int64
    #: By run: the time from the last of all these until it was assigned, in nanoseconds.
    lag: Int64


def constraints(trace: RunTrace, causes: Causes, inputs: tuple[Int64, Int64]) -> Constraints:
    """Read the constraints from what caused each run of a trace."""
    runs, graphs = trace.runs, trace.graphs
    opener = np.where(causes.queued, causes.run, MISSING)
    other = np.flatnonzero((causes.run != MISSING) & ~causes.queued)
    source = np.concatenate([inputs[0], causes.run[other]])
    target = np.concatenate([inputs[1], other])
    # A cause after its effect, which a jumping clock can make, is no constraint.
    sound = (runs.reported[source] != MISSING) & (runs.reported[source] <= runs.assigned[target])
    source, target = source[sound], target[sound]
    opener[(opener != MISSING) & ((runs.reported[opener] == MISSING) | (runs.reported[opener] > runs.assigned))] = (
        MISSING
    )

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
    waited_for, thinking = _clients(trace)
    return Constraints(source, target, stolen_from, graph, waited_for, thinking, opener, np.maximum(lag, 0))


def _clients(trace: RunTrace) -> tuple[Int64, Int64]:
    """By graph: the run whose result its client waited for before, and how much later the graph came."""
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
