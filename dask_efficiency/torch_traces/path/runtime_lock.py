"""What calls of the CUDA runtime had to wait for because one of them at a time holds the runtime's lock."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Int64
from dask_efficiency.torch_traces.kineto.trace import RankTrace
from dask_efficiency.torch_traces.path.calls import HOLD_THE_RUNTIMES_LOCK, named
from dask_efficiency.torch_traces.path.graph import EdgeKind, Edges, Nodes


def holds_lock(trace: RankTrace) -> Bool:
    """Whether each event is a call that holds the lock."""
    return trace.events.is_call & named(trace, lambda name: name in HOLD_THE_RUNTIMES_LOCK)


def lock_edges(nodes: Nodes, holds: Bool, lane: NDArray[np.integer]) -> Edges:
    """From the beginning of each such call to the next end of one, and from an end to the next if none began between.

    Parameters
    ----------
    holds
        By row of the trace, whether it holds the lock.
    lane
        By row of the trace, the number of its thread.

    References
    ----------
    HTA (``traceinsight`` 0.6.1), ``_construct_graph_from_cuda_runtime_events``: of calls that overlap, the one that
    ended first is taken to have had the lock first. We differ: a call that begins as another one of its thread ends
    did not begin before that one, whatever their rows.
    """
    of_lock = np.flatnonzero(holds[nodes.event])
    is_start = nodes.is_start[of_lock]
    ends = np.flatnonzero(~is_start)
    begins = np.flatnonzero(is_start)
    next_end = ends[_next_ends(nodes.at[of_lock], lane[nodes.event[of_lock]], begins, ends)]
    # of those that lead to one end, the one that began last comes first
    begins, next_end = begins[::-1], next_end[::-1]
    same = nodes.event[of_lock[begins]] == nodes.event[of_lock[next_end]]
    after_end = ends[(ends > 0) & ~is_start[ends - 1]]
    source = of_lock[np.concatenate([begins, after_end - 1])]
    target = of_lock[np.concatenate([next_end, after_end])]
    own = np.concatenate([same, np.zeros(len(after_end), np.bool_)])
    return Edges.from_columns(
        {
            "source": source.astype(np.int32),
            "target": target.astype(np.int32),
            "kind": np.where(own, EdgeKind.OPERATOR, EdgeKind.DEPENDENCY).astype(np.int8),
            "weight": np.where(own, nodes.at[target] - nodes.at[source], 0),
            "event": np.where(own, nodes.event[target], MISSING),
        }
    )


def _next_ends(
    at: Int64, lane: NDArray[np.integer], begins: NDArray[np.intp], ends: NDArray[np.intp]
) -> NDArray[np.intp]:
    """For each beginning, which end is the next one that is not one before it on its own thread."""
    # every call that begins also ends, and later, so there is a next one
    number = np.searchsorted(ends, begins)
    while (before := (at[ends[number]] == at[begins]) & (lane[ends[number]] == lane[begins])).any():
        number[before] += 1
    return number
