"""Lateness: what the rank that came last to a collective had done more of than its peers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import Bool, Int64
from dask_efficiency.gpu.intervals import IntervalArrays, difference, time_before, union
from dask_efficiency.torch_traces.kineto.numbers import first_with, mask_of
from dask_efficiency.torch_traces.kineto.trace import NAMED_BY_PROGRAMS, SAY_NOTHING, Category, RankTrace
from dask_efficiency.torch_traces.path.collectives import CollectiveArrivals
from dask_efficiency.torch_traces.path.region import ProfilerSteps
from dask_efficiency.torch_traces.path.roles import (
    WAITS,
    asks_for_collectives,
    call_kinds,
    cpu_collectives,
    events_matching,
    gpu_collectives,
)


@dataclass(frozen=True, slots=True)
class Occupation:
    """Activity of a rank, as disjoint sets of instants on the clock of the job; the rest is unknown."""

    #: Its GPU computed, or a thread was in an operator that did not wait for the GPU.
    compute: IntervalArrays
    #: It took its next batch, and its GPU had nothing to compute.
    data_loading: IntervalArrays
    #: It did nothing but exchange data with other ranks, or wait for them.
    communication: IntervalArrays
    #: Start of its trace.
    first: int


def occupation_of(trace: RankTrace, offset: int, data_loading: Sequence[str]) -> Occupation:
    """Find the activity of a rank; ``data_loading`` are regular expressions for the names of events that load data.

    Of several activities at once the first of these counts: its GPU computes, which delays the next kernel; it loads
    data, whose operators do not count as computing; it is in an operator; it exchanges data.
    """
    events = trace.events

    def covered(wanted: Bool) -> IntervalArrays:
        return union(events.start[wanted] + offset, events.stop[wanted] + offset)

    exchanges = gpu_collectives(trace) | cpu_collectives(trace)
    on_gpu = covered(events.is_gpu_work & ~exchanges)
    loading = difference(
        covered(np.isin(events.category, NAMED_BY_PROGRAMS) & events_matching(trace, data_loading)), on_gpu
    )
    operators = events.category == Category.OPERATOR
    asking = operators & asks_for_collectives(trace)
    waiting = covered(np.isin(call_kinds(trace), WAITS))
    on_cpu = difference(difference(covered(operators & ~asking), waiting), loading)
    compute = union(np.concatenate([on_gpu.start, on_cpu.start]), np.concatenate([on_gpu.stop, on_cpu.stop]))
    exchanged = difference(difference(covered(exchanges | asking), compute), loading)
    known = ~np.isin(events.category, SAY_NOTHING)
    first = int(events.start[known].min()) if known.any() else 0
    return Occupation(compute, loading, exchanged, first + offset)


class LatenessCause(IntEnum):
    """Reason why a rank arrives later than its peers: what it spent more time on since they were together."""

    #: It had not begun its step or its trace.
    LATE_START = 0
    #: Its operators or kernels took longer, or it had more of them.
    COMPUTE = 1
    #: It took its next batch.
    DATA_LOADING = 2
    #: It exchanged data with them or with others, or waited for these.
    COMMUNICATION = 3
    #: The trace does not show it: Python, garbage collection, waiting for a core or a lock, sleeping.
    UNKNOWN = 4

    @property
    def label(self) -> str:
        """Name for people."""
        return self.name.lower().replace("_", "-")


def since_together(arrivals: CollectiveArrivals, occupations: Sequence[Occupation]) -> Int64:
    """Instant from which on the ranks of each collective are compared; there is one at least.

    That is the last arrival at the previous collective in which all of them were together; for the first collectives,
    the start of the first of their traces.
    """
    begins = arrivals.begins
    last, earliest = arrivals.start[arrivals.last_rows()], np.minimum.reduceat(arrivals.start, begins)
    groups: dict[frozenset[int], int] = {}
    members = (frozenset(ranks.tolist()) for ranks in np.split(arrivals.rank, begins[1:]))
    group = np.array([groups.setdefault(ranks, len(groups)) for ranks in members], np.int64)
    together = arrivals.together[begins]
    since = np.empty(len(begins), np.int64)
    for ranks, number in groups.items():
        mine = group == number
        of_all = np.isin(group, [other for others, other in groups.items() if ranks <= others]) & together
        turns = np.sort(last[of_all])
        before = np.searchsorted(turns, earliest[mine])
        since[mine] = np.concatenate([[min(occupations[rank].first for rank in ranks)], turns])[before]
    return since


def activities(
    arrivals: CollectiveArrivals, since: Int64, occupations: Sequence[Occupation], steps: Sequence[ProfilerSteps]
) -> NDArray[np.int64]:
    """Nanoseconds of each arrival by cause, from ``since``, when all were together; shape (arrivals, causes)."""
    spent = np.zeros((len(arrivals), len(LatenessCause)), np.int64)
    since = arrivals.repeated(since)
    for rank, (occupation, own) in enumerate(zip(occupations, steps, strict=True)):
        rows = np.flatnonzero(arrivals.rank == rank)
        start, stop = since[rows], arrivals.start[rows]
        # of its trace, where there is no step
        began = np.append(own.start, occupation.first)[first_with(own.number, arrivals.step[rows])]
        began = np.clip(began, start, stop)
        late_start, unknown = began - start, stop - start
        for cause, intervals in (
            (LatenessCause.COMPUTE, occupation.compute),
            (LatenessCause.DATA_LOADING, occupation.data_loading),
            (LatenessCause.COMMUNICATION, occupation.communication),
        ):
            until = time_before(intervals, start)
            spent[rows, cause] = time_before(intervals, stop) - until
            unknown -= spent[rows, cause]
            late_start -= time_before(intervals, began) - until
        spent[rows, LatenessCause.LATE_START] = late_start
        spent[rows, LatenessCause.UNKNOWN] = unknown - late_start
    return spent


def excess(arrivals: CollectiveArrivals, rows: NDArray[np.intp], spent: NDArray[np.int64]) -> NDArray[np.int64]:
    """Nanoseconds of a row of each collective above the other ranks' median; shape (collectives, causes)."""
    others = ~mask_of(rows, len(arrivals))
    bounds = [*arrivals.begins.tolist(), len(arrivals)]
    usual = np.zeros((len(rows), len(LatenessCause)))
    for number, (first, last) in enumerate(pairwise(bounds)):
        usual[number] = np.median(spent[first:last][others[first:last]], axis=0)
    return spent[rows] - usual.astype(np.int64)
