"""All edges to, within and from work on GPUs."""

from __future__ import annotations

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Int32, Int64
from dask_efficiency.torch_traces.kineto.trace import Category, RankTrace
from dask_efficiency.torch_traces.path.graph import Edges, Nodes, Region, joined
from dask_efficiency.torch_traces.path.inferred import inferred_syncs
from dask_efficiency.torch_traces.path.launches import NEVER, work_edges
from dask_efficiency.torch_traces.path.streams import alone_in_queue, stream_work
from dask_efficiency.torch_traces.path.syncs import sync_edges


def gpu_edges(trace: RankTrace, region: Region, nodes: Nodes, positions: tuple[Int32, Int32], *, infer: bool) -> Edges:
    """What work on GPUs waited for, and what waited for it.

    Parameters
    ----------
    positions
        By row of the trace, the node of its beginning and the one of its end; missing where it has none.
    infer
        Whether to infer waits where the trace has no synchronisations.
    """
    everything = stream_work(trace)
    has_nodes = positions[0][everything.event] != MISSING
    alone = alone_in_queue(trace, everything)[has_nodes]
    work = everything.take(has_nodes)
    syncs = sync_edges(trace, everything, nodes, positions)
    if infer and len(work.event) and not np.any(trace.events.category == Category.SYNC):
        syncs = inferred_syncs(trace, region, nodes)
    syncs = syncs.take(nodes.at[syncs.source] <= nodes.at[syncs.target])
    waited = np.full(len(nodes), NEVER)
    np.maximum.at(waited, syncs.target, nodes.at[syncs.source])
    own, *to_work = work_edges(trace, nodes, positions, work, alone, waited[positions[0][work.event]])
    return _single(nodes, joined([own, syncs, *to_work]))


def _single(nodes: Nodes, edges: Edges) -> Edges:
    """One edge for each pair of nodes, the last one where the first one is; none that goes back in time."""
    edges = edges.take(nodes.at[edges.source] <= nodes.at[edges.target])
    pair: Int64 = edges.source.astype(np.int64) * len(nodes) + edges.target
    _, first = np.unique(pair, return_index=True)
    _, last = np.unique(pair[::-1], return_index=True)
    return edges.take((len(pair) - 1 - last)[np.argsort(first)])
