"""Stalls for memory and data: calls that allocate or free memory, and events that load data, with all within them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Int32, Int64
from dask_efficiency.gpu.intervals import IntervalArrays, time_before
from dask_efficiency.runs.path.kinds import KINDS, Kind
from dask_efficiency.torch_traces.kineto.trace import SAY_NOTHING, Category
from dask_efficiency.torch_traces.path.graph import TorchGraph
from dask_efficiency.torch_traces.path.lanes import by_thread
from dask_efficiency.torch_traces.path.roles import ALLOCATES, call_kinds, events_matching, sets_up
from dask_efficiency.torch_traces.path.stretches import RawStretches, TorchStretches

#: Pattern of the annotations with which PyTorch's loaders mark that a program takes its next batch.
DATA_LOADING = (r"^enumerate\((DataLoader|DataPipe)\)",)

_ON_THREADS = (Category.OPERATOR, Category.ANNOTATION, Category.PYTHON, *SAY_NOTHING)
#: Kinds of a thread's time that become data loading within these events.
_CPU = (KINDS.index(Kind.COMPUTE_CPU), KINDS.index(Kind.COMPUTE_NONCPU))


def loading_rows(graph: TorchGraph) -> Int32:
    """Rows of events on threads that load data, by the graph's patterns and PyTorch's own."""
    wanted = events_matching(graph.trace, (*DATA_LOADING, *graph.data_loading))
    return np.flatnonzero(wanted & np.isin(graph.trace.events.category, _ON_THREADS)).astype(np.int32)


def with_loading(graph: TorchGraph, raw: RawStretches) -> RawStretches:
    """Rename a thread's time within events that load data to ``data-loading``; that of no event becomes theirs."""
    events = graph.trace.events
    rows = loading_rows(graph)
    rows = rows[(events.start[rows] < raw.bounds[-1]) & (events.stop[rows] > raw.bounds[0])]
    if not len(rows):
        return raw
    raw = raw.cut(np.concatenate([events.start[rows], events.stop[rows]]))
    kind, event = raw.kind.copy(), raw.event.copy()
    candidates = np.flatnonzero(np.isin(kind, _CPU) & (raw.on_thread_of != MISSING))
    for which, stretches in by_thread(events, rows, raw.on_thread_of[candidates]):
        here, mine = candidates[stretches], rows[which]
        mine = events.by_start(mine)
        # the one that ends last of those that have begun
        stop = events.stop[mine]
        longest = np.maximum.accumulate(np.where(stop == np.maximum.accumulate(stop), np.arange(len(stop)), 0))
        begun = np.searchsorted(events.start[mine], raw.bounds[here], side="right") - 1
        here, begun = here[begun >= 0], begun[begun >= 0]
        around = mine[longest[begun]]
        within = events.stop[around] > raw.bounds[here]
        here, around = here[within], around[within]
        kind[here] = KINDS.index(Kind.DATA_LOADING)
        event[here] = np.where(event[here] == MISSING, around, event[here])
    return raw._replace(kind=kind, event=event)


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
        there = IntervalArrays(on_path.start[here], on_path.stop[here])
        within.append(time_before(there, events.stop[mine]) - time_before(there, events.start[mine]))
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
