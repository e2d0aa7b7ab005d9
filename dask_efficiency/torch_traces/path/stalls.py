"""Stalls for memory and data: time in calls that allocate or free memory, and in events that load data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Int32, Int64
from dask_efficiency.runs.path.kinds import KINDS, Kind
from dask_efficiency.torch_traces.path.graph import TorchGraph
from dask_efficiency.torch_traces.path.lanes import by_thread
from dask_efficiency.torch_traces.path.loading import loading_rows
from dask_efficiency.torch_traces.path.roles import ALLOCATES, call_kinds, sets_up
from dask_efficiency.torch_traces.path.stretches import TorchStretches

_MEMORY, _LOADING = KINDS.index(Kind.COMPUTE_NONCPU), KINDS.index(Kind.DATA_LOADING)


class Stall(NamedTuple):
    """Calls or events of one name that manage memory or load data."""

    times: int
    #: Of all threads, and the part on the path.
    total_seconds: float
    path_seconds: float


def stalls(parts: Iterable[tuple[TorchGraph, TorchStretches]]) -> dict[str, Stall]:
    """Time in calls that manage memory and in events that load data, of graphs and their stretches; longest first.

    The outermost of each kind count. Memory management while data are loaded is data loading on the path.
    """
    by_name: dict[str, Stall] = {}
    for graph, stretches in parts:
        events, region = graph.trace.events, graph.region
        manages = np.isin(call_kinds(graph.trace), ALLOCATES) & ~sets_up(graph.trace)
        memory = region.rows[manages[region.rows]]
        loading = loading_rows(graph)
        loading = loading[(events.start[loading] < region.stop) & (events.stop[loading] > region.start)]
        for rows, kind in ((memory, _MEMORY), (loading, _LOADING)):
            for name, row in _by_name(graph, rows, kind, stretches):
                times, total, path = by_name.get(name, (0, 0.0, 0.0))
                by_name[name] = Stall(times + row.times, total + row.total_seconds, path + row.path_seconds)
    return dict(sorted(by_name.items(), key=lambda item: (-item[1].total_seconds, item[0])))


def _by_name(graph: TorchGraph, rows: Int32, kind: int, stretches: TorchStretches) -> Iterator[tuple[str, Stall]]:
    events, region = graph.trace.events, graph.region
    on_path = stretches.take((stretches.kind == kind) & (stretches.event != MISSING))
    kept, within = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for which, here in by_thread(events, rows, on_path.event):
        mine = _outermost(graph, rows[which])
        kept.append(mine)
        within.append(_within(events.start[mine], events.stop[mine], on_path.take(here)))
    rows, path = np.concatenate(kept), np.concatenate(within)
    total = np.minimum(events.stop[rows], region.stop) - np.maximum(events.start[rows], region.start)
    names, which = np.unique(events.name[rows], return_inverse=True)
    for number, name in enumerate(names.tolist()):
        its = which == number
        seconds = int(total[its].sum()) / 1e9, int(path[its].sum()) / 1e9
        yield graph.trace.names[name], Stall(int(its.sum()), *seconds)


def _outermost(graph: TorchGraph, rows: Int32) -> Int64:
    """Outermost of some events on one thread, in order of time."""
    events = graph.trace.events
    rows = rows[np.lexsort((-events.stop[rows], events.start[rows]))]
    if not len(rows):
        return rows.astype(np.int64)
    reached = np.maximum.accumulate(events.stop[rows])
    outside = np.append(True, events.start[rows[1:]] >= reached[:-1])
    outer: Int64 = rows[outside].astype(np.int64)
    return outer


def _within(start: Int64, stop: Int64, stretches: TorchStretches) -> Int64:
    """Nanoseconds of disjoint stretches between pairs of instants."""
    sums: Int64 = np.append(0, np.cumsum(stretches.stop - stretches.start)).astype(np.int64)

    def until(at: Int64) -> Int64:
        place = np.searchsorted(stretches.start, at, side="right")
        excess = np.where(place > 0, np.maximum(stretches.stop[place - 1] - at, 0), 0) if len(stretches) else 0
        added: Int64 = sums[place] - excess
        return added

    return until(stop) - until(start)
