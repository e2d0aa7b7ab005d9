"""Matching: finds in the traces of several ranks which kernels and annotations are one collective."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import Int64
from dask_efficiency.torch_traces.kineto.trace import KinetoTrace
from dask_efficiency.torch_traces.path.clocks import align_clocks, hosts_of
from dask_efficiency.torch_traces.path.collectives import POINT_TO_POINT, Arrivals, Collectives
from dask_efficiency.torch_traces.path.communication import Communication, communication_of
from dask_efficiency.torch_traces.path.ordering import places_in
from dask_efficiency.torch_traces.path.pairs import pair_up
from dask_efficiency.torch_traces.path.process_groups import process_groups
from dask_efficiency.torch_traces.path.sequences import NOWHERE, places
from dask_efficiency.torch_traces.path.sequences import Sequence as Order

#: Why a kernel or annotation is in no collective.
CUT = "no other rank's profile has it"
ALONE = "no other rank of its group is in this trace"
DIFFERENT = "other ranks of its group did something else at its place"
UNPAIRED = "no other rank's profile has its send or receive"

#: Rows of collective, rank, row in the rank's part, group.
_Rows = NDArray[np.int64]


def match_collectives(trace: KinetoTrace) -> Collectives:
    """The collectives of a job, matched over its ranks.

    Within a process group all ranks ask for the same collectives in the same order. Profiles of ranks do not begin and
    end at the same one, so the orders of two ranks are put beside each other where kinds, sizes, the profiler's steps
    and the times in between agree best. Sends and receives are paired by the instants at which they end, once clocks
    are known.

    Parameters
    ----------
    trace
        Ranks of one job; not all of them have to be there.

    Returns
    -------
    Collectives
        Those in which at least two of the ranks took part, and how many parts were left out.
    """
    parts = [communication_of(rank) for rank in trace.ranks]
    groups = process_groups(trace, parts)
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
    parts: Sequence[Communication],
    rows: Sequence[NDArray[np.intp]],
    group: int,
    left_out: Counter[str],
    *,
    is_ordered: bool,
) -> _Rows:
    """The collectives of one group, numbered by their place in the order of the rank that has most of them."""
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
            place = places(orders[reference], orders[rank], one_group=is_ordered)
        columns = place, np.full(len(place), rank), rows[rank], np.full(len(place), group)
        found.append(np.stack(columns, axis=1)[place != NOWHERE].astype(np.int64))
        left_out[DIFFERENT] += int((place == NOWHERE).sum())
    together = np.concatenate(found)
    _, inverse, count = np.unique(together[:, 0], return_inverse=True, return_counts=True)
    shared = count[inverse] > 1
    left_out[CUT] += int((~shared).sum())
    return together[shared]


def _order(part: Communication, rows: NDArray[np.intp]) -> Order:
    return Order(part.kind[rows], part.elements[rows], part.step[rows], part.stop[rows])


def _match_pairs(
    parts: Sequence[Communication], numbers: Sequence[Int64], offset: Int64, left_out: Counter[str]
) -> _Rows:
    pairs = pair_up(parts, numbers, offset)
    all_of_them = sum(int(np.isin(part.kind, POINT_TO_POINT).sum()) for part in parts)
    left_out[UNPAIRED] += all_of_them - 2 * len(pairs)
    group = np.array([numbers[rank][row] for rank, row in pairs[:, :2]], np.int64)
    place = np.arange(len(pairs))
    sides = [np.column_stack([place, pairs[:, side : side + 2], group]) for side in (0, 2)]
    return np.concatenate(sides).astype(np.int64)


def _numbered(several: Sequence[_Rows]) -> _Rows:
    """All of them, with numbers that none shares with another one."""
    first, renumbered = 0, []
    for rows in several:
        _, inverse = np.unique(rows[:, 0], return_inverse=True)
        renumbered.append(np.column_stack([inverse + first, rows[:, 1:]]))
        first += int(inverse.max()) + 1 if len(rows) else 0
    return np.concatenate(renumbered).astype(np.int64)


def _arrivals(parts: Sequence[Communication], rows: _Rows) -> Arrivals:
    """What the ranks' parts say of each row."""
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    collective, rank, row, group = rows.T
    columns = {name: np.empty(len(rows), column) for name, column in Arrivals.dtypes().items()}
    columns |= {"collective": collective, "rank": rank, "group": group}
    for position, part in enumerate(parts):
        mine = rank == position
        for name in ("event", "kind", "start", "stop", "nbytes", "step"):
            columns[name][mine] = getattr(part, name)[row[mine]]
    return Arrivals(**columns)


def _in_order(arrivals: Arrivals, offset: Int64) -> Arrivals:
    """With collectives numbered in the order in which their last ranks left."""
    if not len(arrivals):
        return arrivals
    over = np.maximum.reduceat(arrivals.stop + offset[arrivals.rank], arrivals.begins)
    place = places_in(np.argsort(over, kind="stable"))
    collective = place[arrivals.collective]
    order = np.lexsort((arrivals.rank, collective))
    columns = {**arrivals.columns(), "collective": collective}
    return Arrivals(**{name: column[order] for name, column in columns.items()})
