"""Time of a thread within events that load data is data loading, whatever operators do in it."""

from __future__ import annotations

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Int32, Int64
from dask_efficiency.runs.path.kinds import KINDS, Kind
from dask_efficiency.torch_traces.kineto.trace import Category
from dask_efficiency.torch_traces.path.graph import TorchGraph
from dask_efficiency.torch_traces.path.lanes import by_thread
from dask_efficiency.torch_traces.path.roles import matching
from dask_efficiency.torch_traces.path.stretches import RawStretches

#: What PyTorch's loaders name the time in which a program takes its next batch.
DATA_LOADING = (r"^enumerate\((DataLoader|DataPipe)\)",)

_ON_THREADS = (Category.OPERATOR, Category.ANNOTATION, Category.PYTHON, Category.OTHER)
#: What a thread does in these events is loading data.
_CPU = (KINDS.index(Kind.COMPUTE_CPU), KINDS.index(Kind.COMPUTE_NONCPU))


def loading_rows(graph: TorchGraph) -> Int32:
    """Rows of the events on threads that load data: those of the graph's patterns, and of PyTorch's own loaders."""
    wanted = matching(graph.trace, (*DATA_LOADING, *graph.data_loading))
    return np.flatnonzero(wanted & np.isin(graph.trace.events.category, _ON_THREADS)).astype(np.int32)


def with_loading(graph: TorchGraph, pieces: RawStretches) -> RawStretches:
    """The same time, where threads are within events that load data as ``data-loading``.

    An operator in it keeps its row; time of no event has that of the event that loads data.
    """
    events = graph.trace.events
    rows = loading_rows(graph)
    rows = rows[(events.start[rows] < pieces.bounds[-1]) & (events.stop[rows] > pieces.bounds[0])]
    if not len(rows):
        return pieces
    pieces = pieces.cut(np.concatenate([events.start[rows], events.stop[rows]]))
    kind, event = pieces.kind.copy(), pieces.event.copy()
    candidates = np.flatnonzero(np.isin(kind, _CPU) & (pieces.on_thread_of != MISSING))
    for which, there in by_thread(events, rows, pieces.on_thread_of[candidates]):
        here, mine = candidates[there], rows[which]
        mine = mine[np.argsort(events.start[mine], kind="stable")]
        # Of those that have begun, the one that ends last.
        longest = _running_argmax(events.stop[mine])
        begun = np.searchsorted(events.start[mine], pieces.bounds[here], side="right") - 1
        here, begun = here[begun >= 0], begun[begun >= 0]
        around = mine[longest[begun]]
        within = events.stop[around] > pieces.bounds[here]
        here, around = here[within], around[within]
        kind[here] = KINDS.index(Kind.DATA_LOADING)
        event[here] = np.where(event[here] == MISSING, around, event[here])
    return pieces._replace(kind=kind, event=event)


def _running_argmax(values: Int64) -> Int64:
    highest = np.maximum.accumulate(values)
    positions: Int64 = np.maximum.accumulate(np.where(values == highest, np.arange(len(values)), 0))
    return positions
