"""Lateness: what the rank that came last to a collective had done more of than its peers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import Bool, Int64
from dask_efficiency.gpu.intervals import IntervalArrays, difference, union
from dask_efficiency.torch_traces.kineto.numbers import first_with, mask_of
from dask_efficiency.torch_traces.kineto.trace import NAMED_BY_PROGRAMS, Category, RankTrace
from dask_efficiency.torch_traces.path.clocks import last_arrivals, repeat_for_rows
from dask_efficiency.torch_traces.path.collectives import CollectiveArrivals
from dask_efficiency.torch_traces.path.loading import DATA_LOADING
from dask_efficiency.torch_traces.path.region import ProfilerSteps
from dask_efficiency.torch_traces.path.roles import (
    WAITS,
    call_kinds,
    cpu_collectives,
    events_matching,
    events_named,
    gpu_collectives,
)

#: Beginnings of names of operators that ask for a collective or wait for one.
_ASKING = ("c10d::", "_c10d_functional::", "record_param_comms")


@dataclass(frozen=True, slots=True)
class Occupation:
    """Activity of a rank, as disjoint sets of instants on its clock; the rest is unknown."""

    #: Its GPU computed, or a thread was in an operator that did not wait for the GPU.
    compute: IntervalArrays
    #: It took its next batch, and its GPU had nothing to compute.
    data_loading: IntervalArrays
    #: It did nothing but exchange data with other ranks, or wait for them.
    communication: IntervalArrays
    #: Start of its trace.
    first: int


def occupation_of(trace: RankTrace, *, data_loading: Sequence[str] = DATA_LOADING) -> Occupation:
    """Find the activity of a rank; ``data_loading`` are regular expressions for the names of events that load data.

    Of several activities at once the first of these counts: its GPU computes, which delays the next kernel; it loads
    data, whose operators do not count as computing; it is in an operator; it exchanges data.
    """
    events = trace.events
    exchanges = gpu_collectives(trace) | cpu_collectives(trace)
    on_gpu = _covered(trace, events.is_gpu_work & ~exchanges)
    loads = np.isin(events.category, NAMED_BY_PROGRAMS) & events_matching(trace, data_loading)
    loading = difference(_covered(trace, loads), on_gpu)
    asking = (events.category == Category.OPERATOR) & events_named(trace, lambda name: name.startswith(_ASKING))
    operators = (events.category == Category.OPERATOR) & ~asking
    waiting = _covered(trace, np.isin(call_kinds(trace), WAITS))
    on_cpu = difference(difference(_covered(trace, operators), waiting), loading)
    compute = union(np.concatenate([on_gpu.start, on_cpu.start]), np.concatenate([on_gpu.stop, on_cpu.stop]))
    exchanged = difference(difference(_covered(trace, exchanges | asking), compute), loading)
    known = events.category != Category.OTHER
    return Occupation(compute, loading, exchanged, int(events.start[known].min()) if known.any() else 0)


def _time_before(intervals: IntervalArrays, at: Int64) -> Int64:
    """Nanoseconds of a set before each instant."""
    before = np.searchsorted(intervals.start, at, side="right")
    total = np.concatenate([[0], np.cumsum(intervals.lengths)])[before]
    ends = np.concatenate([[np.iinfo(np.int64).min], intervals.stop])[before]
    begun: Int64 = np.where(ends > at, ends - at, 0)
    return total - begun


def _covered(trace: RankTrace, wanted: Bool) -> IntervalArrays:
    return union(trace.events.start[wanted], trace.events.stop[wanted])


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


def since_together(arrivals: CollectiveArrivals, offset: Int64, occupations: Sequence[Occupation]) -> Int64:
    """Instant from which on the ranks of each collective are compared, on the clock of the job.

    That is the last arrival at the previous collective in which all of them were together; for the first collectives,
    the start of the first of their traces.
    """
    begins = arrivals.begins
    last = last_arrivals(arrivals, offset)
    start = arrivals.start + offset[arrivals.rank]
    earliest = np.minimum.reduceat(start, begins) if len(begins) else begins
    groups: dict[frozenset[int], int] = {}
    members = (frozenset(ranks.tolist()) for ranks in np.split(arrivals.rank, begins[1:]) if len(ranks))
    group = np.array([groups.setdefault(ranks, len(groups)) for ranks in members], np.int64)
    together = arrivals.together[begins]
    first = {rank: one.first + int(offset[rank]) for rank, one in enumerate(occupations)}
    since = np.empty(len(begins), np.int64)
    for ranks, number in groups.items():
        mine = group == number
        of_all = np.isin(group, [other for others, other in groups.items() if ranks <= others]) & together
        turns = np.sort(last[of_all])
        before = np.searchsorted(turns, earliest[mine])
        since[mine] = np.concatenate([[min(first[rank] for rank in ranks)], turns])[before]
    return since


def activities(
    arrivals: CollectiveArrivals,
    offset: Int64,
    since: Int64,
    occupations: Sequence[Occupation],
    steps: Sequence[ProfilerSteps],
) -> NDArray[np.int64]:
    """Nanoseconds of each arrival by cause, from ``since``, when all were together; shape (arrivals, causes)."""
    found = np.zeros((len(arrivals), len(LatenessCause)), np.int64)
    begin = repeat_for_rows(arrivals, since) - offset[arrivals.rank]
    for rank, (occupation, own) in enumerate(zip(occupations, steps, strict=True)):
        rows = np.flatnonzero(arrivals.rank == rank)
        start, stop = begin[rows], arrivals.start[rows]
        known = np.zeros(len(rows), np.int64)
        before_step = np.zeros(len(rows), np.int64)
        # of its trace, where there is no step
        began = np.append(own.start, occupation.first)[first_with(own.number, arrivals.step[rows])]
        began = np.clip(began, start, stop)
        for cause, intervals in (
            (LatenessCause.COMPUTE, occupation.compute),
            (LatenessCause.DATA_LOADING, occupation.data_loading),
            (LatenessCause.COMMUNICATION, occupation.communication),
        ):
            until = _time_before(intervals, start)
            found[rows, cause] = _time_before(intervals, stop) - until
            known += found[rows, cause]
            before_step += _time_before(intervals, began) - until
        found[rows, LatenessCause.LATE_START] = began - start - before_step
        found[rows, LatenessCause.UNKNOWN] = stop - start - known - found[rows, LatenessCause.LATE_START]
    return found


def excess(arrivals: CollectiveArrivals, rows: NDArray[np.intp], found: NDArray[np.int64]) -> NDArray[np.int64]:
    """Nanoseconds of a row of each collective above the other ranks' median; shape (collectives, causes)."""
    others = ~mask_of(rows, len(arrivals))
    bounds = [*arrivals.begins.tolist(), len(arrivals)]
    usual = np.zeros((len(rows), len(LatenessCause)))
    for number, (first, last) in enumerate(pairwise(bounds)):
        usual[number] = np.median(found[first:last][others[first:last]], axis=0)
    return found[rows] - usual.astype(np.int64)
