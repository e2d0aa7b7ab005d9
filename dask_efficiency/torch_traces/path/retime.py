"""Instants of a graph's nodes after a change: each as early as what it waits for allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Bool, Float64, Int64
from dask_efficiency.torch_traces.kineto.numbers import first_with, mask_of
from dask_efficiency.torch_traces.path.collectives import CollectiveArrivals
from dask_efficiency.torch_traces.path.graph import TorchGraph
from dask_efficiency.torch_traces.path.ordering import CycleError, before_any_cycle, places_in

#: Nodes of a cycle that a message names (a few lines).
MAX_NAMED = 12


@dataclass(frozen=True, slots=True)
class NodeWaits:
    """Waits between nodes, a row each, in any order."""

    source: Int64
    target: Int64
    #: Least nanoseconds from source to target, at least 0.
    lag: Int64


def unexplained_ns(at: Int64, waits: NodeWaits) -> Int64:
    """Delay of each node that its waits do not explain; 0 for a node without waits."""
    latest = at.copy()
    latest[waits.target] = np.iinfo(np.int64).min
    np.maximum.at(latest, waits.target, at[waits.source] + waits.lag)
    more: Int64 = np.maximum(at - latest, 0)
    return more


def earliest(at: Int64, unexplained: Int64, waits: NodeWaits, order: Int64) -> Int64:
    """Earliest instant of each node, in nanoseconds, under changed waits, in an order of :func:`topological` for these.

    ``unexplained`` is the result of :func:`unexplained_ns` for the recorded waits, which stays. A node without waits
    stays where it was; with the recorded waits, every node does.
    """
    place = places_in(order)
    by_target = np.argsort(place[waits.target], kind="stable")
    found = at.tolist()
    more = unexplained.tolist()
    before, latest = -1, 0
    rows = (waits.source[by_target].tolist(), waits.target[by_target].tolist(), waits.lag[by_target].tolist())
    for source, target, lag in zip(*rows, strict=True):
        if target == before:
            latest = max(latest, found[source] + lag)
            continue
        if before >= 0:
            found[before] = latest + more[before]
        before, latest = target, found[source] + lag
    if before >= 0:
        found[before] = latest + more[before]
    return np.array(found, np.int64)


def topological(at: Int64, waits: NodeWaits, name_of: Callable[[int], str] = str) -> Int64:
    """Nodes in an order in which each comes after what it waits for: that of time, if possible; or CycleError."""
    order = np.argsort(at, kind="stable")
    place = places_in(order)
    if (place[waits.source] < place[waits.target]).all():
        return order
    order = before_any_cycle(len(at), waits.source, waits.target).astype(np.int64)
    if len(order) < len(at):
        raise _cycle_error(len(at), order, waits, name_of)
    return order


def _cycle_error(nodes: int, order: Int64, waits: NodeWaits, name_of: Callable[[int], str]) -> CycleError:
    """Error for the nodes that are not in an order."""
    cycle = _cycle(~mask_of(order, nodes), waits)
    shown = " -> ".join(map(name_of, cycle[:MAX_NAMED])) + (" -> ..." if len(cycle) > MAX_NAMED else "")
    return CycleError(f"these nodes would wait for one another: {shown}; expected edges without a cycle")


def _cycle(left: Bool, waits: NodeWaits) -> list[int]:
    """A cycle among the nodes that are left, each of which waits for another one of them."""
    among = left[waits.source] & left[waits.target]
    waits_for = dict(zip(waits.target[among].tolist(), waits.source[among].tolist(), strict=True))
    node = next(iter(waits_for))
    seen: dict[int, int] = {}
    walked: list[int] = []
    while node not in seen:
        seen[node] = len(walked)
        walked.append(node)
        node = waits_for[node]
    return [node, *reversed(walked[seen[node] :])]


@dataclass(frozen=True, slots=True)
class CollectiveNodes:
    """Collectives of which at least two ranks have nodes, as nodes of their own, numbered over all graphs.

    Each waits for the arrivals of all ranks, and each rank's end of it waits for that node.
    """

    #: A row for each rank of each collective: number of the collective, and nodes of arrival and leaving.
    collective: Int64
    start: Int64
    stop: Int64
    #: By collective, instant of the last arrival, and nanoseconds from then until the first rank left.
    at: Int64
    transfer: Int64

    def share(self, nodes: int, before: NodeWaits, after: NodeWaits) -> Float64:
        """Share of each collective's time after a change: the smallest of its ranks'."""
        was, now = (np.append(waits.lag, MISSING)[self._own(nodes, waits)] for waits in (before, after))
        of_rank = np.where((was > 0) & (now >= 0), now / np.maximum(was, 1), 1.0)
        found = np.ones(len(self.at))
        np.minimum.at(found, self.collective, of_rank)
        return found

    def among(self, nodes: int, waits: NodeWaits, share: Float64) -> NodeWaits:
        """Waits in which a rank's own time in a collective is replaced by its wait for the others."""
        lag = waits.lag.copy()
        own = self._own(nodes, waits)
        lag[own[own != MISSING]] = 0
        instants = nodes + self.collective
        transfer = np.round(self.transfer * share).astype(np.int64)[self.collective]
        return NodeWaits(
            np.concatenate([waits.source, self.start, instants]),
            np.concatenate([waits.target, instants, self.stop]),
            np.concatenate([lag, np.zeros_like(self.start), transfer]),
        )

    def _own(self, nodes: int, waits: NodeWaits) -> Int64:
        """By row, position of the wait from the rank's arrival to its leaving."""
        return first_with(waits.source * nodes + waits.target, self.start * nodes + self.stop)


def collective_nodes(
    graphs: Sequence[TorchGraph], position: Sequence[int], base: Int64, at: Int64, arrivals: CollectiveArrivals
) -> CollectiveNodes:
    """Find the collectives of a job as nodes.

    ``position`` has the rank of each graph in the arrivals, ``base`` its first node; ``at`` is on the job's clock.
    """
    start, stop = np.full(len(arrivals), MISSING, np.int64), np.full(len(arrivals), MISSING, np.int64)
    for graph, rank, first in zip(graphs, position, base.tolist(), strict=False):
        rows = np.flatnonzero(arrivals.rank == rank)
        for found, node_of in zip((start, stop), graph.nodes.positions(len(graph.trace.events)), strict=True):
            node = node_of[arrivals.event[rows]].astype(np.int64)
            found[rows] = np.where(node != MISSING, node + first, MISSING)
    there = (start != MISSING) & (stop != MISSING)
    start, stop = start[there], stop[there]
    number, collective, count = np.unique(arrivals.collective[there], return_inverse=True, return_counts=True)
    last = np.full(len(number), np.iinfo(np.int64).min)
    np.maximum.at(last, collective, at[start])
    # With inexact clocks a rank may leave before the last arrival; such rows are dropped.
    used = (count[collective] > 1) & (at[stop] >= last[collective])
    start, stop, last_of_row, collective = start[used], stop[used], last[collective][used], collective[used]
    kept, first_row, collective = np.unique(collective, return_index=True, return_inverse=True)
    transfer = np.full(len(kept), np.iinfo(np.int64).max)
    np.minimum.at(transfer, collective, at[stop] - last_of_row)
    return CollectiveNodes(collective.astype(np.int64), start, stop, last_of_row[first_row], transfer)
