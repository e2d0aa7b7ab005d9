"""JobRanks: the ranks of a job that made others wait, by how much, in which steps and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import Bool, Column, ColumnTable, Float64, Int8, Int32, Int64
from dask_efficiency.gpu.intervals import IntervalArrays, overlaps, union
from dask_efficiency.torch_traces.kineto.numbers import mask_of
from dask_efficiency.torch_traces.kineto.trace import KinetoTrace
from dask_efficiency.torch_traces.path.clocks import RankClocks, align_clocks, hosts_of
from dask_efficiency.torch_traces.path.collectives import CollectiveArrivals, CollectiveKind, Collectives
from dask_efficiency.torch_traces.path.lateness import LatenessCause, activities, excess, occupation_of, since_together
from dask_efficiency.torch_traces.path.matching import match_collectives
from dask_efficiency.torch_traces.path.region import steps_of
from dask_efficiency.torch_traces.path.stalls import DATA_LOADING


@dataclass(frozen=True, slots=True, repr=False)
class RankWaits(ColumnTable):
    """A row for each rank, in the order of the trace. Waits suffered and waits caused have the same sum."""

    #: Number in the job.
    rank: Int32
    #: Number of its collectives, and of those at which it arrived last.
    collectives: Int32
    last: Int32
    #: Time from its arrivals to the last ones.
    suffered: Annotated[Int64, Column(unit="nanoseconds")]
    #: Waits of all others for it.
    caused: Annotated[Int64, Column(unit="nanoseconds")]

    @property
    def suffered_seconds(self) -> Float64:
        """The waits that each rank suffered."""
        return self.suffered / 1e9

    @property
    def caused_seconds(self) -> Float64:
        """The waits that each rank caused."""
        return self.caused / 1e9


@dataclass(frozen=True, slots=True, repr=False)
class LateArrivals(ColumnTable):
    """A row for each collective, in the order of their numbers."""

    #: Number of the profiler's step; missing outside of steps.
    step: Int32
    #: Position of the rank that arrived last.
    rank: Int32
    #: Its arrival, on the clock of the job.
    at: Annotated[Int64, Column(unit="nanoseconds")]
    #: Time after the arrival of the second last rank, and after the median of the others.
    behind_second: Annotated[Int64, Column(unit="nanoseconds")]
    behind_median: Annotated[Int64, Column(unit="nanoseconds")]
    #: Sum of the others' waits.
    waits: Annotated[Int64, Column(unit="nanoseconds")]
    #: A :class:`LatenessCause`: the largest of the columns that follow.
    cause: Int8
    #: Its time of each cause above the median of the others since they were last together; negative where it is less.
    late_start: Annotated[Int64, Column(unit="nanoseconds")]
    compute: Annotated[Int64, Column(unit="nanoseconds")]
    data_loading: Annotated[Int64, Column(unit="nanoseconds")]
    communication: Annotated[Int64, Column(unit="nanoseconds")]
    unknown: Annotated[Int64, Column(unit="nanoseconds")]

    def excess(self) -> NDArray[np.int64]:
        """Excess of the last rank over its peers, a column for each :class:`LatenessCause`."""
        return np.stack([getattr(self, cause.name.lower()) for cause in LatenessCause], axis=1)


@dataclass(frozen=True, slots=True, repr=False)
class StepStragglers(ColumnTable):
    """A row for each step with a collective, in order, MISSING for no step: the rank that caused most waits in it."""

    step: Int32
    #: Position of the rank.
    rank: Int32
    #: A :class:`LatenessCause`.
    cause: Int8
    #: Waits that it caused, and waits that all ranks caused.
    caused: Annotated[Int64, Column(unit="nanoseconds")]
    waits: Annotated[Int64, Column(unit="nanoseconds")]
    #: Time by which all would have been together earlier without it: sum of its delays after the second last rank.
    behind: Annotated[Int64, Column(unit="nanoseconds")]

    @property
    def caused_seconds(self) -> Float64:
        """The waits that the straggler caused."""
        return self.caused / 1e9


@dataclass(frozen=True, slots=True)
class JobRanks:
    """Waits between the ranks of a job.

    A wait is the time from a rank's arrival at a collective to the last arrival, or until it left, if it could leave
    earlier. A wait counts even if the rank computes on another stream or thread meanwhile. An instant counts once,
    however many collectives a rank waits in.
    """

    #: Numbers of the ranks in the job, by position.
    numbers: tuple[int, ...]
    collectives: Collectives
    clocks: RankClocks
    waits: RankWaits
    late: LateArrivals
    stragglers: StepStragglers

    @property
    def straggler(self) -> int | None:
        """Number of the rank that caused most waits; None if none waited."""
        return int(self.waits.rank[self.waits.caused.argmax()]) if self.waits.caused.any() else None


def job_ranks(trace: KinetoTrace, *, data_loading: Sequence[str] = ()) -> JobRanks:
    """Find the waits between the ranks of a job, and their causes; empty tables if ranks have no collective in common.

    ``data_loading`` are regular expressions for the names of annotations that load data, beside PyTorch's own.
    """
    collectives = match_collectives(trace)
    clocks = align_clocks(collectives.arrivals, hosts_of(trace))
    arrivals = collectives.arrivals.shifted(clocks.offset)
    waits = waits_of(arrivals)
    late = _late_arrivals(trace, arrivals, clocks.offset, waits, (*DATA_LOADING, *data_loading))
    stragglers = _stragglers(late, arrivals.together[arrivals.begins], len(trace.ranks))
    of_rank = rank_waits(trace.numbers, arrivals, waits)
    return JobRanks(trace.numbers, collectives, clocks, of_rank, late, stragglers)


def waits_of(arrivals: CollectiveArrivals) -> Int64:
    """Nanoseconds that each rank waited in each collective for the last arrival, on the clock of the job.

    An instant in several collectives counts once: for the one that the rank arrived at first, and for a receive only if
    it waited in nothing else, since a program may ask for data long before it needs them.
    """
    start = arrivals.start
    until = np.minimum(arrivals.repeated(start[arrivals.last_rows()]), arrivals.stop)
    receives = arrivals.kind == CollectiveKind.RECEIVE
    waits = np.zeros(len(arrivals), np.int64)
    for rank in np.unique(arrivals.rank):
        rows, asked = (np.flatnonzero((arrivals.rank == rank) & chosen) for chosen in (~receives, receives))
        waiting = _first_come(start[rows], until[rows])
        waits[rows] = waiting.lengths
        besides = _first_come(start[asked], until[asked])
        parts, which = overlaps(besides, union(*waiting))
        waits[asked] = besides.lengths - _summed(which, parts.lengths, len(asked))
    return waits


def _first_come(start: Int64, until: Int64) -> IntervalArrays:
    """Part of each interval that is in no earlier one."""
    order = np.lexsort((until, start))
    reached = np.maximum.accumulate(until[order])
    begins = np.empty_like(start)
    begins[order] = np.maximum(start[order], np.concatenate([start[order][:1], reached[:-1]]))
    return IntervalArrays(np.minimum(begins, np.maximum(until, start)), np.maximum(until, start))


def _late_arrivals(
    trace: KinetoTrace, arrivals: CollectiveArrivals, offset: Int64, waits: Int64, data_loading: Sequence[str]
) -> LateArrivals:
    if not len(arrivals):
        return LateArrivals.empty()
    shifts = list(zip(trace.ranks, offset.tolist(), strict=True))
    occupations = [occupation_of(rank, shift, data_loading) for rank, shift in shifts]
    steps = [replace(own, start=own.start + shift) for rank, shift in shifts for own in [steps_of(rank)]]
    rows, begins, start = arrivals.last_rows(), arrivals.begins, arrivals.start
    since = since_together(arrivals, occupations)
    more = excess(arrivals, rows, activities(arrivals, since, occupations, steps))
    second, median = _others(arrivals, rows)
    return LateArrivals(
        step=np.maximum.reduceat(arrivals.step, begins),
        rank=arrivals.rank[rows],
        at=start[rows],
        behind_second=start[rows] - second,
        behind_median=start[rows] - median,
        waits=np.add.reduceat(waits, begins),
        cause=more.argmax(axis=1).astype(np.int8),
        **{cause.name.lower(): more[:, cause] for cause in LatenessCause},
    )


def _others(arrivals: CollectiveArrivals, rows: NDArray[np.intp]) -> tuple[Int64, Int64]:
    """Last arrival at each collective without one rank, and the median without it."""
    kept = ~mask_of(rows, len(arrivals))
    collective, others = arrivals.collective[kept], arrivals.start[kept]
    others = others[np.lexsort((others, collective))]
    begins = np.searchsorted(collective, np.arange(len(rows)))
    count = np.diff(np.append(begins, len(others)))
    low, high = others[begins + (count - 1) // 2], others[begins + count // 2]
    return others[begins + count - 1], low + (high - low) // 2


def rank_waits(numbers: Sequence[int], arrivals: CollectiveArrivals, waits: Int64) -> RankWaits:
    """Sum up by rank the waits of :func:`waits_of`: those suffered, and those of others for the last to arrive."""
    ranks, came_last = len(numbers), arrivals.rank[arrivals.last_rows()]
    of_collective = np.add.reduceat(waits, arrivals.begins) if len(arrivals) else waits
    all_of_them, last = (np.bincount(rank, minlength=ranks).astype(np.int32) for rank in (arrivals.rank, came_last))
    suffered, caused = _summed(arrivals.rank, waits, ranks), _summed(came_last, of_collective, ranks)
    return RankWaits(np.array(numbers, np.int32), all_of_them, last, suffered, caused)


def _summed(which: NDArray[np.integer], values: Int64, length: int) -> Int64:
    """Exact integer sums by position."""
    sums = np.zeros(length, np.int64)
    np.add.at(sums, which, values)
    return sums


def _stragglers(late: LateArrivals, together: Bool, ranks: int) -> StepStragglers:
    rows, excesses = [], late.excess()
    for step in np.unique(late.step):
        mine = np.flatnonzero(late.step == step)
        caused = _summed(late.rank[mine], late.waits[mine], ranks)
        rank = int(caused.argmax())
        its = mine[late.rank[mine] == rank]
        cause = excesses[its].sum(axis=0).argmax()
        behind = late.behind_second[its[together[its]]].sum()
        rows.append((step, rank, cause, caused[rank], caused.sum(), behind))
    columns = np.array(rows, np.int64).reshape(-1, len(StepStragglers.dtypes())).T
    return StepStragglers(*columns)
