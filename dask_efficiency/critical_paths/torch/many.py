"""Tiles the window of a job: one walk over all ranks, which leaves a collective through the rank that came last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from dask_efficiency.critical_paths.kinds import KINDS, Kind
from dask_efficiency.critical_paths.torch.causes import last_causes
from dask_efficiency.critical_paths.torch.clocks import Clocks, each, last_arrivals
from dask_efficiency.critical_paths.torch.collectives import Collectives
from dask_efficiency.critical_paths.torch.graph import TorchGraph
from dask_efficiency.critical_paths.torch.instants import Instants
from dask_efficiency.critical_paths.torch.loading import Pieces, with_loading
from dask_efficiency.critical_paths.torch.ranks import last_rows
from dask_efficiency.critical_paths.torch.stretches import Stretches
from dask_efficiency.critical_paths.torch.tiling import last_instant, pieces_along
from dask_efficiency.trace.tables import MISSING, Int32, Int64


def tile_ranks(graphs: Sequence[TorchGraph], collectives: Collectives, clocks: Clocks) -> Stretches:
    """The critical path of a job, as stretches that tile its window exactly.

    The walk begins at the end of the rank that ends last, and goes on as it does for one rank. Where it comes to a
    collective in which the rank waited, it stays in it back to the arrival of the last rank, and goes on with what that
    one did before.

    Parameters
    ----------
    graphs
        Of every rank, in the order of the trace.
    collectives, clocks
        Of the same ranks.

    Returns
    -------
    Stretches
        Contiguous, in time order, on the clock of the job, from the first start of a rank's region to the last stop.
        What is before the region of the rank that the walk ends at is ``unattributed``.
    """
    offset = clocks.offset.tolist()
    ranks = [_Rank(graph, shift) for graph, shift in zip(graphs, offset, strict=True)]
    start = min(rank.start for rank in ranks)
    number = max(range(len(ranks)), key=lambda rank: ranks[rank].stop)
    ways = _Ways(ranks, collectives, clocks.offset)
    at, position = ranks[number].stop, last_instant(graphs[number], ranks[number].instants)
    parts: list[tuple[int, Pieces]] = []
    while True:
        rank = ranks[number]
        path, collective = ways.walk(number, position)
        until = min(rank.start if collective is None else ways.last[collective], at)
        if collective is not None:
            until = min(until, int(rank.instants.at[path[-2]]) + rank.offset)
        if until < at:
            parts.append((number, rank.pieces(path, until, at)))
        at = until
        if collective is None:
            break
        number, position = ways.through(collective, at)
    if start < at:
        parts.append((number, _unknown(start, at)))
    return _joined(reversed(parts))


class _Rank:
    """One rank's instants and what each waited for last."""

    def __init__(self, graph: TorchGraph, offset: int) -> None:
        self.graph = graph
        self.offset = offset
        self.start, self.stop = graph.region.start + offset, graph.region.stop + offset
        self.instants = Instants.of(graph)
        self.causes = last_causes(graph, self.instants)
        self.following: list[int] = self.causes.cause.tolist()

    def pieces(self, path: Int64, start: int, stop: int) -> Pieces:
        """A path's pieces between two instants, on the clock of the job."""
        region = replace(self.graph.region, start=start - self.offset, stop=stop - self.offset)
        graph = replace(self.graph, region=region)
        pieces = with_loading(graph, pieces_along(graph, self.instants, self.causes, path))
        return pieces._replace(bounds=pieces.bounds + self.offset)


class _Ways:
    """The ways from rank to rank, each of which is gone once at most, so that a walk ends."""

    def __init__(self, ranks: Sequence[_Rank], collectives: Collectives, offset: Int64) -> None:
        arrivals = collectives.arrivals
        self._ranks = ranks
        last, rows = last_arrivals(arrivals, offset), last_rows(arrivals, offset)
        #: When the last rank came to each collective.
        self.last: list[int] = last.tolist()
        self._rank, self._event = arrivals.rank[rows].tolist(), arrivals.event[rows].tolist()
        waited = arrivals.start + offset[arrivals.rank] < each(arrivals, last)
        #: By rank, from the end of an event in which it waited to the collective.
        self._out = [
            _ends(rank, arrivals.event[mine], arrivals.collective[mine])
            for number, rank in enumerate(ranks)
            for mine in [np.flatnonzero(waited & (arrivals.rank == number))]
        ]

    def walk(self, number: int, position: int) -> tuple[Int64, int | None]:
        """From an instant along causes to the start of the first collective in which the rank waited, if any."""
        rank, out, path = self._ranks[number], self._out[number], []
        while position != MISSING:
            path.append(position)
            if (collective := out.get(position)) is not None:
                path.append(int(rank.instants.partner[position]))
                return np.array(path, np.int64), collective
            if rank.instants.at[position] + rank.offset <= rank.start:
                break
            position = rank.following[position]
        return np.array(path, np.int64), None

    def through(self, collective: int, at: int) -> tuple[int, int]:
        """The rank that came last and the instant at which it did; what it did last, if its window lacks that."""
        for out in self._out:
            for position in [position for position, known in out.items() if known == collective]:
                del out[position]
        number = self._rank[collective]
        rank = self._ranks[number]
        found = np.flatnonzero(rank.instants.is_start & (rank.instants.event == self._event[collective]))
        if len(found):
            return number, int(found[0])
        return number, int(np.searchsorted(rank.instants.at, at - rank.offset, side="right")) - 1


def _ends(rank: _Rank, events: Int32, collectives: Int32) -> dict[int, int]:
    """The instants at which events end, each with its collective."""
    of_event = dict(zip(events.tolist(), collectives.tolist(), strict=True))
    instants = rank.instants
    found = np.flatnonzero(~instants.is_start & np.isin(instants.event, events))
    return {int(position): of_event[int(instants.event[position])] for position in found}


def _unknown(start: int, stop: int) -> Pieces:
    missing = np.array([MISSING], np.int32)
    kind = np.array([KINDS.index(Kind.UNATTRIBUTED)], np.int8)
    return Pieces(np.array([start, stop]), kind, missing, np.zeros(1, np.bool_), missing)


def _joined(parts: Iterable[tuple[int, Pieces]]) -> Stretches:
    """Parts in time order as one."""
    numbers, pieces = zip(*parts, strict=True)
    return Stretches.between(
        np.concatenate([*(part.bounds[:-1] for part in pieces), pieces[-1].bounds[-1:]]),
        kind=np.concatenate([part.kind for part in pieces]),
        rank=np.repeat(np.array(numbers, np.int32), [len(part.kind) for part in pieces]),
        event=np.concatenate([part.event for part in pieces]),
        inferred=np.concatenate([part.inferred for part in pieces]),
    )
