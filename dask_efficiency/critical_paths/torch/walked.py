"""What the walk knows that nodes waited for, beside the edges of their graph."""

from __future__ import annotations

import numpy as np

from dask_efficiency.critical_paths.torch.causes import last_causes
from dask_efficiency.critical_paths.torch.graph import TorchGraph
from dask_efficiency.critical_paths.torch.instants import Instants
from dask_efficiency.trace.tables import MISSING, Int64


def walked_waits(graph: TorchGraph) -> tuple[Int64, Int64]:
    """Pairs of nodes of which the second waited for the first, as the walk has it, and no edge says so.

    A thread that was idle until another one was done, or until a collective was, has no such edge in the graph.
    """
    nodes, edges = graph.nodes, graph.edges
    instants = Instants.of(graph)
    cause = last_causes(graph, instants).cause
    node_of = np.full(len(instants) + 1, MISSING, np.int64)
    there = np.flatnonzero(instants.of_node != MISSING)
    node_of[instants.of_node[there]] = there
    found = np.full(len(nodes), MISSING, np.int64)
    found[there] = cause[instants.of_node[there]]
    # What has no node has causes of its own.
    while len(between := np.flatnonzero((found != MISSING) & (node_of[found] == MISSING))):
        found[between] = cause[found[between]]
    source, target = np.where(found != MISSING, node_of[found], MISSING), np.arange(len(nodes), dtype=np.int64)
    known = (source != MISSING) & (source < target)
    known[known] &= nodes.at[source[known]] <= nodes.at[target[known]]
    said = edges.source.astype(np.int64) * len(nodes) + edges.target
    known &= ~np.isin(source * len(nodes) + target, said)
    return source[known], target[known]
