"""Stalls for memory and data: time in calls that allocate or free memory, and in events that load data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Column, ColumnTable, Float64, Int8, Int32, Int64
from dask_efficiency.runs.path.kinds import KINDS, Kind
from dask_efficiency.torch_traces.path.graph import TorchGraph
from dask_efficiency.torch_traces.path.lanes import by_thread
from dask_efficiency.torch_traces.path.loading import loading_rows
from dask_efficiency.torch_traces.path.roles import ALLOCATES, call_kinds
from dask_efficiency.torch_traces.path.stretches import TorchStretches

_MEMORY, _LOADING = KINDS.index(Kind.COMPUTE_NONCPU), KINDS.index(Kind.DATA_LOADING)


@dataclass(frozen=True, slots=True, repr=False)
class Stalls(ColumnTable):
    """A row for each name of calls that manage memory, and of events that load data; the longest first."""

    #: Position in the names of the rank's trace.
    name: Int32
    #: Their kind on a path, as a position in KINDS: ``compute-noncpu`` for memory, or ``data-loading``.
    kind: Int8
    count: Int32
    #: Of all threads, and the part on the critical path.
    total_seconds: Annotated[Float64, Column(unit="seconds")]
    path_seconds: Annotated[Float64, Column(unit="seconds")]


class Stall(NamedTuple):
    """Calls or events of one name that manage memory or load data."""

    times: int
    #: Of all threads, and the part on the path.
    total_seconds: float
    path_seconds: float


def sums_by_name(parts: Iterable[tuple[TorchGraph, Stalls]]) -> dict[str, Stall]:
    """Sums by name over the ranks of several graphs; longest first."""
    found: dict[str, Stall] = {}
    for graph, table in parts:
        columns = (table.name, table.count, table.total_seconds, table.path_seconds)
        for number, *row in zip(*(column.tolist() for column in columns), strict=True):
            before = found.get(name := graph.trace.names[number], Stall(0, 0.0, 0.0))
            found[name] = Stall(*(one + other for one, other in zip(before, row, strict=True)))
    return dict(sorted(found.items(), key=lambda item: (-item[1].total_seconds, item[0])))


def stalls(graph: TorchGraph, stretches: TorchStretches) -> Stalls:
    """Add up time in calls that manage memory and in events that load data, in a window and on its tiling.

    Events within others of the same kind are not counted again. Memory management while data are loaded is data loading
    on the path.
    """
    events, region = graph.trace.events, graph.region
    memory = region.rows[np.isin(call_kinds(graph.trace)[region.rows], ALLOCATES)]
    loading = loading_rows(graph)
    loading = loading[(events.start[loading] < region.stop) & (events.stop[loading] > region.start)]
    parts = [_by_name(graph, rows, kind, stretches) for rows, kind in ((memory, _MEMORY), (loading, _LOADING))]
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in Stalls.dtypes()}
    return Stalls(**joined).take(np.argsort(-joined["total_seconds"], kind="stable"))


def _by_name(graph: TorchGraph, rows: Int32, kind: int, stretches: TorchStretches) -> Stalls:
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
    count = len(names)
    return Stalls(
        names.astype(np.int32),
        np.full(count, kind, np.int8),
        np.bincount(which, minlength=count).astype(np.int32),
        np.bincount(which, total, count) / 1e9,
        np.bincount(which, path, count) / 1e9,
    )


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
        found: Int64 = sums[place] - excess
        return found

    return until(stop) - until(start)
