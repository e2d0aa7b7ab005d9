"""Matching: finds in the traces of several ranks which kernels and annotations are one collective."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Int8, Int32, Int64
from dask_efficiency.torch_traces.kineto.trace import KinetoTrace, RankTrace
from dask_efficiency.torch_traces.path.clocks import align_clocks, hosts_of
from dask_efficiency.torch_traces.path.collectives import (
    POINT_TO_POINT,
    CollectiveArrivals,
    CollectiveKind,
    Collectives,
    RankExchanges,
    communication_of,
)
from dask_efficiency.torch_traces.path.ordering import places_in
from dask_efficiency.torch_traces.path.sequences import NOWHERE, CollectiveOrder, aligned_places

#: Receives considered for each send, before and after its end (a guess: pairs end within a few).
_MAX_LOOKED_AT = 16

#: Positions of sends and of their receives.
_Pairs = tuple[NDArray[np.intp], NDArray[np.intp]]

#: Reasons why a kernel or annotation is in no collective.
CUT = "no other rank's profile has it"
ALONE = "no other rank of its group is in this trace"
DIFFERENT = "other ranks of its group did something else at its place"
UNPAIRED = "no other rank's profile has its send or receive"

#: Rows of collective, rank, row of the rank's exchange, group.
_Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _ProcessGroups:
    """The groups of a job, numbered over all ranks."""

    #: Names; groups with the same name and other members are different groups. Where a trace names no groups, each
    #: stream is one, and on the CPU each library.
    names: tuple[str, ...]
    #: Groups whose ranks do the same in the same order: all but streams, which groups may share.
    ordered: frozenset[int]
    #: By rank, the group of each row of its exchanges.
    numbers: tuple[Int64, ...]


def _process_groups(trace: KinetoTrace, parts: Sequence[RankExchanges]) -> _ProcessGroups:
    """Find the groups of the ranks' exchanges."""
    streams = [tuple(np.unique(part.stream[part.stream != MISSING]).tolist()) for part in parts]
    # If all ranks use the same streams, their numbers mean the same; otherwise the place among a rank's own has to do.
    alike = len({used for used in streams if used}) <= 1
    known: dict[tuple[str, tuple[int, ...]], int] = {}
    ordered = set()
    numbers = []
    for rank, part, used in zip(trace.ranks, parts, streams, strict=True):
        number = np.empty(len(part), np.int64)
        annotation = np.where(part.stream == MISSING, rank.events.name[part.event], MISSING)
        for group, stream, name in {*zip(part.group.tolist(), part.stream.tolist(), annotation.tolist(), strict=True)}:
            place = stream if alike or stream == MISSING else used.index(stream)
            mine = (part.group == group) & (part.stream == stream) & (annotation == name)
            found = known.setdefault(_key(rank, group, place, name), len(known))
            number[mine] = found
            if group != MISSING or stream == MISSING:
                ordered.add(found)
        numbers.append(number)
    return _ProcessGroups(tuple(name for name, _ in known), frozenset(ordered), tuple(numbers))


def _key(rank: RankTrace, group: int, stream: int, annotation: int) -> tuple[str, tuple[int, ...]]:
    if group != MISSING:
        name = rank.names[group]
        return name, tuple(rank.groups.get(name, ()))
    if annotation != MISSING:
        return rank.names[annotation].split(":", 1)[0], ()
    return f"stream {stream}", ()


@dataclass(frozen=True, slots=True)
class _PointToPoint:
    """All sends and receives of a job, by rank and start, on the clock of the job."""

    rank: Int64
    row: Int64
    kind: Int8
    group: Int64
    start: Int64
    stop: Int64
    nbytes: Int64
    step: Int32

    @classmethod
    def of(cls, parts: Sequence[RankExchanges], groups: Sequence[Int64], offset: Int64) -> Self:
        rows = [np.flatnonzero(np.isin(part.kind, POINT_TO_POINT)) for part in parts]

        def column(name: str) -> NDArray[Any]:
            return np.concatenate([getattr(part, name)[own] for part, own in zip(parts, rows, strict=True)])

        rank = np.repeat(np.arange(len(parts)), [len(own) for own in rows])
        group = np.concatenate([number[own] for number, own in zip(groups, rows, strict=True)])
        start, stop = (column(name) + offset[rank] for name in ("start", "stop"))
        row = np.concatenate(rows)
        return cls(rank, row, column("kind"), group, start, stop, column("nbytes"), column("step"))


def _between_two(found: _PointToPoint, mine: NDArray[np.intp], ranks: Int64) -> list[_Pairs]:
    """Pairs in order, for both directions; profiles may have recorded different parts."""
    pairs = []
    for one, other in (ranks, ranks[::-1]):
        sends = mine[(found.rank[mine] == one) & (found.kind[mine] == CollectiveKind.SEND)]
        receives = mine[(found.rank[mine] == other) & (found.kind[mine] == CollectiveKind.RECEIVE)]
        if not len(sends) or not len(receives):
            continue
        # A transfer may end when it is waited for, long after the call: ends only tell which parts were recorded.
        place = np.arange(len(receives))
        if len(sends) != len(receives):
            place = aligned_places(_pair_order(found, sends), _pair_order(found, receives), one_group=True)
        paired = (place != NOWHERE) & (place >= 0) & (place < len(sends))
        pairs.append((sends[place[paired]], receives[paired]))
    return pairs


def _pair_order(found: _PointToPoint, rows: NDArray[np.intp]) -> CollectiveOrder:
    alike = np.full(len(rows), CollectiveKind.SEND, np.int8)
    return CollectiveOrder(alike, found.nbytes[rows], found.step[rows], found.stop[rows])


def _closest(found: _PointToPoint, mine: NDArray[np.intp]) -> _Pairs:
    """Pairs by distance of their ends, the closest first."""
    sends = mine[found.kind[mine] == CollectiveKind.SEND]
    receives = mine[found.kind[mine] == CollectiveKind.RECEIVE]
    receives = receives[np.argsort(found.stop[receives], kind="stable")]
    near = np.searchsorted(found.stop[receives], found.stop[sends])[:, None]
    near = near + np.arange(-_MAX_LOOKED_AT, _MAX_LOOKED_AT)
    which, looked = np.nonzero((near >= 0) & (near < len(receives)))
    send, receive = sends[which], receives[near[which, looked]]
    possible = (found.rank[send] != found.rank[receive]) & (found.stop[receive] >= found.start[send])
    nbytes, others = found.nbytes[send], found.nbytes[receive]
    possible &= (nbytes == others) | (nbytes == MISSING) | (others == MISSING)
    send, receive = send[possible], receive[possible]
    free = np.ones(len(found.rank), np.bool_)
    chosen = []
    for pair in np.argsort(np.abs(found.stop[send] - found.stop[receive]), kind="stable").tolist():
        if free[send[pair]] and free[receive[pair]]:
            free[[send[pair], receive[pair]]] = False
            chosen.append(pair)
    return send[chosen], receive[chosen]


def match_collectives(trace: KinetoTrace) -> Collectives:
    """Match the collectives of a job over its ranks, of which some may be missing.

    Within a process group all ranks ask for the same collectives in the same order. Their profiles begin and end at
    different ones, so the orders of two ranks are aligned where kinds, sizes, the profiler's steps and the times in
    between agree best. Sends and receives are paired by their ends once the clocks are aligned. A collective has at
    least two of the ranks; exchanges that are in none are counted.
    """
    parts = [communication_of(rank) for rank in trace.ranks]
    groups = _process_groups(trace, parts)
    left_out: Counter[str] = Counter()
    matched = [np.empty((0, 4), np.int64)]
    for group in range(len(groups.names)):
        rows = [
            np.flatnonzero((number == group) & ~np.isin(part.kind, POINT_TO_POINT))
            for part, number in zip(parts, groups.numbers, strict=True)
        ]
        matched.append(_match_group(parts, rows, group, left_out, is_ordered=group in groups.ordered))
    collectives = _numbered(matched)
    offset = align_clocks(_arrivals(parts, collectives), hosts_of(trace)).offset
    pairs = _match_pairs(parts, groups.numbers, offset, left_out)
    collectives = _numbered([collectives, pairs])
    arrivals = _in_order(_arrivals(parts, collectives), offset)
    return Collectives(arrivals, groups.names, dict(+left_out))


def _match_group(
    parts: Sequence[RankExchanges],
    rows: Sequence[NDArray[np.intp]],
    group: int,
    left_out: Counter[str],
    *,
    is_ordered: bool,
) -> _Rows:
    """Collectives of one group, numbered by place in the order of the rank that has most."""
    ranks = [rank for rank, own in enumerate(rows) if len(own)]
    if len(ranks) < 2:
        left_out[ALONE] += sum(len(rows[rank]) for rank in ranks)
        return np.empty((0, 4), np.int64)
    orders = {rank: _order(parts[rank], rows[rank]) for rank in ranks}
    reference = max(ranks, key=lambda rank: (len(rows[rank]), -rank))
    found = []
    for rank in ranks:
        place = np.arange(len(rows[rank]))
        if rank != reference:
            place = aligned_places(orders[reference], orders[rank], one_group=is_ordered)
        columns = place, np.full(len(place), rank), rows[rank], np.full(len(place), group)
        found.append(np.stack(columns, axis=1)[place != NOWHERE].astype(np.int64))
        left_out[DIFFERENT] += int((place == NOWHERE).sum())
    together = np.concatenate(found)
    _, inverse, count = np.unique(together[:, 0], return_inverse=True, return_counts=True)
    shared = count[inverse] > 1
    left_out[CUT] += int((~shared).sum())
    return together[shared]


def _order(part: RankExchanges, rows: NDArray[np.intp]) -> CollectiveOrder:
    return CollectiveOrder(part.kind[rows], part.elements[rows], part.step[rows], part.stop[rows])


def _match_pairs(
    parts: Sequence[RankExchanges], groups: Sequence[Int64], offset: Int64, left_out: Counter[str]
) -> _Rows:
    """Pairs of the sends and receives of a job.

    Traces seldom record the peer of a send. In a group of two it is the other rank, which receives in the order of the
    sends. In larger groups the send and receive that end closest together are paired first, if their bytes agree as
    far as known.
    """
    if not parts:
        return np.empty((0, 4), np.int64)
    found = _PointToPoint.of(parts, groups, offset)
    pairs = [(np.empty(0, np.intp), np.empty(0, np.intp))]
    for group in np.unique(found.group):
        mine = np.flatnonzero(found.group == group)
        ranks = np.unique(found.rank[mine])
        pairs += _between_two(found, mine, ranks) if len(ranks) == 2 else [_closest(found, mine)]
    sends, receives = (np.concatenate(side) for side in zip(*pairs, strict=True))
    left_out[UNPAIRED] += len(found.rank) - 2 * len(sends)
    columns = np.arange(len(sends)), found.group[sends]
    sides = [np.column_stack([columns[0], found.rank[side], found.row[side], columns[1]]) for side in (sends, receives)]
    return np.concatenate(sides).astype(np.int64)


def _numbered(several: Sequence[_Rows]) -> _Rows:
    """Concatenate, with a number for each collective."""
    first, renumbered = 0, []
    for rows in several:
        _, inverse = np.unique(rows[:, 0], return_inverse=True)
        renumbered.append(np.column_stack([inverse + first, rows[:, 1:]]))
        first += int(inverse.max()) + 1 if len(rows) else 0
    return np.concatenate(renumbered).astype(np.int64)


def _arrivals(parts: Sequence[RankExchanges], rows: _Rows) -> CollectiveArrivals:
    """Arrivals from rows and the ranks' exchanges."""
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    collective, rank, row, group = rows.T
    columns = {name: np.empty(len(rows), column) for name, column in CollectiveArrivals.dtypes().items()}
    columns |= {"collective": collective, "rank": rank, "group": group}
    for position, part in enumerate(parts):
        mine = rank == position
        for name in ("event", "kind", "start", "stop", "nbytes", "step"):
            columns[name][mine] = getattr(part, name)[row[mine]]
    return CollectiveArrivals(**columns)


def _in_order(arrivals: CollectiveArrivals, offset: Int64) -> CollectiveArrivals:
    """Number collectives in the order in which their last ranks left."""
    if not len(arrivals):
        return arrivals
    over = np.maximum.reduceat(arrivals.stop + offset[arrivals.rank], arrivals.begins)
    place = places_in(np.argsort(over, kind="stable"))
    collective = place[arrivals.collective]
    order = np.lexsort((arrivals.rank, collective))
    columns = {**arrivals.columns(), "collective": collective}
    return CollectiveArrivals(**{name: column[order] for name, column in columns.items()})
