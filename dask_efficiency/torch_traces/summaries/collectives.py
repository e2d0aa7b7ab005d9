"""Collectives by type, size and group: time, skew at arrival with who came last, and bandwidth as NCCL's tests have it.

A collective's bandwidth is that of its bytes from the last arrival to the last end, so that waiting for a late rank is
none of it. It is known only if all ranks of the group were read and the trace has sizes. References: NCCL tests,
doc/PERFORMANCE.md: *algorithm bandwidth* is size by time, where size is what one rank has in the end (all-gather) or
began with (reduce-scatter), the larger of the two; *bus bandwidth* is that times the share of it that each rank's link
must carry, so that it can be compared with the hardware for any number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Column, ColumnTable, Float64, Int8, Int32, Int64
from dask_efficiency.torch_traces.kineto.numbers import first_with
from dask_efficiency.torch_traces.path.clocks import align_clocks
from dask_efficiency.torch_traces.path.collectives import (
    CollectiveArrivals,
    CollectiveKind,
    Collectives,
    Exchanges,
    RankExchanges,
)
from dask_efficiency.torch_traces.path.matching import grouped_exchanges, match_exchanges
from dask_efficiency.torch_traces.path.ranks import RankWaits, rank_waits, waits_of
from dask_efficiency.torch_traces.summaries.groups import Groups


def _others(ranks: Float64) -> Float64:
    return (ranks - 1) / ranks


#: Bus bandwidth by algorithm bandwidth, of a number of ranks. Others have none in NCCL's tests.
BUS_FACTORS: Mapping[CollectiveKind, Callable[[Float64], Float64]] = {
    CollectiveKind.ALL_REDUCE: lambda ranks: 2 * _others(ranks),
    **dict.fromkeys((CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL), _others),
    **dict.fromkeys((CollectiveKind.GATHER, CollectiveKind.SCATTER), _others),
    **dict.fromkeys((CollectiveKind.BROADCAST, CollectiveKind.REDUCE), np.ones_like),
    **dict.fromkeys((CollectiveKind.SEND, CollectiveKind.RECEIVE), np.ones_like),
}


@dataclass(frozen=True, slots=True, repr=False)
class CollectiveSums(ColumnTable):
    """A row for each type, size and group of the collectives of a job, those with most time first."""

    #: A :class:`~dask_efficiency.torch_traces.path.collectives.CollectiveKind`.
    kind: Int8
    #: Position in :attr:`JobCollectives.groups`.
    group: Int32
    #: The larger of what a rank sent and received; missing where the trace lacks it.
    nbytes: Annotated[Int64, Column(unit="bytes")]
    #: Number of ranks in the group; missing where it is not known.
    size: Int32
    #: Kernels or annotations of all ranks, and their time, with waiting for others.
    calls: Int64
    total: Annotated[Int64, Column(unit="nanoseconds")]
    #: Collectives that were found on several ranks, on all of the group, and their time from the last arrival on.
    matched: Int64
    whole: Int64
    transfer: Annotated[Int64, Column(unit="nanoseconds")]
    #: From the first arrival to the last: sum and largest, of those that were matched.
    skew: Annotated[Int64, Column(unit="nanoseconds")]
    worst_skew: Annotated[Int64, Column(unit="nanoseconds")]
    #: Number of the rank that came last most often, and how often; missing without any.
    last: Int32
    last_count: Int64

    @property
    def mean_skew_seconds(self) -> Float64:
        """Mean skew at arrival; NaN where no collective was found on several ranks."""
        return _ratio(self.skew / 1e9, self.matched)

    @property
    def algorithm_bandwidth(self) -> Float64:
        """Bytes a second from the last arrival to the end; NaN where sizes or ranks are missing."""
        return _ratio(np.where(self.nbytes > 0, 1e9 * self.nbytes * self.whole, np.nan), self.transfer)

    @property
    def bus_bandwidth(self) -> Float64:
        """Algorithm bandwidth times NCCL's factor for the type and the number of ranks; NaN for types without one."""
        factors = np.full(len(self), np.nan)
        for kind, factor in BUS_FACTORS.items():
            rows = (self.kind == kind) & (self.size > 0)
            factors[rows] = factor(self.size[rows].astype(np.float64))
        bandwidth: Float64 = self.algorithm_bandwidth * factors
        return bandwidth


def _ratio(values: NDArray[np.floating], by: Int64) -> Float64:
    found: Float64 = np.where(by > 0, values / np.maximum(by, 1), np.nan)
    return found


@dataclass(frozen=True, slots=True)
class JobCollectives:
    """Collectives of a job."""

    #: Names of process groups; where the trace lacks them, of streams or of the library.
    groups: tuple[str, ...]
    sums: CollectiveSums
    #: By rank: waits for others, and of others for it.
    waits: RankWaits
    #: By rank: nanoseconds that the rank that waited most for it did so.
    longest_caused: Int64
    #: Number of kernels or annotations that are in no collective of several ranks, by reason.
    left_out: Mapping[str, int]


def merged_collectives(ranks: Sequence[RankExchanges], *, matched: bool = True) -> JobCollectives:
    """Match the collectives of several ranks, if these are of one job, and sum up by type, size and group."""
    numbers = tuple(rank.rank for rank in ranks)
    exchanges, groups, _ = grouped_exchanges(ranks)
    found = match_exchanges(ranks) if matched else Collectives(CollectiveArrivals.empty())
    arrivals = found.arrivals.shifted(align_clocks(found.arrivals, [rank.host for rank in ranks]).offset)
    of = _places(exchanges, arrivals)
    nbytes = exchanges.nbytes.copy()
    nbytes[of] = arrivals.repeated(_common(arrivals))
    by_type = Groups.of(exchanges.kind, exchanges.group, nbytes)
    sizes = [next((rank.sizes[name] for rank in ranks if name in rank.sizes), MISSING) for name, _ in groups]
    number = np.repeat(np.arange(len(by_type.begins)), by_type.sizes)
    type_of = np.empty(len(exchanges), np.intp)
    type_of[by_type.order] = number
    first, lasts = by_type.first, exchanges.stop - exchanges.start
    size = np.array([*sizes, MISSING], np.int32)[exchanges.group[first]]
    sums = CollectiveSums(
        exchanges.kind[first],
        exchanges.group[first],
        nbytes[first],
        size,
        calls=by_type.sizes,
        total=by_type.sums(lasts),
        **_matched(arrivals, type_of[of], size, np.array(numbers, np.int32)),
    )
    waits = waits_of(arrivals)
    return JobCollectives(
        tuple(name for name, _ in groups),
        sums.take(np.argsort(-sums.total, kind="stable")),
        rank_waits(numbers, arrivals, waits),
        _longest_caused(arrivals, waits, len(numbers)),
        found.left_out,
    )


def _longest_caused(arrivals: CollectiveArrivals, waits: Int64, ranks: int) -> Int64:
    """For each rank, the most that any one rank waited for it, over all collectives."""
    last = arrivals.rank[arrivals.repeated(arrivals.last_rows())]
    pairs = Groups.of(last, arrivals.rank)
    longest = np.zeros(ranks, np.int64)
    np.maximum.at(longest, last[pairs.first], pairs.sums(waits))
    return longest


def _places(exchanges: Exchanges, arrivals: CollectiveArrivals) -> Int64:
    """Row of the exchange of each arrival."""
    most = int(exchanges.event.max(initial=0)) + 1
    keys = (table.rank.astype(np.int64) * most + table.event for table in (exchanges, arrivals))
    return first_with(*keys)


def _common(arrivals: CollectiveArrivals) -> Int64:
    """Bytes of each collective; missing where ranks differ, as in uneven all-to-alls."""
    if not len(arrivals):
        return arrivals.nbytes
    least, most = (of.reduceat(arrivals.nbytes, arrivals.begins) for of in (np.minimum, np.maximum))
    return np.where(least == most, least, MISSING)


def _matched(arrivals: CollectiveArrivals, type_of: NDArray[np.intp], size: Int32, numbers: Int32) -> dict[str, Any]:
    """Columns of each type that need several ranks."""
    kinds, begins = len(size), arrivals.begins
    columns = {name: np.zeros(kinds, np.int64) for name in ("matched", "whole", "transfer", "skew", "worst_skew")}
    columns |= {"last": np.full(kinds, MISSING), "last_count": np.zeros(kinds, np.int64)}
    if not len(arrivals):
        return columns
    first, last = (of.reduceat(arrivals.start, begins) for of in (np.minimum, np.maximum))
    until, of = np.maximum.reduceat(arrivals.stop, begins), type_of[begins]
    whole = np.diff(np.append(begins, len(arrivals))) == size[of]
    np.add.at(columns["matched"], of, 1)
    np.add.at(columns["whole"], of, whole)
    np.add.at(columns["transfer"], of, np.where(whole, until - last, 0))
    np.add.at(columns["skew"], of, last - first)
    np.maximum.at(columns["worst_skew"], of, last - first)
    came_last = Groups.of(of, numbers[arrivals.rank[arrivals.last_rows()]])
    # the rank with most comes last in this order, and so stays
    order = np.argsort(came_last.sizes, kind="stable")
    which = came_last.first[order]
    columns["last"][of[which]] = numbers[arrivals.rank[arrivals.last_rows()[which]]]
    columns["last_count"][of[which]] = came_last.sizes[order]
    return columns
