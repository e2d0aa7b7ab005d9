"""Pairs: finds for each send of a rank the receive of another one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.critical_paths.torch.collectives import POINT_TO_POINT, CollectiveKind
from dask_efficiency.critical_paths.torch.communication import Communication
from dask_efficiency.trace.tables import MISSING, Int64

#: Receives that are looked at for each send, on either side of the instant at which it ended.
_MAX_LOOKED_AT = 16


def pair_up(parts: Sequence[Communication], groups: Sequence[Int64], offset: Int64) -> NDArray[np.int64]:
    """The sends and receives of a job as pairs, by when they ended.

    Traces seldom say whom a rank sends to. A send and its receive end at nearly the same instant, so of all sends and
    receives of one group, of as many bytes as far as that is known, those are paired first that end closest together.

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
    rows = [
        (rank, row) for rank, part in enumerate(parts) for row in np.flatnonzero(np.isin(part.kind, POINT_TO_POINT))
    ]
    if not rows:
        return np.empty((0, 4), np.int64)
    rank, row = np.array(rows, np.int64).T
    kind, start, stop, nbytes, group = (
        np.concatenate(columns)
        for columns in zip(
            *(
                (part.kind[own], part.start[own] + shift, part.stop[own] + shift, part.nbytes[own], number[own])
                for part, number, shift, own in zip(
                    parts, groups, offset, (row[rank == one] for one in range(len(parts))), strict=True
                )
            ),
            strict=True,
        )
    )
    sends = np.flatnonzero(kind == CollectiveKind.SEND)
    receives = np.flatnonzero(kind == CollectiveKind.RECEIVE)
    receives = receives[np.argsort(stop[receives], kind="stable")]
    near = np.searchsorted(stop[receives], stop[sends])[:, None] + np.arange(-_MAX_LOOKED_AT, _MAX_LOOKED_AT)
    which, looked = np.nonzero((near >= 0) & (near < len(receives)))
    send, receive = sends[which], receives[near[which, looked]]
    possible = (rank[send] != rank[receive]) & (group[send] == group[receive]) & (stop[receive] >= start[send])
    possible &= (nbytes[send] == nbytes[receive]) | (nbytes[send] == MISSING) | (nbytes[receive] == MISSING)
    send, receive = send[possible], receive[possible]
    free = np.ones(len(rank), np.bool_)
    pairs = []
    for chosen in np.argsort(np.abs(stop[send] - stop[receive]), kind="stable"):
        one, other = send[chosen], receive[chosen]
        if free[one] and free[other]:
            free[[one, other]] = False
            pairs.append((rank[one], row[one], rank[other], row[other]))
    return np.array(pairs, np.int64).reshape(-1, 4)
