"""Tiles the window of a job: one walk over all ranks, which leaves a collective through the rank that came last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Int32, Int64
from dask_efficiency.runs.path.kinds import KINDS, Kind
from dask_efficiency.torch_traces.path.causes import last_causes
from dask_efficiency.torch_traces.path.clocks import Clocks, each, last_arrivals
from dask_efficiency.torch_traces.path.collectives import Collectives
from dask_efficiency.torch_traces.path.graph import TorchGraph, starts_and_stops
from dask_efficiency.torch_traces.path.instants import Instants
from dask_efficiency.torch_traces.path.loading import Pieces, with_loading
from dask_efficiency.torch_traces.path.ranks import last_rows
from dask_efficiency.torch_traces.path.roles import own_kinds
from dask_efficiency.torch_traces.path.stretches import Stretches
from dask_efficiency.torch_traces.path.tiling import last_instant, pieces_along

#: Of a rank's time that is not on the path.
_ELSEWHERE = -1


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
    ranks = [_Rank(graph, int(shift)) for graph, shift in zip(graphs, clocks.offset, strict=True)]
    ways = _Ways(ranks, collectives, clocks.offset)
    number = max(range(len(ranks)), key=lambda rank: ranks[rank].stop)
    # A rank without events has a region of no length at no time.
    start = min((rank.start for rank in ranks if rank.start < rank.stop), default=ranks[number].start)
    at, position = ranks[number].stop, last_instant(graphs[number], ranks[number].instants)
    while True:
        rank = ranks[number]
        path, collective = ways.walk(number, position)
        until = rank.start
        if collective is not None:
            until = min(ways.last[collective], int(rank.instants.at[path[-2]]) + rank.offset)
        rank.add(path, min(until, at), at)
        at = min(until, at)
        if collective is None:
            break
        number, position = ways.through(collective, at)
    return _joined(ranks, number, start, at)


class _Rank:
    """One rank's instants, what each waited for last, and the parts of its time that are on the path."""

    def __init__(self, graph: TorchGraph, offset: int) -> None:
        self._graph, self.offset = graph, offset
        self.start, self.stop = graph.region.start + offset, graph.region.stop + offset
        self.instants = Instants.of(graph)
        self._causes = last_causes(graph, self.instants)
        self.following = self._causes.cause.data
        self._own = own_kinds(graph.trace)
        self._parts: list[Pieces] = []
        #: By row of an event, the instant at which it starts.
        self.start_of, _ = starts_and_stops(self.instants.event, self.instants.is_start, len(graph.trace.events))

    def add(self, path: Int64, start: int, stop: int) -> None:
        """Take the time between two instants on the clock of the job, before all that was taken, as a path says."""
        if start == stop:
            return
        region = replace(self._graph.region, start=start - self.offset, stop=stop - self.offset)
        graph = replace(self._graph, region=region)
        self._parts.append(pieces_along(graph, self.instants, self._causes, self._own, path))

    def pieces(self) -> Pieces | None:
        """All that was taken, in time order, with pieces of kind :data:`_ELSEWHERE` in between; None of nothing."""
        if not self._parts:
            return None
        parts, bounds = self._parts[::-1], []
        columns: list[tuple[NDArray[Any], ...]] = []
        for number, part in enumerate(parts):
            if number:
                columns.append(_nobodys(_ELSEWHERE))
            bounds.append(part.bounds)
            columns.append((part.kind, part.event, part.inferred, part.on_thread_of))
        pieces = Pieces(np.concatenate(bounds), *(np.concatenate(column) for column in zip(*columns, strict=True)))
        return with_loading(self._graph, pieces)


class _Ways:
    """The ways from rank to rank, each of which is gone once at most, so that a walk ends."""

    def __init__(self, ranks: Sequence[_Rank], collectives: Collectives, offset: Int64) -> None:
        arrivals = collectives.arrivals
        self._ranks = ranks
        self._gone: set[int] = set()
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
        until = int(np.searchsorted(rank.instants.at, rank.start - rank.offset, side="right"))
        following = rank.following
        while position != MISSING:
            path.append(position)
            collective = out.get(position)
            if collective is not None and collective not in self._gone:
                path.append(int(rank.instants.partner[position]))
                return np.array(path, np.int64), collective
            if position < until:
                break
            position = following[position]
        return np.array(path, np.int64), None

    def through(self, collective: int, at: int) -> tuple[int, int]:
        """The rank that came last and the instant at which it did; what it did last, if its window lacks that."""
        self._gone.add(collective)
        number = self._rank[collective]
        rank = self._ranks[number]
        position = int(rank.start_of[self._event[collective]])
        if position != MISSING:
            return number, position
        return number, int(np.searchsorted(rank.instants.at, at - rank.offset, side="right")) - 1


def _ends(rank: _Rank, events: Int32, collectives: Int32) -> dict[int, int]:
    """The instants at which events end, each with its collective."""
    of_event = dict(zip(events.tolist(), collectives.tolist(), strict=True))
    instants = rank.instants
    found = np.flatnonzero(~instants.is_start & np.isin(instants.event, events))
    return {int(position): of_event[int(instants.event[position])] for position in found}


def _nobodys(kind: int) -> tuple[NDArray[Any], ...]:
    """The columns of one piece that is no event's."""
    missing = np.array([MISSING], np.int32)
    return np.array([kind], np.int8), missing, np.zeros(1, np.bool_), missing


def _joined(ranks: Sequence[_Rank], last: int, start: int, at: int) -> Stretches:
    """What was taken of all ranks, in time order, and before it what is not known of one."""
    taken = [(number, rank.offset, pieces) for number, rank in enumerate(ranks) if (pieces := rank.pieces())]
    if start < at or not taken:
        bounds = np.array([start, at])
        taken.append((last, 0, Pieces(bounds, *_nobodys(KINDS.index(Kind.UNATTRIBUTED)))))
    kind, event, inferred = (
        np.concatenate([getattr(pieces, name) for *_, pieces in taken]) for name in ("kind", "event", "inferred")
    )
    begins = np.concatenate([pieces.bounds[:-1] + offset for _, offset, pieces in taken])
    stops = np.concatenate([pieces.bounds[1:] + offset for _, offset, pieces in taken])
    rank = np.repeat([number for number, *_ in taken], [len(pieces.kind) for *_, pieces in taken])
    kept = np.flatnonzero((kind != _ELSEWHERE) & (begins < stops))
    kept = kept[np.argsort(begins[kept], kind="stable")]
    bounds = np.append(begins[kept], stops[kept[-1:]])
    columns = {"kind": kind, "rank": rank.astype(np.int32), "event": event, "inferred": inferred}
    return Stretches.between(bounds, **{name: column[kept] for name, column in columns.items()})
