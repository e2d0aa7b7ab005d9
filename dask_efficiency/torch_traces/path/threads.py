"""The edges of threads: from each instant of a call stack to the next."""

from __future__ import annotations

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Bool, Int32
from dask_efficiency.torch_traces.path.call_stacks import CallStacks
from dask_efficiency.torch_traces.path.graph import EdgeKind, Edges, Nodes


def thread_edges(stacks: CallStacks, nodes: Nodes, positions: tuple[Int32, Int32], holds: Bool, blocks: Bool) -> Edges:
    """From the beginning or end of each event with nodes to the next one on its thread.

    Between events that are in no other one it weighs nothing, and neither does what leads to the end of a call that
    waits for the GPU. Edges that the lock of CUDA's runtime makes are not made again.

    Parameters
    ----------
    positions
        By row of the trace, the node of its beginning and the one of its end; missing where it has none.
    holds, blocks
        By row of the trace, whether it is a call that holds that lock, and whether it is one that waits.

    References
    ----------
    HTA (``traceinsight`` 0.6.1), ``_construct_graph_from_call_stack``. An edge's time belongs to the event that is the
    innermost one during it.
    """
    starts, stops = positions
    has_node = starts[stacks.event] != MISSING
    event, is_start, lane = stacks.event[has_node], stacks.is_start[has_node], stacks.lane[has_node]
    node = np.where(is_start, starts[event], stops[event])
    open_after = np.cumsum(np.where(is_start, 1, -1))
    shares = holds[event[:-1]] & holds[event[1:]] & (is_start[:-1] | ~is_start[1:])
    first = np.flatnonzero((lane[:-1] == lane[1:]) & ~shares)
    second = first + 1
    between = is_start[second] & (open_after[first] == 0)
    waits = ~is_start[second] & blocks[event[second]]
    source, target = node[first], node[second]
    owner = np.where(
        is_start[first],
        event[first],
        np.where(is_start[second], stacks.parent[event[first]], event[second]),
    )
    return Edges.from_columns(
        {
            "source": source,
            "target": target,
            "kind": np.where(between, EdgeKind.DEPENDENCY, EdgeKind.OPERATOR).astype(np.int8),
            "weight": np.where(between | waits, 0, nodes.at[target] - nodes.at[source]),
            "event": np.where(between, MISSING, owner).astype(np.int32),
        }
    )
