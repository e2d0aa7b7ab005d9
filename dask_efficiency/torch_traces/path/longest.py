"""The longest path through a graph: found, broken down, and in tables; see the essay in ``tiling.py``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Column, ColumnTable, Int8, Int32, Int64
from dask_efficiency.torch_traces.kineto.numbers import mask_of
from dask_efficiency.torch_traces.kineto.trace import KINETO_CATEGORIES, Category
from dask_efficiency.torch_traces.path.graph import FLOW_CATEGORIES, EdgeKind, TorchGraph, topological_ranks
from dask_efficiency.torch_traces.path.roles import events_matching, gpu_collectives

if TYPE_CHECKING:
    import networkx as nx

#: Edges converted to Python integers at a time: a few MB (a guess: nothing depends on it).
_CHUNK = 1 << 16


def longest_path(graph: TorchGraph) -> Int32:
    """Find the nodes of the longest path, as positions in order; none if the graph has none.

    Of several longest paths it is the one that ends first, and of several equally long ways to a node the first one in
    the order of edges. Raises CycleError if the edges have a cycle; those of ``build_graph`` do not.
    """
    nodes, edges = graph.nodes, graph.edges
    if not len(nodes):
        return np.empty(0, np.int32)
    rank = topological_ranks(nodes.at, edges.source, edges.target)
    order = np.argsort(rank[edges.target], kind="stable")
    # Each step needs the previous one, so Python's numbers are faster than numpy's.
    longest = np.zeros(len(nodes), np.int64)
    longest[edges.target] = MISSING
    length, previous = longest.tolist(), [MISSING] * len(nodes)
    for first in range(0, len(order), _CHUNK):
        chunk = order[first : first + _CHUNK]
        columns = (column[chunk].tolist() for column in (edges.source, edges.target, edges.weight))
        for begin, end, weight in zip(*columns, strict=True):
            reached = length[begin] + weight
            if reached > length[end]:
                length[end], previous[end] = reached, begin
    longest = np.array(length, np.int64)
    ends = np.flatnonzero(longest == longest.max())
    path, node = [], int(ends[np.argmin(rank[ends])])
    while node != MISSING:
        path.append(node)
        node = previous[node]
    return np.array(path[::-1], np.int32)


class Bound(StrEnum):
    """Resource that bounds a path; the names are HTA's."""

    CPU = "cpu_bound"
    GPU_COMPUTE = "gpu_compute_bound"
    GPU_COMMUNICATION = "gpu_communication_bound"
    GPU_KERNEL_GAPS = "gpu_kernel_kernel_overhead"
    GPU_LAUNCHES = "gpu_kernel_launch_overhead"
    DATA_LOADING = "data_loading_bound"


#: Bounds by position, as :class:`PathBreakdown` holds them.
BOUNDS = tuple(Bound)


@dataclass(frozen=True, slots=True, repr=False)
class PathBreakdown(ColumnTable):
    """A row for each edge of a path, in order."""

    #: Position in the graph's edges.
    edge: Int32
    #: An :class:`~dask_efficiency.torch_traces.path.graph.EdgeKind`.
    kind: Int8
    #: Row of the event whose time it is; missing where it belongs to none.
    event: Int32
    duration: Annotated[Int64, Column(unit="nanoseconds")]
    #: Position in :data:`BOUNDS`; missing for edges without time of their own.
    bound_by: Annotated[Int8, Column(points_into=Bound)]


def path_edges(graph: TorchGraph, nodes: Int32) -> Int32:
    """Positions of the edges between a path's nodes, in order. Raises a ValueError if one is missing."""
    edges = graph.edges
    after = np.full(len(graph.nodes), MISSING, np.int32)
    place = np.zeros(len(graph.nodes), np.int32)
    after[nodes[:-1]] = nodes[1:]
    place[nodes] = np.arange(len(nodes))
    on_path = np.flatnonzero(after[edges.source] == edges.target)
    positions: Int32 = on_path[np.argsort(place[edges.source[on_path]])].astype(np.int32)
    if len(positions) != max(len(nodes) - 1, 0):
        missing = np.setdiff1d(nodes[:-1], edges.source[positions])
        raise ValueError(f"no edge of the path leaves node {missing[0]}")
    return positions


def breakdown(graph: TorchGraph, edges: Int32) -> PathBreakdown:
    """Break a path down by edge, as HTA's ``get_critical_path_breakdown``."""
    some = graph.edges.take(edges)
    return PathBreakdown(edges, some.kind, some.event, some.weight, bounds(graph)[edges])


def bounds(graph: TorchGraph) -> Int8:
    """Position in :data:`BOUNDS` of each edge of a graph; missing for edges without time of their own."""
    category = graph.trace.events.category
    of_event = np.full(len(category), BOUNDS.index(Bound.CPU), np.int8)
    of_event[events_matching(graph.trace, graph.data_loading)] = BOUNDS.index(Bound.DATA_LOADING)
    of_event[graph.trace.events.is_gpu_work] = BOUNDS.index(Bound.GPU_COMPUTE)
    of_event[gpu_collectives(graph.trace)] = BOUNDS.index(Bound.GPU_COMMUNICATION)
    kind = graph.edges.kind
    bound = np.full(len(kind), MISSING, np.int8)
    bound[kind == EdgeKind.KERNEL_DELAY] = BOUNDS.index(Bound.GPU_KERNEL_GAPS)
    bound[kind == EdgeKind.LAUNCH_DELAY] = BOUNDS.index(Bound.GPU_LAUNCHES)
    operator = (kind == EdgeKind.OPERATOR) & (graph.edges.event != MISSING)
    bound[operator] = of_event[graph.edges.event[operator]]
    return bound


def summary(graph: TorchGraph, edges: Int32) -> dict[str, float]:
    """Shares of a path's length by every :class:`Bound`, in [0, 1]; HTA's ``summary`` has percent of some."""
    rows = breakdown(graph, edges)
    # rows without a bound weigh nothing, and get the last place
    sums = np.bincount(rows.bound_by.astype(np.intp) % (len(BOUNDS) + 1), rows.duration, len(BOUNDS) + 1)
    total = max(float(sums.sum()), 1.0)
    return {str(bound): float(part / total) for bound, part in zip(BOUNDS, sums.tolist(), strict=False)}


def breakdown_columns(graph: TorchGraph, on_path: Int32) -> dict[str, Any]:
    """Columns of :meth:`~dask_efficiency.torch_traces.TorchCriticalPath.breakdown`."""
    table = breakdown(graph, on_path)
    bound_by = [str(BOUNDS[number]) if number != MISSING else "" for number in table.bound_by]
    columns = {"edge": table.edge, "kind": _kinds(table.kind), "bound_by": bound_by}
    return columns | {"duration_seconds": table.duration / 1e9} | _event_columns(graph, table.event)


def to_networkx(graph: TorchGraph, longest: Int32, on_path: Int32) -> nx.DiGraph[int]:
    """A graph for :meth:`~dask_efficiency.torch_traces.TorchCriticalPath.to_networkx`."""
    try:
        import networkx as nx
    except ImportError as error:
        raise ImportError("to_networkx() needs networkx, which is not installed: pip install networkx") from error
    edges = graph.edges
    made: nx.DiGraph[int] = nx.DiGraph(rank=graph.trace.rank)
    made.add_nodes_from(enumerate(_rows(node_columns(graph, longest))))
    columns = edge_columns(graph, on_path)
    columns = {"weight": edges.weight} | {name: columns[name] for name in list(columns)[3:]}
    ends = edges.source.tolist(), edges.target.tolist()
    made.add_edges_from((source, target, row) for source, target, row in zip(*ends, _rows(columns), strict=True))
    return made


def node_columns(graph: TorchGraph, longest: Int32) -> dict[str, Any]:
    """Columns of :meth:`~dask_efficiency.torch_traces.TorchCriticalPath.nodes`."""
    nodes = graph.nodes
    columns = {"at": nodes.at, "is_start": nodes.is_start, "critical": mask_of(longest, len(nodes))}
    return columns | _event_columns(graph, nodes.event)


def edge_columns(graph: TorchGraph, on_path: Int32) -> dict[str, Any]:
    """Columns of :meth:`~dask_efficiency.torch_traces.TorchCriticalPath.edges`."""
    edges = graph.edges
    columns = {"source": edges.source, "target": edges.target, "weight_seconds": edges.weight / 1e9}
    columns |= {"kind": _kinds(edges.kind), "inferred": edges.inferred, "critical": mask_of(on_path, len(edges))}
    return columns | _event_columns(graph, edges.event)


def _event_columns(graph: TorchGraph, event: Int32) -> dict[str, Any]:
    """Columns about some events; None or MISSING where there is no event."""
    trace, has_event = graph.trace, event != MISSING
    events, known = trace.events, has_event.tolist()
    names = [trace.names[name] if is_known else None for name, is_known in zip(events.name[event], known, strict=True)]
    categories = zip(events.category[event].tolist(), known, strict=True)
    of_file = {"event": "index", "process": "process", "thread": "thread", "stream": "stream"}
    return {
        "name": names,
        "category": [KINETO_CATEGORIES[Category(number)] if is_known else None for number, is_known in categories],
        **{name: np.where(has_event, getattr(events, column)[event], MISSING) for name, column in of_file.items()},
    }


def _kinds(kind: Int8) -> list[str]:
    return [FLOW_CATEGORIES[EdgeKind(number)] for number in kind.tolist()]


def _rows(columns: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Each row of some columns as a dictionary."""
    lists = [column.tolist() if isinstance(column, np.ndarray) else column for column in columns.values()]
    for row in zip(*lists, strict=True):
        yield dict(zip(columns, row, strict=True))
