"""Occupation: what a rank did at each instant of its trace, by what could keep other ranks waiting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dask_efficiency.accounts.tables import Bool, Int64
from dask_efficiency.gpu.intervals import Intervals, difference, union
from dask_efficiency.torch_traces.kineto.trace import NAMED_BY_PROGRAMS, Category, RankTrace
from dask_efficiency.torch_traces.path.calls import call_kinds, matching, named
from dask_efficiency.torch_traces.path.exchanges import cpu_collectives, gpu_collectives
from dask_efficiency.torch_traces.path.loading import DATA_LOADING
from dask_efficiency.torch_traces.path.roles import WAITS

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
