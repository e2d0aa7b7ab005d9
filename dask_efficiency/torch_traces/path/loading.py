"""Data loading: all time of a thread within events that load data, operators included."""

from __future__ import annotations

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Int32
from dask_efficiency.runs.path.kinds import KINDS, Kind
from dask_efficiency.torch_traces.kineto.trace import SAY_NOTHING, Category
from dask_efficiency.torch_traces.path.graph import TorchGraph
from dask_efficiency.torch_traces.path.lanes import by_thread
from dask_efficiency.torch_traces.path.roles import events_matching
from dask_efficiency.torch_traces.path.stretches import RawStretches

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
