"""Pairs: finds for each send of a rank the receive of another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Int8, Int32, Int64
from dask_efficiency.torch_traces.path import sequences
from dask_efficiency.torch_traces.path.collectives import POINT_TO_POINT, CollectiveKind
from dask_efficiency.torch_traces.path.communication import Communication
from dask_efficiency.torch_traces.path.sequences import NOWHERE, places

#: Receives that are looked at for each send, on either side of the instant at which it ended.
_MAX_LOOKED_AT = 16

#: Positions of sends and of their receives.
_Pairs = tuple[NDArray[np.intp], NDArray[np.intp]]


@dataclass(frozen=True, slots=True)
class _PointToPoint:
    """All sends and receives of a job, by rank and time of start, on the clock of the job."""

    rank: Int64
    row: Int64
    kind: Int8
    group: Int64
    start: Int64
    stop: Int64
    nbytes: Int64
    step: Int32

    @classmethod
    def of(cls, parts: Sequence[Communication], groups: Sequence[Int64], offset: Int64) -> Self:
        rows = [np.flatnonzero(np.isin(part.kind, POINT_TO_POINT)) for part in parts]

        def column(name: str) -> NDArray[Any]:
            return np.concatenate([getattr(part, name)[own] for part, own in zip(parts, rows, strict=True)])

        rank = np.repeat(np.arange(len(parts)), [len(own) for own in rows])
        group = np.concatenate([number[own] for number, own in zip(groups, rows, strict=True)])
        start, stop = (column(name) + offset[rank] for name in ("start", "stop"))
        row = np.concatenate(rows)
        return cls(rank, row, column("kind"), group, start, stop, column("nbytes"), column("step"))


def pair_up(parts: Sequence[Communication], groups: Sequence[Int64], offset: Int64) -> NDArray[np.int64]:
    """The sends and receives of a job as pairs.

    Traces seldom say whom a rank sends to. In a group of two it is the other one, which receives in the order in which
    was sent. In larger groups those are paired first that end closest together, as a send and its receive do, of as
    many bytes as far as that is known.

    Parameters
    ----------
    parts
        What each rank exchanged.
    groups
        The number of the group of each of these.
    offset
        What is to be added to each rank's instants.

    Returns
    -------
    array, shape (pairs, 4)
        The sending rank, the row in its part, the receiving rank, the row in its part.
    """
    if not parts:
        return np.empty((0, 4), np.int64)
    found = _PointToPoint.of(parts, groups, offset)
    pairs = [np.empty((0, 4), np.int64)]
    for group in np.unique(found.group):
        mine = np.flatnonzero(found.group == group)
        ranks = np.unique(found.rank[mine])
        for sends, receives in _between_two(found, mine, ranks) if len(ranks) == 2 else [_closest(found, mine)]:
            columns = found.rank[sends], found.row[sends], found.rank[receives], found.row[receives]
            pairs.append(np.stack(columns, axis=1).astype(np.int64))
    return np.concatenate(pairs)


def _between_two(found: _PointToPoint, mine: NDArray[np.intp], ranks: Int64) -> list[_Pairs]:
    """In order, for either direction; profiles may have recorded different parts of it."""
    pairs = []
    for one, other in (ranks, ranks[::-1]):
        sends = mine[(found.rank[mine] == one) & (found.kind[mine] == CollectiveKind.SEND)]
        receives = mine[(found.rank[mine] == other) & (found.kind[mine] == CollectiveKind.RECEIVE)]
        if not len(sends) or not len(receives):
            continue
        # What was asked for long ago may end when it is waited for: ends tell only which parts profiles recorded.
        place = np.arange(len(receives))
        if len(sends) != len(receives):
            place = places(_order(found, sends), _order(found, receives), one_group=True)
        beside = (place != NOWHERE) & (place >= 0) & (place < len(sends))
        pairs.append((sends[place[beside]], receives[beside]))
    return pairs


def _order(found: _PointToPoint, rows: NDArray[np.intp]) -> sequences.Sequence:
    alike = np.full(len(rows), CollectiveKind.SEND, np.int8)
    return sequences.Sequence(alike, found.nbytes[rows], found.step[rows], found.stop[rows])


def _closest(found: _PointToPoint, mine: NDArray[np.intp]) -> _Pairs:
    """Those first that end closest together."""
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
