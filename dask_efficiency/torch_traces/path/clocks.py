"""RankClocks: offsets between the clocks of ranks, from the instants at which they left the same collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Column, ColumnTable, Int32, Int64
from dask_efficiency.torch_traces.kineto.trace import KinetoTrace
from dask_efficiency.torch_traces.path.collectives import CollectiveArrivals

#: Limit of rounds; medians settle in a few, as the first offsets are medians themselves.
_MAX_ROUNDS = 20

#: An offset up to this many spreads plus the resolution is taken for 0 (two median deviations: usual for noise).
_TIMES_SPREAD = 2
#: Resolution of old traces' instants, nanoseconds.
_RESOLUTION = 1_000

#: Nanoseconds by which offsets on one host may differ, as some ranks always leave later. If they differ by more,
#: these are different hosts with one name, such as ``localhost``.
_MAX_ON_ONE_HOST = 5_000_000


@dataclass(frozen=True, slots=True, repr=False)
class RankClocks(ColumnTable):
    """A row for each rank; the first rank's clock is that of the job."""

    #: To add to the rank's instants; 0 for a rank without collectives.
    offset: Annotated[Int64, Column(unit="nanoseconds")]
    #: Median distance between its instants of leaving and those of the others; missing without collectives.
    spread: Annotated[Int64, Column(unit="nanoseconds")]
    #: Number of collectives that this is from.
    collectives: Int32
    #: Number of them that the rank left before the last one arrived, by these clocks: errors of the clocks.
    violations: Int32


def align_clocks(arrivals: CollectiveArrivals, hosts: Sequence[str]) -> RankClocks:
    """Offsets with which ranks leave collectives at the same instants; ``hosts`` are names, "" if unknown.

    Only collectives that no rank can leave before all have arrived are used. Offsets are medians, since a rank may
    sometimes leave late. An offset within the noise is 0. Ranks of one host have the offset of its first rank, unless
    theirs are milliseconds apart. Drift within a trace is ignored.
    """
    ranks = len(hosts)
    used = arrivals.take(arrivals.together)
    offset = _first_offsets(used, ranks)
    for _ in range(_MAX_ROUNDS):
        remains = _remaining(used, offset)
        change = np.array([_median(remains[used.rank == rank]) for rank in range(ranks)], np.int64)
        offset += change
        if not change.any():
            break
    offset -= offset[0] if ranks else 0
    first = np.array([hosts.index(host) if host else rank for rank, host in enumerate(hosts)], np.intp)
    first = np.where(np.abs(offset - offset[first]) <= _MAX_ON_ONE_HOST, first, np.arange(ranks))
    offset = offset[first]
    remains = _remaining(used, offset)
    count = np.bincount(used.rank, minlength=ranks)
    spread = np.array([_median(np.abs(remains[used.rank == rank])) for rank in range(ranks)], np.int64)
    offset[(np.abs(offset) <= _TIMES_SPREAD * spread + _RESOLUTION)[first]] = 0
    timed = used.shifted(offset)
    early = timed.stop < timed.repeated(timed.start[timed.last_rows()])
    return RankClocks(
        offset=offset,
        spread=np.where(count > 0, spread, MISSING),
        collectives=count.astype(np.int32),
        violations=np.bincount(used.rank[early], minlength=ranks).astype(np.int32),
    )


def _first_offsets(used: CollectiveArrivals, ranks: int) -> Int64:
    """Offsets along a spanning tree of pairs of ranks, those with most collectives first."""
    first = used.repeated(used.begins.astype(np.int64))
    pair = used.rank[first].astype(np.int64) * ranks + used.rank
    difference = used.stop[first] - used.stop
    pairs = [
        (int((pair == value).sum()), *divmod(int(value), ranks), _median(difference[pair == value]))
        for value in np.unique(pair[used.rank != used.rank[first]])
    ]
    pairs.sort(key=lambda pair: (-pair[0], pair[1:3]))
    # Ranks without a common collective, even indirectly, keep their clocks.
    known: dict[int, int] = {}
    for root in range(ranks):
        if root not in known:
            known[root] = 0
            _spread_out(known, root, pairs)
    return np.array([known[rank] for rank in range(ranks)], np.int64)


def _spread_out(known: dict[int, int], root: int, pairs: list[tuple[int, int, int, int]]) -> None:
    reached = {root}
    while True:
        step = next((pair for pair in pairs if (pair[1] in reached) != (pair[2] in reached)), None)
        if step is None:
            return
        _, first, second, difference = step
        if first in reached:
            known[second] = known[first] + difference
        else:
            known[first] = known[second] - difference
        reached |= {first, second}


def _remaining(used: CollectiveArrivals, offset: Int64) -> Int64:
    """Nanoseconds from each rank's leaving to the median of its collective."""
    stop = used.stop + offset[used.rank]
    if not len(stop):
        return stop
    order = np.lexsort((stop, used.collective))
    begins = used.begins
    count = np.diff(np.append(begins, len(stop)))
    low, high = stop[order][begins + (count - 1) // 2], stop[order][begins + count // 2]
    return used.repeated(low + (high - low) // 2) - stop


def _median(values: Int64) -> int:
    """Median in whole nanoseconds, as epoch nanoseconds do not fit into a float; 0 of nothing."""
    if not len(values):
        return 0
    values = np.sort(values)
    low, high = int(values[(len(values) - 1) // 2]), int(values[len(values) // 2])
    return low + (high - low) // 2


def hosts_of(trace: KinetoTrace) -> list[str]:
    """Name of each rank's host; empty where the trace lacks it."""
    return [str(rank.about.get("host_name") or "") for rank in trace.ranks]
