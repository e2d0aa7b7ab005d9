"""Lateness: what the rank that came last to a collective had done more of than its peers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import Bool, Int64
from dask_efficiency.gpu.intervals import Intervals, difference, union
from dask_efficiency.torch_traces.kineto.numbers import first_with
from dask_efficiency.torch_traces.kineto.trace import NAMED_BY_PROGRAMS, Category, RankTrace
from dask_efficiency.torch_traces.path.clocks import each, last_arrivals
from dask_efficiency.torch_traces.path.collectives import CollectiveArrivals
from dask_efficiency.torch_traces.path.loading import DATA_LOADING
from dask_efficiency.torch_traces.path.region import ProfilerSteps
from dask_efficiency.torch_traces.path.roles import WAITS, call_kinds, cpu_collectives, gpu_collectives, matching, named

#: Operators that ask for a collective or wait for one.
_ASKING = ("c10d::", "_c10d_functional::", "record_param_comms")


@dataclass(frozen=True, slots=True)
class Occupation:
    """Sets of instants on the rank's clock; no two overlap, and outside of all it did nothing that is known."""

    #: Its GPU computed, or a thread was in an operator, outside of calls that wait for the GPU.
    compute: Intervals
    #: It took its next batch, and its GPU had nothing to compute.
    data_loading: Intervals
    #: It only exchanged data with other ranks, or waited for them.
    communication: Intervals
    #: When its trace begins.
    first: int


def occupation_of(trace: RankTrace, *, data_loading: Sequence[str] = DATA_LOADING) -> Occupation:
    """What a rank did.

    Where it did several things at once, what its GPU computes comes first, as that holds up its next kernel; then data
    loading, whose operators are no computing of the program's; then its operators; and then what it exchanged.

    Parameters
    ----------
    trace
        Of the rank.
    data_loading
        Regular expressions that are found in names of annotations and operators that load data.
    """
    events = trace.events
    exchanges = gpu_collectives(trace) | cpu_collectives(trace)
    on_gpu = _covered(trace, events.is_gpu_work & ~exchanges)
    loads = np.isin(events.category, NAMED_BY_PROGRAMS) & matching(trace, data_loading)
    loading = difference(_covered(trace, loads), on_gpu)
    asking = (events.category == Category.OPERATOR) & named(trace, lambda name: name.startswith(_ASKING))
    operators = (events.category == Category.OPERATOR) & ~asking
    waiting = _covered(trace, np.isin(call_kinds(trace), WAITS))
    on_cpu = difference(difference(_covered(trace, operators), waiting), loading)
    compute = union(np.concatenate([on_gpu.start, on_cpu.start]), np.concatenate([on_gpu.stop, on_cpu.stop]))
    exchanged = difference(difference(_covered(trace, exchanges | asking), compute), loading)
    known = events.category != Category.OTHER
    return Occupation(compute, loading, exchanged, int(events.start[known].min()) if known.any() else 0)


def time_before(intervals: Intervals, at: Int64) -> Int64:
    """How much of a set lies before each instant, nanoseconds."""
    before = np.searchsorted(intervals.start, at, side="right")
    total = np.concatenate([[0], np.cumsum(intervals.lengths)])[before]
    ends = np.concatenate([[np.iinfo(np.int64).min], intervals.stop])[before]
    begun: Int64 = np.where(ends > at, ends - at, 0)
    return total - begun


def _covered(trace: RankTrace, wanted: Bool) -> Intervals:
    return union(trace.events.start[wanted], trace.events.stop[wanted])


class LatenessCause(IntEnum):
    """Why a rank comes later than its peers: what it did more of since all of them were together."""

    #: Nothing, before it began its step or its trace.
    LATE_START = 0
    #: Its operators or its kernels took longer, or were more.
    COMPUTE = 1
    #: It took its next batch.
    DATA_LOADING = 2
    #: It exchanged data, with all of them or with others, or waited for those.
    COMMUNICATION = 3
    #: Nothing that the trace shows: Python, collecting garbage, waiting for a core or a lock, sleeping.
    UNKNOWN = 4

    @property
    def label(self) -> str:
        """As it is written for people."""
        return self.name.lower().replace("_", "-")


def since_together(arrivals: CollectiveArrivals, offset: Int64, occupations: Sequence[Occupation]) -> Int64:
    """For each collective, from when on its ranks are compared, on the clock of the job.

    It is the instant at which the last rank came to the last collective before in which all of them were together; for
    the first ones, when the first of their traces began.
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


def pieces(
    arrivals: CollectiveArrivals,
    offset: Int64,
    since: Int64,
    occupations: Sequence[Occupation],
    steps: Sequence[ProfilerSteps],
) -> NDArray[np.int64]:
    """What each rank did between since all were together and its arrival.

    Parameters
    ----------
    arrivals
        Who came when.
    offset, occupations, steps
        Of each rank.
    since
        Of each collective, on the clock of the job.

    Returns
    -------
    array, shape (rows of ``arrivals``, causes)
        Nanoseconds; the sum over causes is the time in between.
    """
    found = np.zeros((len(arrivals), len(LatenessCause)), np.int64)
    begin = each(arrivals, since) - offset[arrivals.rank]
    for rank, (occupation, own) in enumerate(zip(occupations, steps, strict=True)):
        rows = np.flatnonzero(arrivals.rank == rank)
        start, stop = begin[rows], arrivals.start[rows]
        known = np.zeros(len(rows), np.int64)
        before_step = np.zeros(len(rows), np.int64)
        began = np.clip(_began(own, arrivals.step[rows], occupation.first), start, stop)
        for cause, intervals in (
            (LatenessCause.COMPUTE, occupation.compute),
            (LatenessCause.DATA_LOADING, occupation.data_loading),
            (LatenessCause.COMMUNICATION, occupation.communication),
        ):
            until = time_before(intervals, start)
            found[rows, cause] = time_before(intervals, stop) - until
            known += found[rows, cause]
            before_step += time_before(intervals, began) - until
        found[rows, LatenessCause.LATE_START] = began - start - before_step
        found[rows, LatenessCause.UNKNOWN] = stop - start - known - found[rows, LatenessCause.LATE_START]
    return found


def _began(steps: ProfilerSteps, step: NDArray[np.int32], first: int) -> Int64:
    """When the rank began each step; its trace, where there is no step."""
    return np.append(steps.start, first)[first_with(steps.number, step)]


def excess(arrivals: CollectiveArrivals, rows: NDArray[np.intp], found: NDArray[np.int64]) -> NDArray[np.int64]:
    """How much more of each cause some ranks had than the median of the others, one rank of each collective.

    Parameters
    ----------
    arrivals
        Who took part.
    rows
        Of each collective the row of the rank.
    found
        What :func:`pieces` returned.

    Returns
    -------
    array, shape (collectives, causes)
        Nanoseconds; negative where the rank did less.
    """
    others = np.ones(len(arrivals), np.bool_)
    others[rows] = False
    bounds = [*arrivals.begins.tolist(), len(arrivals)]
    usual = np.zeros((len(rows), len(LatenessCause)))
    for number, (first, last) in enumerate(pairwise(bounds)):
        usual[number] = np.median(found[first:last][others[first:last]], axis=0)
    return found[rows] - usual.astype(np.int64)
