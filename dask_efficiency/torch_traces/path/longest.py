"""The longest path through a graph: found, broken down, and in tables; ``tiling.py`` says how it fits in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Column, Int8, Int32, Int64, Table
from dask_efficiency.torch_traces.kineto.trace import KINETO_CATEGORIES, Category
from dask_efficiency.torch_traces.path.graph import FLOW_CATEGORIES, EdgeKind, TorchGraph
from dask_efficiency.torch_traces.path.ordering import topological_ranks
from dask_efficiency.torch_traces.path.roles import gpu_collectives, matching

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd

#: Edges converted to Python integers at a time.
_CHUNK = 1 << 16


def longest_path(graph: TorchGraph) -> Int32:
    """Find the nodes of the longest path, as positions in order; no node if the graph has none.

    It begins at a node to which no edge leads. Of several that are equally long it is the one that ends first; of
    several ways to a node the first one in the order of the edges.

    Raises
    ------
    CycleError
        If edges lead in a circle; those of :func:`~dask_efficiency.torch_traces.path.build.build_graph` do not.
    """
    nodes, edges = graph.nodes, graph.edges
    if not len(nodes):
        return np.empty(0, np.int32)
    rank = topological_ranks(nodes.at, edges.source, edges.target)
    order = np.argsort(rank[edges.target], kind="stable")
    length, previous = _lengths(len(nodes), edges.source[order], edges.target[order], edges.weight[order])
    ends = np.flatnonzero(length == length.max())
    node = int(ends[np.argmin(rank[ends])])
    path = []
    before = previous.tolist()
    while node != MISSING:
        path.append(node)
        node = before[node]
    return np.array(path[::-1], np.int32)


def _lengths(nodes: int, source: Int32, target: Int32, weight: Int64) -> tuple[Int64, NDArray[np.int64]]:
    """Compute for each node the length of the longest way to it, and the node before it on that way.

    The edges are in an order in which all that lead to a node come before any that leaves it. Each step needs the one
    before it, and numbers of Python's are then faster than numpy's.
    """
    longest = np.zeros(nodes, np.int64)
    longest[target] = MISSING
    length = longest.tolist()
    previous = [MISSING] * nodes
    for first in range(0, len(source), _CHUNK):
        chunk = slice(first, first + _CHUNK)
        for begin, end, more in zip(
            source[chunk].tolist(), target[chunk].tolist(), weight[chunk].tolist(), strict=True
        ):
            reached = length[begin] + more
            if reached > length[end]:
                length[end] = reached
                previous[end] = begin
    return np.array(length, np.int64), np.array(previous, np.int64)


class Bound(StrEnum):
    """What would have to be faster for a path to be shorter; the names are HTA's."""

    CPU = "cpu_bound"
    GPU_COMPUTE = "gpu_compute_bound"
    GPU_COMMUNICATION = "gpu_communication_bound"
    GPU_KERNEL_GAPS = "gpu_kernel_kernel_overhead"
    GPU_LAUNCHES = "gpu_kernel_launch_overhead"
    DATA_LOADING = "data_loading_bound"


#: Bounds by position, as :class:`PathBreakdown` holds them.
BOUNDS = tuple(Bound)


@dataclass(frozen=True, slots=True, repr=False)
class PathBreakdown(Table):
    """A row for each edge of a path, in order."""

    #: Position in the graph's edges.
    edge: Int32
    #: An :class:`~dask_efficiency.torch_traces.path.graph.EdgeKind`.
    kind: Int8
    #: Row of the event whose time it is; missing where it is no event's.
    event: Int32
    duration: Annotated[Int64, Column(unit="nanoseconds")]
    #: Position in :data:`BOUNDS`; missing for edges that take no time of their own.
    bound_by: Annotated[Int8, Column(points_into=Bound)]


def path_edges(graph: TorchGraph, nodes: Int32) -> Int32:
    """Positions of the edges of a path, in order.

    Parameters
    ----------
    nodes
        Positions of the path's nodes, in order.

    Raises
    ------
    ValueError
        If no edge leads from a node to the next one.
    """
    edges = graph.edges
    after = np.full(len(graph.nodes), MISSING, np.int32)
    place = np.zeros(len(graph.nodes), np.int32)
    after[nodes[:-1]] = nodes[1:]
    place[nodes] = np.arange(len(nodes))
    on_path = np.flatnonzero(after[edges.source] == edges.target)
    found: Int32 = on_path[np.argsort(place[edges.source[on_path]])].astype(np.int32)
    if len(found) != max(len(nodes) - 1, 0):
        missing = np.setdiff1d(nodes[:-1], edges.source[found])
        raise ValueError(f"no edge of the path leaves node {missing[0]}")
    return found


def breakdown(graph: TorchGraph, edges: Int32) -> PathBreakdown:
    """What each edge of a path was spent on.

    Parameters
    ----------
    edges
        Positions of the path's edges.

    References
    ----------
    HTA (``traceinsight`` 0.6.1), ``get_critical_path_breakdown``.
    """
    some = graph.edges.take(edges)
    return PathBreakdown(edges, some.kind, some.event, some.weight, bounds(graph)[edges])


def bounds(graph: TorchGraph) -> Int8:
    """For each edge of a graph the position in :data:`BOUNDS`; missing for edges that take no time of their own."""
    category = graph.trace.events.category
    of_event = np.full(len(category), BOUNDS.index(Bound.CPU), np.int8)
    of_event[matching(graph.trace, graph.data_loading)] = BOUNDS.index(Bound.DATA_LOADING)
    of_event[graph.trace.events.is_gpu_work] = BOUNDS.index(Bound.GPU_COMPUTE)
    of_event[gpu_collectives(graph.trace)] = BOUNDS.index(Bound.GPU_COMMUNICATION)
    kind = graph.edges.kind
    found = np.full(len(kind), MISSING, np.int8)
    found[kind == EdgeKind.KERNEL_DELAY] = BOUNDS.index(Bound.GPU_KERNEL_GAPS)
    found[kind == EdgeKind.LAUNCH_DELAY] = BOUNDS.index(Bound.GPU_LAUNCHES)
    operator = (kind == EdgeKind.OPERATOR) & (graph.edges.event != MISSING)
    found[operator] = of_event[graph.edges.event[operator]]
    return found


def summary(graph: TorchGraph, edges: Int32) -> dict[str, float]:
    """Shares of a path's length by what bounds it.

    Parameters
    ----------
    edges
        Positions of the path's edges.

    Returns
    -------
    dict
        Of :class:`Bound`'s names, in [0, 1]; their sum is 1, or 0 for a path without length.

    References
    ----------
    HTA (``traceinsight`` 0.6.1), ``summary``. We differ: shares, not percent; all names are always there.
    """
    rows = breakdown(graph, edges)
    # rows without a bound weigh nothing, and come last
    sums = np.bincount(rows.bound_by.astype(np.intp) % (len(BOUNDS) + 1), rows.duration, len(BOUNDS) + 1)
    total = max(float(sums.sum()), 1.0)
    return {str(bound): float(part / total) for bound, part in zip(BOUNDS, sums.tolist(), strict=False)}


def nodes_frame(graph: TorchGraph, longest: Int32) -> pd.DataFrame:
    """Starts and ends of events; :meth:`~dask_efficiency.torch_traces.TorchCriticalPath.nodes` says which columns."""
    import pandas as pd

    return pd.DataFrame(_nodes(graph, longest))


def edges_frame(graph: TorchGraph, on_path: Int32) -> pd.DataFrame:
    """What nodes had to wait for; :meth:`~dask_efficiency.torch_traces.TorchCriticalPath.edges` says which columns."""
    import pandas as pd

    edges = graph.edges
    ends = {"source": edges.source, "target": edges.target}
    return pd.DataFrame(ends | {"weight_seconds": edges.weight / 1e9} | _edges(graph, on_path))


def breakdown_frame(graph: TorchGraph, on_path: Int32) -> pd.DataFrame:
    """The edges of the longest path; see :meth:`~dask_efficiency.torch_traces.TorchCriticalPath.breakdown`."""
    import pandas as pd

    table = breakdown(graph, on_path)
    columns = {
        "edge": table.edge,
        "kind": _kinds(table.kind),
        "bound_by": [str(BOUNDS[number]) if number != MISSING else "" for number in table.bound_by],
        "duration_seconds": table.duration / 1e9,
    }
    return pd.DataFrame(columns | _about(graph, table.event))


def to_networkx(graph: TorchGraph, longest: Int32, on_path: Int32) -> nx.DiGraph[int]:
    """The graph for networkx; :meth:`~dask_efficiency.torch_traces.TorchCriticalPath.to_networkx` says more."""
    try:
        import networkx as nx
    except ImportError as error:
        raise ImportError("to_networkx() needs networkx, which is not installed: pip install networkx") from error
    made: nx.DiGraph[int] = nx.DiGraph(rank=graph.trace.rank)
    made.add_nodes_from(enumerate(_rows(_nodes(graph, longest))))
    ends = graph.edges.source.tolist(), graph.edges.target.tolist()
    rows = _rows({"weight": graph.edges.weight} | _edges(graph, on_path))
    made.add_edges_from((source, target, row) for source, target, row in zip(*ends, rows, strict=True))
    return made


def _nodes(graph: TorchGraph, longest: Int32) -> dict[str, Any]:
    nodes = graph.nodes
    critical = _chosen(len(nodes), longest)
    return {"at": nodes.at, "is_start": nodes.is_start, "critical": critical} | _about(graph, nodes.event)


def _edges(graph: TorchGraph, on_path: Int32) -> dict[str, Any]:
    edges = graph.edges
    critical = _chosen(len(edges), on_path)
    return {"kind": _kinds(edges.kind), "inferred": edges.inferred, "critical": critical} | _about(graph, edges.event)


def _about(graph: TorchGraph, event: Int32) -> dict[str, Any]:
    """Columns that say which events these are; None or MISSING where it is none."""
    trace, there = graph.trace, event != MISSING
    events, row = trace.events, np.where(event != MISSING, event, 0)
    known = there.tolist()
    names = [trace.names[number] for number in events.name[row].tolist()]
    categories = [KINETO_CATEGORIES[Category(number)] for number in events.category[row].tolist()]
    numbers = {
        column: np.where(there, getattr(events, column)[row], MISSING)
        for column in ("index", "process", "thread", "stream")
    }
    return {
        "name": [name if is_known else None for name, is_known in zip(names, known, strict=True)],
        "category": [name if is_known else None for name, is_known in zip(categories, known, strict=True)],
        "event": numbers.pop("index"),
        **numbers,
    }


def _chosen(length: int, positions: Int32) -> Bool:
    found = np.zeros(length, np.bool_)
    found[positions] = True
    return found


def _kinds(kind: Int8) -> list[str]:
    return [FLOW_CATEGORIES[EdgeKind(number)] for number in kind.tolist()]


def _rows(columns: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Columns of arrays or lists as a dictionary for each row."""
    lists = [column.tolist() if isinstance(column, np.ndarray) else column for column in columns.values()]
    for row in zip(*lists, strict=True):
        yield dict(zip(columns, row, strict=True))
