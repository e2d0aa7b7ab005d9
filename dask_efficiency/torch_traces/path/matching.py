"""Matching: finds in the traces of several ranks which kernels and annotations are one collective."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Int8, Int32, Int64
from dask_efficiency.torch_traces.kineto.trace import KinetoTrace
from dask_efficiency.torch_traces.path.clocks import align_clocks
from dask_efficiency.torch_traces.path.collectives import (
    POINT_TO_POINT,
    CollectiveArrivals,
    CollectiveKind,
    Collectives,
    Exchanges,
    RankExchanges,
)
from dask_efficiency.torch_traces.path.graph import places_in
from dask_efficiency.torch_traces.path.sequences import NOWHERE, CollectiveOrder, aligned_places

#: Receives considered for each send, before and after its end (a guess: pairs end within a few).
_MAX_LOOKED_AT = 16

#: Reasons why a kernel or annotation is in no collective.
CUT = "no other rank's profile has it"
ALONE = "no other rank of its group is in this trace"
DIFFERENT = "other ranks of its group did something else at its place"
UNPAIRED = "no other rank's profile has its send or receive"

#: Rows of exchanges.
_Rows = NDArray[np.intp]


def match_collectives(trace: KinetoTrace) -> Collectives:
    """Match the collectives of a job over the traces of its ranks, as :func:`match_exchanges`."""
    return match_exchanges([RankExchanges.of(rank) for rank in trace.ranks])


def match_exchanges(ranks: Sequence[RankExchanges]) -> Collectives:
    """Match the collectives of a job over its ranks, of which some may be missing.

    Within a process group all ranks ask for the same collectives in the same order. Their profiles begin and end at
    different ones, so the orders of two ranks are aligned where kinds, sizes, the profiler's steps and the times in
    between agree best. Sends and receives are paired by their ends once the clocks are aligned. A collective has at
    least two of the ranks; exchanges that are in none are counted.
    """
    exchanges, known, ordered = grouped_exchanges(ranks)
    groups, group = tuple(name for name, _ in known), exchanges.group
    between_two = np.isin(exchanges.kind, POINT_TO_POINT)
    left_out: Counter[str] = Counter()
    #: By exchange, the number of its collective.
    collective = np.full(len(exchanges), MISSING, np.int64)
    for number in range(len(groups)):
        rows = np.flatnonzero((group == number) & ~between_two)
        rows, place = _match_group(exchanges, rows, left_out, one_group=number in ordered)
        collective[rows] = np.unique(place, return_inverse=True)[1] + collective.max(initial=MISSING) + 1
    offset = align_clocks(_arrivals(exchanges, collective), [rank.host for rank in ranks]).offset
    shift = offset[exchanges.rank]
    timed = replace(exchanges, start=exchanges.start + shift, stop=exchanges.stop + shift)
    sends, receives = _pairs(timed, np.flatnonzero(between_two))
    left_out[UNPAIRED] += int(between_two.sum()) - 2 * len(sends)
    collective[sends] = collective[receives] = np.arange(len(sends)) + collective.max(initial=MISSING) + 1
    return Collectives(_in_order(_arrivals(exchanges, collective), offset), groups, dict(+left_out))


class GroupedExchanges(NamedTuple):
    """Exchanges of a job, by rank and then time."""

    #: Their ranks are positions, and their groups are positions in the second field.
    exchanges: Exchanges
    #: Name and members of each group; no members where they are not known.
    groups: tuple[tuple[str, tuple[int, ...]], ...]
    #: Groups whose ranks do the same in the same order.
    ordered: set[int]


def grouped_exchanges(ranks: Sequence[RankExchanges]) -> GroupedExchanges:
    """Put the exchanges of several ranks together."""
    parts = [Exchanges.empty(), *(rank.exchanges for rank in ranks)]
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in Exchanges.dtypes()}
    columns["rank"] = np.repeat(np.arange(len(ranks), dtype=np.int32), [len(rank.exchanges) for rank in ranks])
    exchanges = Exchanges(**columns)
    groups, ordered, group = _process_groups(ranks, exchanges)
    return GroupedExchanges(replace(exchanges, group=group), groups, ordered)


def _process_groups(
    ranks: Sequence[RankExchanges], exchanges: Exchanges
) -> tuple[tuple[tuple[str, tuple[int, ...]], ...], set[int], Int32]:
    """Names and members of groups, those whose ranks do the same in the same order, and the group of each exchange.

    Groups with the same name and other members are different groups. Where a trace names no groups, each stream is one,
    and on the CPU each library. All are in one order but streams, which groups may share.
    """
    number = np.empty(len(exchanges), np.int32)
    rows_of = [np.flatnonzero(exchanges.rank == rank) for rank in range(len(ranks))]
    streams = [tuple(np.setdiff1d(exchanges.stream[rows], [MISSING]).tolist()) for rows in rows_of]
    # If all ranks use the same streams, their numbers mean the same; otherwise the place among a rank's own has to do.
    alike = len({used for used in streams if used}) <= 1
    known: dict[tuple[str, tuple[int, ...]], int] = {}
    ordered = set()
    for rank, rows, used in zip(ranks, rows_of, streams, strict=True):
        part = exchanges.take(rows)
        asked = zip(part.group.tolist(), part.stream.tolist(), part.annotation.tolist(), strict=True)
        for group, stream, name in {*asked}:
            place = stream if alike or stream == MISSING else used.index(stream)
            mine = (part.group == group) & (part.stream == stream) & (part.annotation == name)
            position = known.setdefault(_key(rank, group, place, name), len(known))
            number[rows[mine]] = position
            if group != MISSING or stream == MISSING:
                ordered.add(position)
    return tuple(known), ordered, number


def _key(rank: RankExchanges, group: int, stream: int, annotation: int) -> tuple[str, tuple[int, ...]]:
    if group != MISSING:
        name = rank.names[group]
        return name, tuple(rank.groups.get(name, ()))
    if annotation != MISSING:
        return rank.names[annotation].split(":", 1)[0], ()
    return f"stream {stream}", ()


def _match_group(exchanges: Exchanges, rows: _Rows, left_out: Counter[str], *, one_group: bool) -> tuple[_Rows, Int64]:
    """Exchanges of one group that are in a collective, and its place in the order of the rank that has most."""
    ranks, which, lengths = np.unique(exchanges.rank[rows], return_inverse=True, return_counts=True)
    if len(ranks) < 2:
        left_out[ALONE] += len(rows)
        return rows[:0], rows[:0].astype(np.int64)
    orders = [_order(exchanges, rows[which == rank]) for rank in range(len(ranks))]
    reference = int(lengths.argmax())
    place = np.concatenate(
        [
            np.arange(length) if rank == reference else aligned_places(orders[reference], order, one_group=one_group)
            for rank, (order, length) in enumerate(zip(orders, lengths.tolist(), strict=True))
        ]
    )
    left_out[DIFFERENT] += int((place == NOWHERE).sum())
    rows, place = rows[place != NOWHERE], place[place != NOWHERE]
    _, inverse, count = np.unique(place, return_inverse=True, return_counts=True)
    shared = count[inverse] > 1
    left_out[CUT] += int((~shared).sum())
    return rows[shared], place[shared]


def _order(exchanges: Exchanges, rows: _Rows) -> CollectiveOrder:
    return CollectiveOrder(exchanges.kind[rows], exchanges.elements[rows], exchanges.step[rows], exchanges.stop[rows])


def _pairs(timed: Exchanges, rows: _Rows) -> tuple[_Rows, _Rows]:
    """Pair the sends and receives of a job, whose exchanges are on its clock.

    Traces seldom record the peer of a send. In a group of two it is the other rank, which receives in the order of the
    sends. In larger groups the send and receive that end closest together are paired first, if their bytes agree as
    far as known.
    """
    pairs = [(rows[:0], rows[:0])]
    for group in np.unique(timed.group[rows]):
        mine = rows[timed.group[rows] == group]
        ranks = np.unique(timed.rank[mine])
        pairs += _between_two(timed, mine, ranks) if len(ranks) == 2 else [_closest(timed, mine)]
    sends, receives = (np.concatenate(side) for side in zip(*pairs, strict=True))
    return sends, receives


def _between_two(timed: Exchanges, mine: _Rows, ranks: Int32) -> list[tuple[_Rows, _Rows]]:
    """Pairs in order, for both directions; profiles may have recorded different parts."""
    pairs = []
    for sender, receiver in (ranks, ranks[::-1]):
        sends = mine[(timed.rank[mine] == sender) & (timed.kind[mine] == CollectiveKind.SEND)]
        receives = mine[(timed.rank[mine] == receiver) & (timed.kind[mine] == CollectiveKind.RECEIVE)]
        if not len(sends) or not len(receives):
            continue
        # A transfer may end when it is waited for, long after the call: ends only tell which parts were recorded.
        place = np.arange(len(receives))
        if len(sends) != len(receives):
            place = aligned_places(_pair_order(timed, sends), _pair_order(timed, receives), one_group=True)
        paired = (place != NOWHERE) & (place >= 0) & (place < len(sends))
        pairs.append((sends[place[paired]], receives[paired]))
    return pairs


def _pair_order(timed: Exchanges, rows: _Rows) -> CollectiveOrder:
    alike: Int8 = np.full(len(rows), CollectiveKind.SEND, np.int8)
    return CollectiveOrder(alike, timed.nbytes[rows], timed.step[rows], timed.stop[rows])


def _closest(timed: Exchanges, mine: _Rows) -> tuple[_Rows, _Rows]:
    """Pairs by distance of their ends, the closest first."""
    sends = mine[timed.kind[mine] == CollectiveKind.SEND]
    receives = mine[timed.kind[mine] == CollectiveKind.RECEIVE]
    receives = receives[np.argsort(timed.stop[receives], kind="stable")]
    near = np.searchsorted(timed.stop[receives], timed.stop[sends])[:, None]
    near = near + np.arange(-_MAX_LOOKED_AT, _MAX_LOOKED_AT)
    which, looked = np.nonzero((near >= 0) & (near < len(receives)))
    send, receive = sends[which], receives[near[which, looked]]
    possible = (timed.rank[send] != timed.rank[receive]) & (timed.stop[receive] >= timed.start[send])
    nbytes, others = timed.nbytes[send], timed.nbytes[receive]
    possible &= (nbytes == others) | (nbytes == MISSING) | (others == MISSING)
    send, receive = send[possible], receive[possible]
    free = np.ones(len(timed.rank), np.bool_)
    chosen = []
    for pair in np.argsort(np.abs(timed.stop[send] - timed.stop[receive]), kind="stable").tolist():
        if free[send[pair]] and free[receive[pair]]:
            free[[send[pair], receive[pair]]] = False
            chosen.append(pair)
    return send[chosen], receive[chosen]


def _arrivals(exchanges: Exchanges, collective: Int64) -> CollectiveArrivals:
    """Arrivals of the exchanges that are in a collective."""
    rows = np.flatnonzero(collective != MISSING)
    rows = rows[np.lexsort((exchanges.rank[rows], collective[rows]))]
    columns = {name: getattr(exchanges, name)[rows] for name in CollectiveArrivals.dtypes() if name != "collective"}
    return CollectiveArrivals(collective=collective[rows].astype(np.int32), **columns)


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
