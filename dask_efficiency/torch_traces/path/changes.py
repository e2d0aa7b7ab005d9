"""A job's graphs with changes: every weight, instant and event is worked out anew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Float64, Int64
from dask_efficiency.torch_traces.kineto.trace import RankTrace
from dask_efficiency.torch_traces.path.collectives import CollectiveArrivals
from dask_efficiency.torch_traces.path.graph import EdgeKind, Edges, Nodes, Region, TorchGraph
from dask_efficiency.torch_traces.path.instants import Instants
from dask_efficiency.torch_traces.path.lanes import pairs_ranked
from dask_efficiency.torch_traces.path.last_causes import last_causes
from dask_efficiency.torch_traces.path.ordering import places_in
from dask_efficiency.torch_traces.path.retime import (
    MeetingNodes,
    NodeWaits,
    earliest,
    meetings_of,
    topological,
    unexplained_ns,
)
from dask_efficiency.torch_traces.path.speeds import TorchChanges, factors, gone


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


@dataclass(frozen=True, slots=True)
class JobGraphs:
    """The graphs of one or more ranks, and what they have in common."""

    graphs: Sequence[TorchGraph]
    #: By graph, its rank as the arrivals have it, and what makes its instants those of the job, in nanoseconds.
    position: Sequence[int]
    offset: Sequence[int]
    #: Who took part in which collective.
    arrivals: CollectiveArrivals


@dataclass(frozen=True, slots=True)
class Rewired:
    """A graph's edges as they are to be."""

    edges: Edges
    #: Nanoseconds before which an edge's target cannot be, from its source.
    lag: Int64
    #: Other nodes that waited, and for which; see :func:`_walked_waits`.
    source: Int64
    target: Int64


def as_it_was(graph: TorchGraph) -> Rewired:
    """The edges of a graph without a change."""
    return Rewired(graph.edges, lags(graph), *_walked_waits(graph))


def _walked_waits(graph: TorchGraph) -> tuple[Int64, Int64]:
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


def lags(graph: TorchGraph) -> Int64:
    """By edge, nanoseconds before which its target cannot be: what an edge weighs, if there was that much time.

    An edge of a launch weighs nothing where the GPU had other work to do. Had it none, the launch would still take the
    time that launches take: the median of those that weigh something.
    """
    nodes, edges = graph.nodes, graph.edges
    between = nodes.at[edges.target] - nodes.at[edges.source]
    weight = edges.weight.copy()
    launches = edges.kind == EdgeKind.LAUNCH_DELAY
    weighed = weight[launches & (weight > 0)]
    if len(weighed):
        weight[launches & (weight == 0)] = int(np.median(weighed))
    found: Int64 = np.clip(weight, 0, np.maximum(between, 0))
    return found


def with_changes(graph: TorchGraph, was: Rewired, changes: TorchChanges) -> Rewired:
    """The edges of a graph that are shorter, without those that nothing waits for any more."""
    edges, share = was.edges, factors(graph, changes)
    kept = ~gone(graph, changes, edges.source, edges.target) | (edges.kind != EdgeKind.SYNC)
    others = ~gone(graph, changes, was.source, was.target)
    shorter = replace(edges, weight=_times(edges.weight, share)).take(kept)
    return Rewired(shorter, _times(was.lag, share)[kept], was.source[others], was.target[others])


def with_edges(
    graph: TorchGraph,
    was: Rewired,
    add: Iterable[tuple[int, int, int]],
    remove: Iterable[int],
    reweight: Mapping[int, int],
) -> Rewired:
    """The edges of a graph with some more, some fewer, and some of another weight.

    Parameters
    ----------
    add
        Source, target and weight in nanoseconds of each; it is of kind ``DEPENDENCY``.
    remove, reweight
        Positions of edges; to weigh others, their new weights in nanoseconds.

    Raises
    ------
    ValueError
        If there is no such node or edge, a weight is negative, or an edge to be added is there already.
    """
    edges, lag = was.edges, was.lag.copy()
    weight = edges.weight.copy()
    for edge, ns in reweight.items():
        place = _position(edge, len(edges), "edge")
        weight[place] = lag[place] = _weight(ns)
    kept = np.ones(len(edges), np.bool_)
    kept[[_position(edge, len(edges), "edge") for edge in remove]] = False
    rows = [
        (_position(source, len(graph.nodes), "node"), _position(target, len(graph.nodes), "node"), _weight(ns))
        for source, target, ns in add
    ]
    known = set(zip(edges.source[kept].tolist(), edges.target[kept].tolist(), strict=True))
    for source, target, _ in rows:
        if (source, target) in known:
            raise ValueError(f"there is an edge from node {source} to node {target} already; expected to reweight it")
        known.add((source, target))
    new = np.array(rows, np.int64).reshape(len(rows), 3)
    columns = {
        "source": new[:, 0],
        "target": new[:, 1],
        "weight": new[:, 2],
        "kind": np.full(len(rows), EdgeKind.DEPENDENCY),
        "event": np.full(len(rows), MISSING),
        "inferred": np.zeros(len(rows), np.bool_),
    }
    old = replace(edges, weight=weight).take(kept).columns()
    joined = Edges(**{name: np.concatenate([old[name], columns[name].astype(old[name].dtype)]) for name in old})
    return Rewired(joined, np.concatenate([lag[kept], new[:, 2]]), was.source, was.target)


def _position(number: int, length: int, what: str) -> int:
    if not 0 <= number < length:
        raise ValueError(f"there is no {what} {number!r}; expected 0 to {length - 1}")
    return int(number)


def _weight(ns: int) -> int:
    if ns < 0:
        raise ValueError(f"an edge is to weigh {ns / 1e9:g} s; expected at least 0")
    return int(ns)


def retimed(job: JobGraphs, was: Sequence[Rewired], changed: Sequence[Rewired]) -> tuple[TorchGraph, ...]:
    """The graphs of a job as they would be with other edges.

    Parameters
    ----------
    was, changed
        By graph, its edges as they were, and as they are to be.

    Returns
    -------
    tuple
        With other instants of nodes and events. What nothing explains takes as long as it did, and what waits for
        nothing is when it was. A collective ends on each rank once the last one has come.

    Raises
    ------
    CycleError
        If nodes would have to wait for one another.
    """
    base = np.concatenate([[0], np.cumsum([len(graph.nodes) for graph in job.graphs])]).astype(np.int64)
    nodes = int(base[-1])
    at = np.concatenate([graph.nodes.at + shift for graph, shift in zip(job.graphs, job.offset, strict=True)])
    before = _joined(was, base)
    after = _joined(changed, base)
    meetings = meetings_of(job.graphs, job.position, base, at, job.arrivals)
    share = meetings.share(nodes, before, after)
    before = meetings.among(nodes, before, np.ones(len(share)))
    after = meetings.among(nodes, after, share)
    at = np.concatenate([at, meetings.at])
    order = topological(at, after, lambda node: _name_of(node, job, base))
    found = earliest(at, unexplained_ns(at, before), after, order)
    place = places_in(order)
    met = _met(meetings, nodes)
    return tuple(
        _rebuilt(graph, each.edges, found[first:last] - shift, place[first:last], met[first:last])
        for graph, each, shift, first, last in zip(
            job.graphs, changed, job.offset, base[:-1].tolist(), base[1:].tolist(), strict=True
        )
    )


def _name_of(node: int, job: JobGraphs, base: Int64) -> str:
    """A node by its number over all graphs, as a message has it."""
    position = int(np.searchsorted(base, node, side="right")) - 1
    if position >= len(job.graphs):
        return "a collective"
    graph, number = job.graphs[position], node - int(base[position])
    name = graph.trace.names[int(graph.trace.events.name[graph.nodes.event[number]])]
    end = "start" if graph.nodes.is_start[number] else "end"
    return f"{number} ({end} of {name[:40]!r}{f', rank {graph.trace.rank}' if len(job.graphs) > 1 else ''})"


def _met(meetings: MeetingNodes, nodes: int) -> Int64:
    """By node at which a rank comes to a meeting, the node at which it leaves; by any other, MISSING."""
    found = np.full(nodes, MISSING, np.int64)
    found[meetings.start] = meetings.stop
    return found


def _joined(parts: Sequence[Rewired], base: Int64) -> NodeWaits:
    each = list(zip(parts, base.tolist(), strict=False))
    return NodeWaits(
        np.concatenate([*(p.edges.source + first for p, first in each), *(p.source + first for p, first in each)]),
        np.concatenate([*(p.edges.target + first for p, first in each), *(p.target + first for p, first in each)]),
        np.concatenate([*(part.lag for part in parts), *(np.zeros_like(part.source) for part in parts)]),
    )


def _rebuilt(graph: TorchGraph, edges: Edges, at: Int64, place: Int64, met: Int64) -> TorchGraph:
    """The graph with nodes at other instants, sorted again."""
    old = graph.nodes
    order = np.lexsort((place, at))
    now = places_in(order)
    # A rank's own time in a collective is what is left of its waiting for the others.
    own = (met[edges.source] != MISSING) & (edges.kind == EdgeKind.OPERATOR) & (edges.weight > 0)
    own &= old.event[edges.source] == old.event[edges.target]
    weight = np.where(own, at[edges.target] - at[edges.source], edges.weight)
    source, target = (now[column].astype(np.int32) for column in (edges.source, edges.target))
    rewired = replace(edges, source=source, target=target, weight=weight)
    trace, region = shifted_trace(graph, at)
    return replace(
        graph, trace=trace, region=region, nodes=Nodes(at[order], old.event[order], old.is_start[order]), edges=rewired
    )


def _times(ns: Int64, share: Float64) -> Int64:
    return np.round(ns * share).astype(np.int64)
