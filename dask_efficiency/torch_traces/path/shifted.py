"""A rank's trace whose events moved with the nodes of its graph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dask_efficiency.accounts.tables import Int64
from dask_efficiency.torch_traces.kineto.trace import RankTrace
from dask_efficiency.torch_traces.path.graph import Region, TorchGraph
from dask_efficiency.torch_traces.path.lanes import pairs_ranked


def shifted_trace(graph: TorchGraph, at: Int64) -> tuple[RankTrace, Region]:
    """The trace and the region of a graph with its nodes at other instants.

    Parameters
    ----------
    at
        By node of the graph, its new instant in nanoseconds.

    Returns
    -------
    trace, region
        Events without nodes move with those of their thread, and what comes after the region with its end.
    """
    events, nodes, region = graph.trace.events, graph.nodes, graph.region
    if not len(nodes):
        return graph.trace, region
    later = int(at.max()) - int(nodes.at.max())
    lane, others = pairs_ranked(events.process, events.thread), _without_nodes(graph)
    lane_of_node = lane[nodes.event]
    moved = []
    for instants, is_start in ((events.start, True), (events.stop, False)):
        now = instants + np.where(instants >= region.stop, later, 0)
        within = others[(instants[others] > region.start) & (instants[others] < region.stop)]
        for number in np.unique(lane[within]).tolist():
            rows, beside = within[lane[within] == number], np.flatnonzero(lane_of_node == number)
            beside = beside if len(beside) else np.arange(len(nodes))
            now[rows] += _shift(instants[rows], nodes.at[beside], at[beside], region.start)
        mine = nodes.is_start == is_start
        now[nodes.event[mine]] = at[mine]
        moved.append(now)
    start, stop = moved
    again = replace(events, start=start, stop=np.maximum(start, stop))
    return replace(graph.trace, events=again), replace(region, stop=region.stop + later)


def _without_nodes(graph: TorchGraph) -> Int64:
    there = np.zeros(len(graph.trace.events), np.bool_)
    there[graph.nodes.event] = True
    return np.flatnonzero(~there).astype(np.int64)


def _shift(instants: Int64, was: Int64, now: Int64, origin: int) -> Int64:
    """How far instants move with the nodes around them; nanoseconds since the epoch do not fit into floats."""
    moved = np.maximum.accumulate(now) - was
    found = np.interp((instants - origin).astype(np.float64), (was - origin).astype(np.float64), moved)
    return np.round(found).astype(np.int64)
