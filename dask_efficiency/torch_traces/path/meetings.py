"""Collectives as instants of their own: each waits for all ranks, and each rank's end of it waits for that instant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Float64, Int64
from dask_efficiency.torch_traces.kineto.lookup import first_with
from dask_efficiency.torch_traces.path.collectives import Arrivals
from dask_efficiency.torch_traces.path.graph import TorchGraph
from dask_efficiency.torch_traces.path.retime import Waits


@dataclass(frozen=True, slots=True)
class Meetings:
    """The collectives of which at least two ranks have nodes; nodes are numbered over all graphs."""

    #: A row for each rank that takes part: number of the meeting, and the nodes at which the rank comes and leaves.
    meeting: Int64
    start: Int64
    stop: Int64
    #: By meeting, when the last rank came, and nanoseconds from then until the first one left.
    at: Int64
    transfer: Int64

    def share(self, nodes: int, before: Waits, after: Waits) -> Float64:
        """By meeting, the share of its time that it takes: the least of what its ranks' own times are multiplied by."""
        was, now = self._own_lags(nodes, before), self._own_lags(nodes, after)
        of_rank = np.where((was > 0) & (now >= 0), now / np.maximum(was, 1), 1.0)
        found = np.ones(len(self.at))
        np.minimum.at(found, self.meeting, of_rank)
        return found

    def among(self, nodes: int, waits: Waits, share: Float64) -> Waits:
        """The waits, with a rank's own time in a collective replaced by its waiting for the others."""
        lag = waits.lag.copy()
        own = self._own(nodes, waits)
        lag[own[own != MISSING]] = 0
        instants = nodes + self.meeting
        transfer = np.round(self.transfer * share).astype(np.int64)[self.meeting]
        return Waits(
            np.concatenate([waits.source, self.start, instants]),
            np.concatenate([waits.target, instants, self.stop]),
            np.concatenate([lag, np.zeros_like(self.start), transfer]),
        )

    def _own_lags(self, nodes: int, waits: Waits) -> Int64:
        own = self._own(nodes, waits)
        return np.where(own != MISSING, waits.lag[own], MISSING) if len(waits.lag) else np.full(len(own), MISSING)

    def _own(self, nodes: int, waits: Waits) -> Int64:
        """By row, the wait from the node at which the rank comes to the one at which it leaves."""
        return first_with(waits.source * nodes + waits.target, self.start * nodes + self.stop)


def meetings_of(
    graphs: Sequence[TorchGraph], position: Sequence[int], base: Int64, at: Int64, arrivals: Arrivals
) -> Meetings:
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
    return Meetings(meeting.astype(np.int64), start, stop, last_of_row[first_row], transfer)
