"""A job's graphs with changes: every weight, instant and event is worked out anew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Bool, Float64, Int64
from dask_efficiency.torch_traces.kineto.numbers import mask_of
from dask_efficiency.torch_traces.kineto.trace import RankTrace
from dask_efficiency.torch_traces.path.collectives import CollectiveArrivals
from dask_efficiency.torch_traces.path.graph import EdgeKind, Edges, Nodes, Region, TorchGraph, joined
from dask_efficiency.torch_traces.path.instants import Instants
from dask_efficiency.torch_traces.path.lanes import rank_pairs
from dask_efficiency.torch_traces.path.last_causes import last_causes
from dask_efficiency.torch_traces.path.ordering import places_in
from dask_efficiency.torch_traces.path.retime import NodeWaits, collective_nodes, earliest, topological, unexplained_ns
from dask_efficiency.torch_traces.path.speeds import TorchChanges, dropped_waits, time_shares


def _shifted_trace(graph: TorchGraph, at: Int64) -> tuple[RankTrace, Region]:
    """Move a graph's trace and region with its nodes, whose new instants are ``at``.

    Events without nodes move with those of their thread, and events after the region with its end.
    """
    events, nodes, region = graph.trace.events, graph.nodes, graph.region
    if not len(nodes):
        return graph.trace, region
    later = int(at.max()) - int(nodes.at.max())
    lane = rank_pairs(events.process, events.thread)
    others = np.flatnonzero(~mask_of(nodes.event, len(events)))
    lane_of_node = lane[nodes.event]
    moved = []
    for instants, is_start in ((events.start, True), (events.stop, False)):
        now = instants + np.where(instants >= region.stop, later, 0)
        within = others[(instants[others] > region.start) & (instants[others] < region.stop)]
        for number in np.unique(lane[within]).tolist():
            rows, neighbours = within[lane[within] == number], np.flatnonzero(lane_of_node == number)
            neighbours = neighbours if len(neighbours) else np.arange(len(nodes))
            now[rows] += _shift(instants[rows], nodes.at[neighbours], at[neighbours], region.start)
        mine = nodes.is_start == is_start
        now[nodes.event[mine]] = at[mine]
        moved.append(now)
    start, stop = moved
    again = replace(events, start=start, stop=np.maximum(start, stop))
    return replace(graph.trace, events=again), replace(region, stop=region.stop + later)


def _shift(instants: Int64, was: Int64, now: Int64, origin: int) -> Int64:
    """Shift of instants, interpolated between nodes; from ``origin``, as epoch nanoseconds do not fit into floats."""
    moved = np.maximum.accumulate(now) - was
    found = np.interp((instants - origin).astype(np.float64), (was - origin).astype(np.float64), moved)
    return np.round(found).astype(np.int64)


@dataclass(frozen=True, slots=True)
class JobGraphs:
    """Graphs of one or more ranks, and the collectives between them."""

    graphs: Sequence[TorchGraph]
    #: By graph, its rank in the arrivals, and nanoseconds to add to its instants for those of the job.
    position: Sequence[int]
    offset: Sequence[int]
    arrivals: CollectiveArrivals


@dataclass(frozen=True, slots=True)
class Rewired:
    """A graph's edges after a change, or before any."""

    edges: Edges
    #: Least nanoseconds from an edge's source to its target.
    lag: Int64
    #: Waits without an edge; see :func:`_walked_waits`.
    source: Int64
    target: Int64


def unchanged(graph: TorchGraph) -> Rewired:
    """Edges of a graph without a change."""
    return Rewired(graph.edges, lags(graph), *_walked_waits(graph))


def _walked_waits(graph: TorchGraph) -> tuple[Int64, Int64]:
    """Pairs of nodes without an edge, of which the second waited for the first by the walk, such as an idle thread."""
    nodes, edges = graph.nodes, graph.edges
    instants = Instants.of(graph)
    cause = last_causes(graph, instants).cause
    node_of = np.full(len(instants) + 1, MISSING, np.int64)
    there = np.flatnonzero(instants.of_node != MISSING)
    node_of[instants.of_node[there]] = there
    found = np.full(len(nodes), MISSING, np.int64)
    found[there] = cause[instants.of_node[there]]
    # Causes without a node are replaced by their own causes.
    while len(between := np.flatnonzero((found != MISSING) & (node_of[found] == MISSING))):
        found[between] = cause[found[between]]
    source, target = np.where(found != MISSING, node_of[found], MISSING), np.arange(len(nodes), dtype=np.int64)
    known = (source != MISSING) & (source < target) & (nodes.at[source] <= nodes.at[target])
    in_graph = edges.source.astype(np.int64) * len(nodes) + edges.target
    known &= ~np.isin(source * len(nodes) + target, in_graph)
    return source[known], target[known]


def lags(graph: TorchGraph) -> Int64:
    """Least nanoseconds from source to target of each edge: its weight, but no more than the time between them.

    A launch weighs nothing if the GPU was busy; on an idle one it would take the median of those that weigh something.
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
    """Shorten edges, and drop waits that the changes remove."""
    edges, share = was.edges, time_shares(graph, changes)
    kept = ~dropped_waits(graph, changes, edges.source, edges.target) | (edges.kind != EdgeKind.SYNC)
    others = ~dropped_waits(graph, changes, was.source, was.target)
    shorter = replace(edges, weight=_scaled(edges.weight, share)).take(kept)
    return Rewired(shorter, _scaled(was.lag, share)[kept], was.source[others], was.target[others])


def with_edges(
    graph: TorchGraph,
    was: Rewired,
    add: Iterable[tuple[int, int, int]],
    remove: Iterable[int],
    reweight: Mapping[int, int],
) -> Rewired:
    """Add edges (source, target, nanoseconds) of kind ``DEPENDENCY``, remove and reweight others by position.

    Raises a ValueError for a node or edge that does not exist, a negative weight, or a new edge that exists already.
    """
    edges, lag = was.edges, was.lag.copy()
    weight = edges.weight.copy()
    for edge, ns in reweight.items():
        place = _position(edge, len(edges), "edge")
        weight[place] = lag[place] = _weight(ns)
    kept = np.ones(len(edges), np.bool_)
    kept[[_position(edge, len(edges), "edge") for edge in remove]] = False
    count = len(graph.nodes)
    rows = [(_position(a, count, "node"), _position(b, count, "node"), _weight(ns)) for a, b, ns in add]
    known = set(zip(edges.source[kept].tolist(), edges.target[kept].tolist(), strict=True))
    for source, target, _ in rows:
        if (source, target) in known:
            raise ValueError(f"there is an edge from node {source} to node {target} already; expected to reweight it")
        known.add((source, target))
    columns = dict(zip(("source", "target", "weight"), np.array(rows, np.int64).reshape(-1, 3).T, strict=True))
    new = Edges.from_columns(columns | {"kind": np.full(len(rows), EdgeKind.DEPENDENCY)})
    both = joined([replace(edges, weight=weight).take(kept), new])
    return Rewired(both, np.concatenate([lag[kept], new.weight]), was.source, was.target)


def _position(number: int, length: int, what: str) -> int:
    if not 0 <= number < length:
        raise ValueError(f"there is no {what} {number!r}; expected 0 to {length - 1}")
    return int(number)


def _weight(ns: int) -> int:
    if ns < 0:
        raise ValueError(f"an edge is to weigh {ns / 1e9:g} s; expected at least 0")
    return int(ns)


def retimed(job: JobGraphs, was: Sequence[Rewired], changed: Sequence[Rewired]) -> tuple[TorchGraph, ...]:
    """Work out a job's graphs anew, from the edges of each before and after a change.

    Unexplained time stays as long as it was, and nodes that wait for nothing stay where they were. A collective ends on
    each rank after the last rank has arrived. Raises :class:`CycleError` if nodes would have to wait for one another.
    """
    base = np.concatenate([[0], np.cumsum([len(graph.nodes) for graph in job.graphs])]).astype(np.int64)
    nodes = int(base[-1])
    at = np.concatenate([graph.nodes.at + shift for graph, shift in zip(job.graphs, job.offset, strict=True)])
    before = _joined(was, base)
    after = _joined(changed, base)
    collectives = collective_nodes(job.graphs, job.position, base, at, job.arrivals)
    share = collectives.share(nodes, before, after)
    before = collectives.among(nodes, before, np.ones(len(share)))
    after = collectives.among(nodes, after, share)
    at = np.concatenate([at, collectives.at])
    order = topological(at, after, lambda node: _name_of(node, job, base))
    found = earliest(at, unexplained_ns(at, before), after, order)
    place, arrives = places_in(order), mask_of(collectives.start, nodes)
    again = []
    for graph, each, shift, (first, last) in zip(job.graphs, changed, job.offset, pairwise(base.tolist()), strict=True):
        own = found[first:last] - shift
        again.append(_rebuilt(graph, each.edges, own, place[first:last], arrives[first:last]))
    return tuple(again)


def _name_of(node: int, job: JobGraphs, base: Int64) -> str:
    """Name of a node for messages, by its number over all graphs."""
    position = int(np.searchsorted(base, node, side="right")) - 1
    if position >= len(job.graphs):
        return "a collective"
    graph, number = job.graphs[position], node - int(base[position])
    name = graph.trace.names[int(graph.trace.events.name[graph.nodes.event[number]])]
    end = "start" if graph.nodes.is_start[number] else "end"
    return f"{number} ({end} of {name[:40]!r}{f', rank {graph.trace.rank}' if len(job.graphs) > 1 else ''})"


def _joined(parts: Sequence[Rewired], base: Int64) -> NodeWaits:
    columns: list[list[Int64]] = [[], [], []]
    for part, first in zip(parts, base.tolist(), strict=False):
        more = (part.edges.source + first, part.edges.target + first, part.lag)
        walked = (part.source + first, part.target + first, np.zeros_like(part.source))
        for column, values in zip(columns * 2, (*more, *walked), strict=True):
            column.append(values)
    return NodeWaits(*map(np.concatenate, columns))


def _rebuilt(graph: TorchGraph, edges: Edges, at: Int64, place: Int64, arrives: Bool) -> TorchGraph:
    """Rebuild a graph with nodes at other instants, sorted again; some are arrivals at collectives."""
    old = graph.nodes
    order = np.lexsort((place, at))
    now = places_in(order)
    # A rank's time in a collective changes with its wait for the others.
    own = arrives[edges.source] & (edges.kind == EdgeKind.OPERATOR) & (edges.weight > 0)
    own &= old.event[edges.source] == old.event[edges.target]
    weight = np.where(own, at[edges.target] - at[edges.source], edges.weight)
    source, target = (now[column].astype(np.int32) for column in (edges.source, edges.target))
    rewired = replace(edges, source=source, target=target, weight=weight)
    trace, region = _shifted_trace(graph, at)
    nodes = Nodes(at[order], old.event[order], old.is_start[order])
    return replace(graph, trace=trace, region=region, nodes=nodes, edges=rewired)


def _scaled(ns: Int64, share: Float64) -> Int64:
    return np.round(ns * share).astype(np.int64)
