"""build_graph: from a region's events to the graph of what each had to wait for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Int32, Int64
from dask_efficiency.torch_traces.kineto.trace import CALLS, GPU_WORK, Category, RankTrace
from dask_efficiency.torch_traces.path.graph import (
    CycleError,
    EdgeKind,
    Edges,
    Nodes,
    Region,
    TorchGraph,
    joined,
    topological_ranks,
)
from dask_efficiency.torch_traces.path.inferred import inferred_syncs
from dask_efficiency.torch_traces.path.region import ON_THREADS
from dask_efficiency.torch_traces.path.roles import BLOCKING, call_kinds, events_matching
from dask_efficiency.torch_traces.path.streams import NEVER, alone_in_queue, stream_work, work_edges
from dask_efficiency.torch_traces.path.syncs import sync_edges
from dask_efficiency.torch_traces.path.threads import call_stacks, holds_lock, lock_edges, thread_edges


def _gpu_edges(trace: RankTrace, region: Region, nodes: Nodes, positions: tuple[Int32, Int32], *, infer: bool) -> Edges:
    """Edges to, within and from work on GPUs; ``positions`` are the nodes of starts and ends by row of the trace."""
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
    edges = joined([own, syncs, *to_work])
    # Of each pair of nodes the last edge stays, at the place of the first, and no edge that goes back in time.
    edges = edges.take(nodes.at[edges.source] <= nodes.at[edges.target])
    pair: Int64 = edges.source.astype(np.int64) * len(nodes) + edges.target
    _, first = np.unique(pair, return_index=True)
    _, last = np.unique(pair[::-1], return_index=True)
    return edges.take((len(pair) - 1 - last)[np.argsort(first)])


def build_graph(
    trace: RankTrace, region: Region, *, data_loading: Sequence[str] = (), infer: bool = True
) -> TorchGraph:
    """Build the graph of a region, as HTA's ``CPGraph``; without synchronisations, ``infer`` what calls waited for.

    ``data_loading`` are regular expressions for the names of events on threads that load data, which can be on a path.
    Unlike in HTA, synchronisations have no nodes, as no path leads through them; edges back in time are left out, since
    the trace shows that there was no such wait. Other differences are listed with each kind of edge.
    """
    events = trace.events
    usable = np.isin(events.category, (Category.OPERATOR, *CALLS, *GPU_WORK))
    if data_loading:
        usable |= np.isin(events.category, ON_THREADS) & events_matching(trace, data_loading)
    on_threads = region.rows[np.isin(events.category[region.rows], ON_THREADS)]
    stacks = call_stacks(trace, on_threads, usable[on_threads])
    rows = region.rows[usable[region.rows]]
    at = np.stack([events.start[rows], stacks.stop[rows]], axis=1).ravel()
    order = np.argsort(at, kind="stable")
    nodes = Nodes(at[order], rows[order // 2].astype(np.int32), order % 2 == 0)
    positions = nodes.positions(len(events))
    lane = np.full(len(events), MISSING, np.intp)
    lane[stacks.event] = stacks.lane
    holds, blocks = holds_lock(trace), np.isin(call_kinds(trace), BLOCKING)
    on_cpu = [lock_edges(nodes, holds, lane), thread_edges(stacks, nodes, positions, holds, blocks)]
    edges = joined([*on_cpu, _gpu_edges(trace, region, nodes, positions, infer=infer)])
    try:
        topological_ranks(nodes.at, edges.source, edges.target)
    except CycleError:
        # without those between equal instants, but for events' own
        edges = edges.take((nodes.at[edges.source] != nodes.at[edges.target]) | (edges.kind == EdgeKind.OPERATOR))
    return TorchGraph(trace, region, nodes, edges, tuple(data_loading))
