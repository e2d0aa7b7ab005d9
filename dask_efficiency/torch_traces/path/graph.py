"""TorchGraph: starts and ends of events as nodes, and what each had to wait for as edges; and their orders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Column, ColumnTable, Int8, Int32, Int64
from dask_efficiency.torch_traces.kineto.trace import RankTrace


class EdgeKind(IntEnum):
    """Reason why one instant cannot be before another one."""

    #: A stretch of an operator on its thread, or a kernel on its stream.
    OPERATOR = 0
    #: The order of operators on a thread, or of calls that hold the CUDA runtime's lock.
    DEPENDENCY = 1
    #: From a call to the start of the work on the GPU that it asked for.
    LAUNCH_DELAY = 2
    #: From the end of one kernel to the start of the next one on its stream.
    KERNEL_DELAY = 3
    #: A synchronisation between streams, or of the CPU with a stream.
    SYNC = 4


#: By kind, the category of its arrows in a Chrome trace: those of HTA.
FLOW_CATEGORIES = {
    EdgeKind.OPERATOR: "critical_path_operator",
    EdgeKind.DEPENDENCY: "critical_path_dependency",
    EdgeKind.LAUNCH_DELAY: "critical_path_kernel_launch_delay",
    EdgeKind.KERNEL_DELAY: "critical_path_kernel_kernel_delay",
    EdgeKind.SYNC: "critical_path_sync_dependency",
}


@dataclass(frozen=True, slots=True)
class Region:
    """The part of a rank's trace that a path explains."""

    #: Nanoseconds, on the rank's clock.
    start: int
    stop: int
    #: Rows of its events, ascending. Work on a GPU is in it if the call that asked for it is.
    rows: Int32
    #: What was asked for, in words.
    description: str = ""


def starts_and_stops(event: Int32, is_start: Bool, events: int) -> tuple[Int32, Int32]:
    """Index the positions of events' starts and ends by row of the event; missing where it has none."""
    starts, stops = np.full(events, MISSING, np.int32), np.full(events, MISSING, np.int32)
    position = np.arange(len(event), dtype=np.int32)
    starts[event[is_start]] = position[is_start]
    stops[event[~is_start]] = position[~is_start]
    return starts, stops


@dataclass(frozen=True, slots=True, repr=False)
class Nodes(ColumnTable):
    """Two rows for each event of the region that can be on a path, in time order (then by the event's row)."""

    at: Annotated[Int64, Column(unit="nanoseconds")]
    #: Row of the event.
    event: Int32
    is_start: Bool

    def positions(self, events: int) -> tuple[Int32, Int32]:
        """:func:`starts_and_stops` of the nodes."""
        return starts_and_stops(self.event, self.is_start, events)


@dataclass(frozen=True, slots=True, repr=False)
class Edges(ColumnTable):
    """A row for each pair of nodes of which the second cannot be before the first; no pair is there twice.

    Of several ways to a node that are equally long, a path takes the first one in this order.
    """

    #: Positions in the nodes.
    source: Int32
    target: Int32
    #: An :class:`EdgeKind`.
    kind: Int8
    #: Length that it adds to a path.
    weight: Annotated[Int64, Column(unit="nanoseconds")]
    #: Row of the event whose time this is; missing where it is no event's.
    event: Int32
    #: True if the trace does not record it, and it was inferred from how calls wait.
    inferred: Bool

    @classmethod
    def of(cls, source: Any, target: Any, kind: Any, weight: Any, event: Any = MISSING, inferred: Any = False) -> Self:
        """Edges between nodes; the other columns may be one value for all."""
        others = (kind, weight, event, inferred)
        return cls(source, target, *(np.broadcast_to(column, len(source)) for column in others))


def joined(parts: Sequence[Edges]) -> Edges:
    """Concatenate edges in one table, in that order."""
    return Edges(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in Edges.dtypes()})


def waits_as_edges(source: NDArray[np.integer], target: NDArray[np.integer], *, inferred: bool) -> Edges:
    """Edges without weight between the nodes of waits, where both are there."""
    known = (source != MISSING) & (target != MISSING)
    return Edges.of(source[known], target[known], EdgeKind.SYNC, 0, inferred=inferred)


@dataclass(frozen=True, slots=True)
class TorchGraph:
    """Graph of what the events of one rank's region had to wait for."""

    trace: RankTrace
    region: Region
    nodes: Nodes
    edges: Edges
    #: Patterns (regular expressions) of the names of events that load data.
    data_loading: tuple[str, ...] = ()


class CycleError(ValueError):
    """Edges have a cycle, in which nothing could have been first."""


def places_in(order: NDArray[np.integer]) -> Int64:
    """Invert an order: the place of each item in it."""
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return places


def topological_ranks(at: Int64, source: Int32, target: Int32) -> NDArray[np.intp]:
    """Place of each node in a topological order, that of time (``at`` is ascending) if possible; else CycleError."""
    if not np.any(source >= target):
        return np.arange(len(at))
    if np.any(at[source] > at[target]):
        order = _order(len(at), source, target)
    else:
        together = at[source] == at[target]
        order = np.lexsort((_places(len(at), source[together], target[together]), at))
    return places_in(order)


def _places(nodes: int, source: Int32, target: Int32) -> NDArray[np.intp]:
    """Places of nodes in an order for these edges; 0 for nodes without edges."""
    connected, ends = np.unique(np.concatenate([source, target]), return_inverse=True)
    places = np.zeros(nodes, np.intp)
    places[connected[_order(len(connected), ends[: len(source)], ends[len(source) :])]] = np.arange(len(connected))
    return places


def _order(nodes: int, source: NDArray[np.integer], target: NDArray[np.integer]) -> NDArray[np.intp]:
    """Nodes in an order for these edges."""
    order = before_any_cycle(nodes, source, target)
    if len(order) < nodes:
        raise CycleError(f"the edges have a cycle; {nodes - len(order)} nodes are in it or behind it")
    return order


def before_any_cycle(nodes: int, source: NDArray[np.integer], target: NDArray[np.integer]) -> NDArray[np.intp]:
    """Nodes in an order for these edges, without those in a cycle or behind one (Kahn, CACM 5, 1962)."""
    targets = target[np.argsort(source, kind="stable")].tolist()
    first = np.concatenate([[0], np.cumsum(np.bincount(source, minlength=nodes))]).tolist()
    waiting = np.bincount(target, minlength=nodes).tolist()
    order = [node for node, edges in enumerate(waiting) if not edges]
    # the list grows while it is iterated
    for node in order:
        for after in targets[first[node] : first[node + 1]]:
            waiting[after] -= 1
            if not waiting[after]:
                order.append(after)
    return np.array(order, np.intp)
