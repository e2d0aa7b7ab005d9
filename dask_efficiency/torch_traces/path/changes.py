"""A job's graphs with changes: every weight, instant and event is worked out anew.

Each node is as early as what it waits for allows, and as much later as it was when the trace was recorded. A collective
is a node of its own: it waits for the arrivals of all ranks, and each rank's end of it waits for that node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Bool, Float64, Int64
from dask_efficiency.torch_traces.kineto.numbers import first_with, mask_of
from dask_efficiency.torch_traces.kineto.trace import RankTrace
from dask_efficiency.torch_traces.path.collectives import CollectiveArrivals
from dask_efficiency.torch_traces.path.graph import (
    CycleError,
    EdgeKind,
    Edges,
    Nodes,
    Region,
    TorchGraph,
    before_any_cycle,
    joined,
    places_in,
)
from dask_efficiency.torch_traces.path.instants import Instants
from dask_efficiency.torch_traces.path.lanes import rank_pairs
from dask_efficiency.torch_traces.path.last_causes import last_causes
from dask_efficiency.torch_traces.path.speeds import TorchChanges, time_shares

#: Nodes of a cycle that a message names (a few lines).
MAX_NAMED = 12


class NodeWaits(NamedTuple):
    """Waits between nodes, a row each, in any order."""

    source: Int64
    target: Int64
    #: Least nanoseconds from source to target, at least 0.
    lag: Int64


@dataclass(frozen=True, slots=True)
class Rewired:
    """A graph's edges after a change, or before any."""

    edges: Edges
    #: Least nanoseconds from an edge's source to its target.
    lag: Int64
    #: Waits without an edge; see :func:`_walked_waits`.
    source: Int64
    target: Int64

    def waits(self, first: int) -> NodeWaits:
        """Waits with and without an edge, where the graph's nodes are numbered from ``first``."""
        source, target = self.edges.source.astype(np.int64), self.edges.target.astype(np.int64)
        ends = np.concatenate([source, self.source]) + first, np.concatenate([target, self.target]) + first
        return NodeWaits(*ends, np.concatenate([self.lag, np.zeros_like(self.source)]))


def unchanged(graph: TorchGraph) -> Rewired:
    """Edges of a graph without a change."""
    return Rewired(graph.edges, _lags(graph), *_walked_waits(graph))


def _walked_waits(graph: TorchGraph) -> tuple[Int64, Int64]:
    """Pairs of nodes without an edge, of which the second waited for the first by the walk, such as an idle thread."""
    nodes, edges = graph.nodes, graph.edges
    instants = Instants.of(graph)
    cause = last_causes(graph, instants).cause
    node_of = np.full(len(instants) + 1, MISSING, np.int64)
    with_instant = np.flatnonzero(instants.of_node != MISSING)
    node_of[instants.of_node[with_instant]] = with_instant
    last = np.full(len(nodes), MISSING, np.int64)
    last[with_instant] = cause[instants.of_node[with_instant]]
    # Causes without a node are replaced by their own causes.
    while len(between := np.flatnonzero((last != MISSING) & (node_of[last] == MISSING))):
        last[between] = cause[last[between]]
    source, target = np.where(last != MISSING, node_of[last], MISSING), np.arange(len(nodes), dtype=np.int64)
    known = (source != MISSING) & (source < target) & (nodes.at[source] <= nodes.at[target])
    in_graph = edges.source.astype(np.int64) * len(nodes) + edges.target
    known &= ~np.isin(source * len(nodes) + target, in_graph)
    return source[known], target[known]


def _lags(graph: TorchGraph) -> Int64:
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
    lags: Int64 = np.clip(weight, 0, np.maximum(between, 0))
    return lags


def with_changes(graph: TorchGraph, was: Rewired, changes: TorchChanges) -> Rewired:
    """Shorten edges, and drop waits that the changes remove."""
    edges, share = was.edges, time_shares(graph, changes)
    works = graph.trace.events.is_gpu_work[graph.nodes.event] & ("gpu-sync" in changes.without)
    # of a call for work on the GPU
    kept = ~(works[edges.source] & ~works[edges.target] & (edges.kind == EdgeKind.SYNC))
    others = ~(works[was.source] & ~works[was.target])
    weight, lag = (np.round(ns * share).astype(np.int64) for ns in (edges.weight, was.lag))
    return Rewired(replace(edges, weight=weight).take(kept), lag[kept], was.source[others], was.target[others])


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
    edges, weight, lag = was.edges, was.edges.weight.copy(), was.lag.copy()
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
    sources, targets, weights = np.array(rows, np.int64).reshape(-1, 3).T
    new = Edges.of(sources, targets, EdgeKind.DEPENDENCY, weights)
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


def retimed(
    graphs: Sequence[TorchGraph],
    placed: Sequence[tuple[int, int]],
    arrivals: CollectiveArrivals,
    was: Sequence[Rewired],
    changed: Sequence[Rewired],
) -> tuple[TorchGraph, ...]:
    """Work out a job's graphs anew, from the edges of each before and after a change.

    ``placed`` has for each graph its rank in the arrivals, and the nanoseconds from its clock to the job's. Unexplained
    time stays as long as it was, and nodes that wait for nothing stay where they were. A collective ends on each rank
    after the last rank has arrived. Raises :class:`CycleError` if nodes would have to wait for one another.
    """
    base = np.concatenate([[0], np.cumsum([len(graph.nodes) for graph in graphs])]).astype(np.int64)
    nodes = int(base[-1])
    at = np.concatenate([graph.nodes.at + shift for graph, (_, shift) in zip(graphs, placed, strict=True)])
    before, after = (_joined(parts, base) for parts in (was, changed))
    collectives = _collective_nodes(graphs, placed, base, at, arrivals)
    share = collectives.share(before, after)
    before, after = collectives.among(before, np.ones(len(share))), collectives.among(after, share)
    at = np.concatenate([at, collectives.at])
    order = topological(at, after, lambda node: _name_of(node, graphs, base))
    anew = earliest(at, unexplained_ns(at, before), after, order)
    place, arrives = places_in(order), mask_of(collectives.start, nodes)
    again = []
    for graph, rewired, (_, shift), (first, last) in zip(graphs, changed, placed, pairwise(base.tolist()), strict=True):
        own = anew[first:last] - shift
        again.append(_rebuilt(graph, rewired.edges, own, place[first:last], arrives[first:last]))
    return tuple(again)


def _joined(parts: Sequence[Rewired], base: Int64) -> NodeWaits:
    waits = (part.waits(first) for part, first in zip(parts, base.tolist(), strict=False))
    return NodeWaits(*map(np.concatenate, zip(*waits, strict=True)))


def _name_of(node: int, graphs: Sequence[TorchGraph], base: Int64) -> str:
    """Name of a node for messages, by its number over all graphs."""
    position = int(np.searchsorted(base, node, side="right")) - 1
    if position >= len(graphs):
        return "a collective"
    graph, number = graphs[position], node - int(base[position])
    name = graph.trace.names[int(graph.trace.events.name[graph.nodes.event[number]])]
    end = "start" if graph.nodes.is_start[number] else "end"
    return f"{number} ({end} of {name[:40]!r}{f', rank {graph.trace.rank}' if len(graphs) > 1 else ''})"


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
    shifted = np.interp((instants - origin).astype(np.float64), (was - origin).astype(np.float64), moved)
    return np.round(shifted).astype(np.int64)


def unexplained_ns(at: Int64, waits: NodeWaits) -> Int64:
    """Delay of each node that its waits do not explain; 0 for a node without waits."""
    latest = at.copy()
    latest[waits.target] = np.iinfo(np.int64).min
    np.maximum.at(latest, waits.target, at[waits.source] + waits.lag)
    unexplained: Int64 = np.maximum(at - latest, 0)
    return unexplained


def earliest(at: Int64, unexplained: Int64, waits: NodeWaits, order: Int64) -> Int64:
    """Earliest instant of each node, in nanoseconds, under changed waits, in an order of :func:`topological` for these.

    ``unexplained`` is the result of :func:`unexplained_ns` for the recorded waits, which stays. A node without waits
    stays where it was; with the recorded waits, every node does.
    """
    place = places_in(order)
    by_target = np.argsort(place[waits.target], kind="stable")
    instants, more = at.tolist(), unexplained.tolist()
    before, latest = -1, 0
    for source, target, lag in zip(*(column[by_target].tolist() for column in waits), strict=True):
        if target == before:
            latest = max(latest, instants[source] + lag)
            continue
        if before >= 0:
            instants[before] = latest + more[before]
        before, latest = target, instants[source] + lag
    if before >= 0:
        instants[before] = latest + more[before]
    return np.array(instants, np.int64)


def topological(at: Int64, waits: NodeWaits, name_of: Callable[[int], str] = str) -> Int64:
    """Nodes in an order in which each comes after what it waits for: that of time, if possible; or CycleError."""
    order = np.argsort(at, kind="stable")
    place = places_in(order)
    if (place[waits.source] < place[waits.target]).all():
        return order
    order = before_any_cycle(len(at), waits.source, waits.target).astype(np.int64)
    if len(order) < len(at):
        cycle = _cycle(~mask_of(order, len(at)), waits)
        shown = " -> ".join(map(name_of, cycle[:MAX_NAMED])) + (" -> ..." if len(cycle) > MAX_NAMED else "")
        raise CycleError(f"these nodes would wait for one another: {shown}; expected edges without a cycle")
    return order


def _cycle(left: Bool, waits: NodeWaits) -> list[int]:
    """A cycle among the nodes that are left, each of which waits for another one of them."""
    among = left[waits.source] & left[waits.target]
    waits_for = dict(zip(waits.target[among].tolist(), waits.source[among].tolist(), strict=True))
    node = next(iter(waits_for))
    walked: dict[int, int] = {}
    while node not in walked:
        walked[node] = len(walked)
        node = waits_for[node]
    return [node, *reversed(list(walked)[walked[node] :])]


class _CollectiveNodes(NamedTuple):
    """Collectives of which at least two ranks have nodes, as nodes after the ``nodes`` of all graphs."""

    nodes: int
    #: A row for each rank of each collective: number of the collective, and nodes of arrival and leaving.
    collective: Int64
    start: Int64
    stop: Int64
    #: By collective, instant of the last arrival, and nanoseconds from then until the first rank left.
    at: Int64
    transfer: Int64

    def share(self, before: NodeWaits, after: NodeWaits) -> Float64:
        """Share of each collective's time after a change: the smallest of its ranks'."""
        was, now = (np.append(waits.lag, MISSING)[self._own(waits)] for waits in (before, after))
        of_rank = np.where((was > 0) & (now >= 0), now / np.maximum(was, 1), 1.0)
        smallest = np.ones(len(self.at))
        np.minimum.at(smallest, self.collective, of_rank)
        return smallest

    def among(self, waits: NodeWaits, share: Float64) -> NodeWaits:
        """Waits in which a rank's own time in a collective is replaced by its wait for the others."""
        lag, own = waits.lag.copy(), self._own(waits)
        lag[own[own != MISSING]] = 0
        instants = self.nodes + self.collective
        transfer = np.round(self.transfer * share).astype(np.int64)[self.collective]
        return NodeWaits(
            np.concatenate([waits.source, self.start, instants]),
            np.concatenate([waits.target, instants, self.stop]),
            np.concatenate([lag, np.zeros_like(self.start), transfer]),
        )

    def _own(self, waits: NodeWaits) -> Int64:
        """By row, position of the wait from the rank's arrival to its leaving."""
        return first_with(waits.source * self.nodes + waits.target, self.start * self.nodes + self.stop)


def _collective_nodes(
    graphs: Sequence[TorchGraph],
    placed: Sequence[tuple[int, int]],
    base: Int64,
    at: Int64,
    arrivals: CollectiveArrivals,
) -> _CollectiveNodes:
    """Find the collectives of a job as nodes; ``at`` are the instants of all graphs' nodes, on the clock of the job."""
    start, stop = np.full(len(arrivals), MISSING, np.int64), np.full(len(arrivals), MISSING, np.int64)
    for graph, (rank, _), first in zip(graphs, placed, base.tolist(), strict=False):
        rows = np.flatnonzero(arrivals.rank == rank)
        for ends, node_of in zip((start, stop), graph.nodes.positions(len(graph.trace.events)), strict=True):
            node = node_of[arrivals.event[rows]].astype(np.int64)
            ends[rows] = np.where(node != MISSING, node + first, MISSING)
    known = (start != MISSING) & (stop != MISSING)
    start, stop = start[known], stop[known]
    number, collective, count = np.unique(arrivals.collective[known], return_inverse=True, return_counts=True)
    last = np.full(len(number), np.iinfo(np.int64).min)
    np.maximum.at(last, collective, at[start])
    # With inexact clocks a rank may leave before the last arrival; such rows are dropped.
    used = (count[collective] > 1) & (at[stop] >= last[collective])
    start, stop, last_of_row, collective = start[used], stop[used], last[collective][used], collective[used]
    kept, first_row, collective = np.unique(collective, return_index=True, return_inverse=True)
    transfer = np.full(len(kept), np.iinfo(np.int64).max)
    np.minimum.at(transfer, collective, at[stop] - last_of_row)
    return _CollectiveNodes(len(at), collective.astype(np.int64), start, stop, last_of_row[first_row], transfer)
