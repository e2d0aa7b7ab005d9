"""Instants of a graph's nodes after a change: each as early as what it waits for allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Bool, Float64, Int64
from dask_efficiency.torch_traces.kineto.numbers import first_with
from dask_efficiency.torch_traces.path.collectives import CollectiveArrivals
from dask_efficiency.torch_traces.path.graph import TorchGraph
from dask_efficiency.torch_traces.path.ordering import CycleError, before_any_circle, places_in

#: Nodes of a circle that a message names.
MAX_NAMED = 12


@dataclass(frozen=True, slots=True)
class NodeWaits:
    """What nodes wait for, a row each; no order of rows is expected."""

    source: Int64
    target: Int64
    #: Nanoseconds from the source, at least 0, before which the target cannot be.
    lag: Int64


def unexplained_ns(at: Int64, waits: NodeWaits) -> Int64:
    """By node, how much later it was than the last of what it waited for lets it be; 0 where it waited for nothing."""
    latest = at.copy()
    latest[waits.target] = np.iinfo(np.int64).min
    np.maximum.at(latest, waits.target, at[waits.source] + waits.lag)
    more: Int64 = np.maximum(at - latest, 0)
    return more


def earliest(at: Int64, unexplained: Int64, waits: NodeWaits, order: Int64) -> Int64:
    """When each node would be, under waits that may have changed.

    Parameters
    ----------
    at
        When each was.
    unexplained
        As of :func:`unexplained_ns`, under the waits as they were. Nobody knows its cause, so it stays.
    waits
        As they are to be.
    order
        Of :func:`topological`, for these waits.

    Returns
    -------
    array, shape (nodes,)
        Nanoseconds. A node that waits for nothing is when it was; under the waits as they were, every one is.
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
    """The nodes, each after all that it waits for; as they were in time where that will do.

    Parameters
    ----------
    name_of
        What a message calls a node.

    Raises
    ------
    CycleError
        If nodes would have to wait for one another; it names them.
    """
    order = np.argsort(at, kind="stable")
    place = places_in(order)
    if (place[waits.source] < place[waits.target]).all():
        return order
    order = before_any_circle(len(at), waits.source, waits.target).astype(np.int64)
    if len(order) < len(at):
        raise _circle(len(at), order, waits, name_of)
    return order


def _circle(nodes: int, order: Int64, waits: NodeWaits, name_of: Callable[[int], str]) -> CycleError:
    """What is wrong where nodes are not in the order, as they wait for one another."""
    left = np.ones(nodes, np.bool_)
    left[order] = False
    circle = _cycle(left, waits)
    shown = " -> ".join(map(name_of, circle[:MAX_NAMED])) + (" -> ..." if len(circle) > MAX_NAMED else "")
    return CycleError(f"these nodes would wait for one another: {shown}; expected edges without a circle")


def _cycle(left: Bool, waits: NodeWaits) -> list[int]:
    """A cycle among the nodes that are left: each of them waits for another one that is left."""
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
class MeetingNodes:
    """The collectives of which at least two ranks have nodes; nodes are numbered over all graphs."""

    #: A row for each rank that takes part: number of the meeting, and the nodes at which the rank comes and leaves.
    meeting: Int64
    start: Int64
    stop: Int64
    #: By meeting, when the last rank came, and nanoseconds from then until the first one left.
    at: Int64
    transfer: Int64

    def share(self, nodes: int, before: NodeWaits, after: NodeWaits) -> Float64:
        """By meeting, the share of its time that it takes: the least of what its ranks' own times are multiplied by."""
        was, now = self._own_lags(nodes, before), self._own_lags(nodes, after)
        of_rank = np.where((was > 0) & (now >= 0), now / np.maximum(was, 1), 1.0)
        found = np.ones(len(self.at))
        np.minimum.at(found, self.meeting, of_rank)
        return found

    def among(self, nodes: int, waits: NodeWaits, share: Float64) -> NodeWaits:
        """The waits, with a rank's own time in a collective replaced by its waiting for the others."""
        lag = waits.lag.copy()
        own = self._own(nodes, waits)
        lag[own[own != MISSING]] = 0
        instants = nodes + self.meeting
        transfer = np.round(self.transfer * share).astype(np.int64)[self.meeting]
        return NodeWaits(
            np.concatenate([waits.source, self.start, instants]),
            np.concatenate([waits.target, instants, self.stop]),
            np.concatenate([lag, np.zeros_like(self.start), transfer]),
        )

    def _own_lags(self, nodes: int, waits: NodeWaits) -> Int64:
        own = self._own(nodes, waits)
        return np.where(own != MISSING, waits.lag[own], MISSING) if len(waits.lag) else np.full(len(own), MISSING)

    def _own(self, nodes: int, waits: NodeWaits) -> Int64:
        """By row, the wait from the node at which the rank comes to the one at which it leaves."""
        return first_with(waits.source * nodes + waits.target, self.start * nodes + self.stop)


def meetings_of(
    graphs: Sequence[TorchGraph], position: Sequence[int], base: Int64, at: Int64, arrivals: CollectiveArrivals
) -> MeetingNodes:
    """The meetings of a job.

    Parameters
    ----------
    graphs, position
        Of one or more ranks, and by graph its rank as the arrivals have it.
    base, at
        By graph, the number of its first node; by node, its instant on the job's clock.
    """
    start, stop = np.full(len(arrivals), MISSING, np.int64), np.full(len(arrivals), MISSING, np.int64)
    for graph, rank, first in zip(graphs, position, base.tolist(), strict=False):
        nodes = graph.nodes
        rows = np.flatnonzero(arrivals.rank == rank)
        for found, node_of in zip((start, stop), nodes.positions(len(graph.trace.events)), strict=True):
            node = node_of[arrivals.event[rows]].astype(np.int64)
            found[rows] = np.where(node != MISSING, node + first, MISSING)
    there = (start != MISSING) & (stop != MISSING)
    start, stop, collective = start[there], stop[there], arrivals.collective[there]
    number, meeting, count = np.unique(collective, return_inverse=True, return_counts=True)
    last = np.full(len(number), np.iinfo(np.int64).min)
    np.maximum.at(last, meeting, at[start])
    # By clocks that are not quite right, a rank may leave before the last one has come: that says nothing.
    used = (count[meeting] > 1) & (at[stop] >= last[meeting])
    start, stop, last_of_row, meeting = start[used], stop[used], last[meeting][used], meeting[used]
    kept, first_row, meeting = np.unique(meeting, return_index=True, return_inverse=True)
    transfer = np.full(len(kept), np.iinfo(np.int64).max)
    np.minimum.at(transfer, meeting, at[stop] - last_of_row)
    return MeetingNodes(meeting.astype(np.int64), start, stop, last_of_row[first_row], transfer)
