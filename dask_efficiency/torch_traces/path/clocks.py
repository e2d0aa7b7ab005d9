"""RankClocks: how far the clocks of ranks are apart, from the instants at which they left the same collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Column, Int32, Int64, Table
from dask_efficiency.torch_traces.kineto.trace import KinetoTrace
from dask_efficiency.torch_traces.path.collectives import CollectiveArrivals

#: The median settles in a few rounds, as the first offsets are medians themselves.
_MAX_ROUNDS = 20

#: An offset is none if it is no greater than so many times what remains of the differences ...
_TIMES_SPREAD = 2
#: ... and the finest step of old traces' instants, nanoseconds.
_RESOLUTION = 1_000

#: Ranks on one host have one clock, though some may always leave later; names of hosts are not always their
#: own (``localhost``). Offsets that differ by more, nanoseconds, are of different hosts.
_MAX_ON_ONE_HOST = 5_000_000


@dataclass(frozen=True, slots=True, repr=False)
class RankClocks(Table):
    """A row for each rank; the clock of the job is that of the first one."""

    #: What is to be added to the rank's instants; 0 for a rank that was in no collective.
    offset: Annotated[Int64, Column(unit="nanoseconds")]
    #: The median distance of the instants at which it left from those of the others; missing for a rank that was in no
    #: collective.
    spread: Annotated[Int64, Column(unit="nanoseconds")]
    #: How many collectives this comes from.
    collectives: Int32
    #: In how many of them the rank left before the last one had come, by these clocks: what they do not explain.
    violations: Int32


def align_clocks(arrivals: CollectiveArrivals, hosts: Sequence[str]) -> RankClocks:
    """The offsets that make ranks leave collectives at the same instants.

    Parameters
    ----------
    arrivals
        Who took part in what. Only collectives that no rank can leave before all have come are used.
    hosts
        The name of each rank's host; empty where that is not known.

    Returns
    -------
    RankClocks
        Medians of differences, which bear it that a rank is sometimes late to leave. An offset that is not greater than
        what remains of the differences is 0. Ranks of one host have one offset, that of the first of them, unless
        theirs are milliseconds apart. Drift within a trace is not looked for.
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
    return RankClocks(
        offset=offset,
        spread=np.where(count > 0, spread, MISSING),
        collectives=count.astype(np.int32),
        violations=_violations(used, offset, ranks),
    )


def last_arrivals(arrivals: CollectiveArrivals, offset: Int64) -> Int64:
    """When the last rank came to each collective, on the clock of the job."""
    start = arrivals.start + offset[arrivals.rank]
    return np.maximum.reduceat(start, arrivals.begins) if len(start) else start


def each(arrivals: CollectiveArrivals, per_collective: Int64) -> Int64:
    """A value of each collective, for each of its rows."""
    begins = arrivals.begins
    return np.repeat(per_collective, np.diff(np.append(begins, len(arrivals))))


def _first_offsets(used: CollectiveArrivals, ranks: int) -> Int64:
    """Offsets from rank to rank, each from one that is known: of the pairs, those with most collectives first."""
    begins = used.begins
    first = each(used, begins.astype(np.int64))
    pair = used.rank[first].astype(np.int64) * ranks + used.rank
    difference = used.stop[first] - used.stop
    pairs = [
        (int((pair == value).sum()), *divmod(int(value), ranks), _median(difference[pair == value]))
        for value in np.unique(pair[used.rank != used.rank[first]])
    ]
    pairs.sort(key=lambda found: (-found[0], found[1:3]))
    # Ranks without a way to each other stay as their clocks are.
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
        _, one, other, difference = step
        if one in reached:
            known[other] = known[one] + difference
        else:
            known[one] = known[other] - difference
        reached |= {one, other}


def _remaining(used: CollectiveArrivals, offset: Int64) -> Int64:
    """How much later each rank would have to leave to do so together with the others."""
    stop = used.stop + offset[used.rank]
    if not len(stop):
        return stop
    order = np.lexsort((stop, used.collective))
    begins = used.begins
    count = np.diff(np.append(begins, len(stop)))
    low, high = stop[order][begins + (count - 1) // 2], stop[order][begins + count // 2]
    return each(used, low + (high - low) // 2) - stop


def _violations(used: CollectiveArrivals, offset: Int64, ranks: int) -> Int32:
    early = used.stop + offset[used.rank] < each(used, last_arrivals(used, offset))
    return np.bincount(used.rank[early], minlength=ranks).astype(np.int32)


def _median(values: Int64) -> int:
    """The median in whole nanoseconds, 0 of nothing; epoch nanoseconds do not fit into a float."""
    if not len(values):
        return 0
    values = np.sort(values)
    low, high = int(values[(len(values) - 1) // 2]), int(values[len(values) // 2])
    return low + (high - low) // 2


def hosts_of(trace: KinetoTrace) -> list[str]:
    """The name of each rank's host; empty where the trace does not say."""
    return [str(rank.about.get("host_name") or "") for rank in trace.ranks]
