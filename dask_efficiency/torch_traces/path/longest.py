"""The longest path through a graph; :mod:`~dask_efficiency.torch_traces.path.tiling` says how it fits in."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Int32, Int64
from dask_efficiency.torch_traces.path.graph import TorchGraph
from dask_efficiency.torch_traces.path.ordering import topological_ranks

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
