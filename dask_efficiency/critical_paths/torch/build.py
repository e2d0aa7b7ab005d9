"""build_graph: from a region's events to the graph of what each had to wait for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dask_efficiency.critical_paths.torch.call_stacks import call_stacks
from dask_efficiency.critical_paths.torch.calls import BLOCKING, call_kinds
from dask_efficiency.critical_paths.torch.graph import EdgeKind, Edges, Nodes, Region, TorchGraph
from dask_efficiency.critical_paths.torch.launches import work_edges
from dask_efficiency.critical_paths.torch.nodes import can_be_on_a_path, nodes_of
from dask_efficiency.critical_paths.torch.region import ON_THREADS
from dask_efficiency.critical_paths.torch.runtime_lock import holds_lock, lock_edges
from dask_efficiency.critical_paths.torch.streams import alone_in_queue, stream_work
from dask_efficiency.critical_paths.torch.syncs import Waits, waits_of_calls, waits_of_streams
from dask_efficiency.critical_paths.torch.threads import thread_edges
from dask_efficiency.kineto.trace import RankTrace
from dask_efficiency.trace.tables import MISSING, Bool, Int32


def build_graph(
    trace: RankTrace, region: Region, *, data_loading: Sequence[str] = (), infer: bool = True
) -> TorchGraph:
    """The graph of a region.

    Parameters
    ----------
    data_loading
        Regular expressions: events on threads with one of them in their names load data, and can be on a path.
    infer
        Whether to infer what calls waited for, where the trace has work on a GPU but no synchronisations.

    References
    ----------
    HTA (``traceinsight`` 0.6.1), ``CPGraph``. We differ: synchronisations have no nodes, as no path leads through
    them; an edge from a later instant to an earlier one is left out, since the trace itself shows that there was no
    such wait. What else is different stands with each kind of edges.
    """
    events = trace.events
    usable = can_be_on_a_path(trace, data_loading)
    on_threads = region.rows[np.isin(events.category[region.rows], ON_THREADS)]
    stacks = call_stacks(trace, on_threads, usable[on_threads])
    nodes = nodes_of(events.start, stacks.stop, region.rows[usable[region.rows]])
    positions = nodes.positions(len(events))
    holds, blocks = holds_lock(trace), np.isin(call_kinds(trace), BLOCKING)
    parts = [
        lock_edges(nodes, holds),
        thread_edges(stacks, nodes, positions, holds, blocks),
        _single(nodes, _gpu_edges(trace, nodes, positions)),
    ]
    return TorchGraph(trace, region, nodes, joined(parts), tuple(data_loading))


def joined(parts: Sequence[Edges]) -> Edges:
    """All edges in one table, in that order."""
    return Edges(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in Edges.dtypes()})


def _gpu_edges(trace: RankTrace, nodes: Nodes, positions: tuple[Int32, Int32]) -> list[Edges]:
    """The edges to, within and from work on GPUs."""
    starts, stops = positions
    everything = stream_work(trace)
    has_nodes: Bool = starts[everything.event] != MISSING
    alone = alone_in_queue(trace, everything)[has_nodes]
    work = everything.take(has_nodes)
    number = np.cumsum(has_nodes) - 1
    waits = waits_of_streams(trace, everything)
    both = has_nodes[waits.work] & has_nodes[waits.waiter]
    waits = Waits(number[waits.work[both]], number[waits.waiter[both]])
    called = waits_of_calls(trace, everything, has_nodes)
    good = has_nodes[called.work] & (stops[called.waiter] != MISSING)
    source, target = stops[everything.event[called.work[good]]], stops[called.waiter[good]]
    own, *to_work = work_edges(trace, nodes, positions, work, alone, waits)
    syncs = Edges.from_columns(
        {
            "source": source,
            "target": target,
            "kind": np.full(len(source), EdgeKind.SYNC, np.int8),
            "weight": np.zeros(len(source), np.int64),
        }
    )
    return [own, *to_work, syncs]


def _single(nodes: Nodes, parts: Sequence[Edges]) -> Edges:
    """One edge for each pair of nodes, the last one where the first one is; none that goes back in time."""
    edges = joined(parts)
    edges = edges.take(nodes.at[edges.source] <= nodes.at[edges.target])
    pair = edges.source.astype(np.int64) * len(nodes) + edges.target
    _, first = np.unique(pair, return_index=True)
    _, last = np.unique(pair[::-1], return_index=True)
    return edges.take((len(pair) - 1 - last)[np.argsort(first)])
