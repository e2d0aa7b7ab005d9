"""What a path through a graph was spent on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Column, Int8, Int32, Int64, Table
from dask_efficiency.torch_traces.path.calls import matching
from dask_efficiency.torch_traces.path.exchanges import gpu_collectives
from dask_efficiency.torch_traces.path.graph import EdgeKind, TorchGraph


class Bound(StrEnum):
    """What would have to be faster for a path to be shorter; the names are HTA's."""

    CPU = "cpu_bound"
    GPU_COMPUTE = "gpu_compute_bound"
    GPU_COMMUNICATION = "gpu_communication_bound"
    GPU_KERNEL_GAPS = "gpu_kernel_kernel_overhead"
    GPU_LAUNCHES = "gpu_kernel_launch_overhead"
    DATA_LOADING = "data_loading_bound"


#: Bounds by position, as :class:`Breakdown` holds them.
BOUNDS = tuple(Bound)


@dataclass(frozen=True, slots=True, repr=False)
class Breakdown(Table):
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


def breakdown(graph: TorchGraph, edges: Int32) -> Breakdown:
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
    return Breakdown(edges, some.kind, some.event, some.weight, bounds(graph)[edges])


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
