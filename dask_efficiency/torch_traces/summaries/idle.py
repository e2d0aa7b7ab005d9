"""Idle time by reason: what a GPU without work waited for, and what each stream did between its works."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Bool, Column, ColumnTable, Int32, Int64
from dask_efficiency.gpu.intervals import NOTHING, IntervalArrays, difference, intersection, length, union
from dask_efficiency.torch_traces.kineto.numbers import mask_of
from dask_efficiency.torch_traces.kineto.trace import NAMED_BY_PROGRAMS, RankTrace
from dask_efficiency.torch_traces.path.known import MAX_UNKNOWN, Launches
from dask_efficiency.torch_traces.path.last_causes import MAX_LAUNCH_DELAY
from dask_efficiency.torch_traces.path.roles import ALLOCATES, call_kinds, cpu_collectives, events_matching, sets_up
from dask_efficiency.torch_traces.path.stalls import DATA_LOADING
from dask_efficiency.torch_traces.path.streams import MAX_KERNEL_DELAY, StreamWork, stream_work
from dask_efficiency.torch_traces.path.syncs import waits_of_streams
from dask_efficiency.torch_traces.summaries.breakdown import covered, has_gpu_work, together

#: Nanoseconds up to which a gap between works of a stream, the later of which was asked for in time, is the GPU's own
#: (a guess: kernels are about 10 us apart).
SHORT_GAP = 30_000


class IdleReasons(NamedTuple):
    """Disjoint sets of instants at which no GPU of a rank worked, by what they waited for; together all of these."""

    #: A call set the GPU or a library up, as the first of a process do.
    set_up: IntervalArrays
    #: Before the first work and after the last: the GPU may have had work that was not recorded.
    edge: IntervalArrays
    #: Nothing was asked of it, and the program took its next batch; or managed memory; or was in a collective of CPUs;
    #: or did anything else.
    data: IntervalArrays
    memory: IntervalArrays
    ranks: IntervalArrays
    host: IntervalArrays
    #: Asked for when all was idle, and on its way.
    launch: IntervalArrays
    #: Between two works, the later of which was asked for before the earlier ended.
    gap: IntervalArrays
    #: Only work was asked for that waited for what another stream had not been asked for.
    stream: IntervalArrays
    #: Nothing recorded tells.
    unknown: IntervalArrays

    @property
    def lengths(self) -> dict[str, int]:
        """Nanoseconds by reason."""
        return {name: length(found) for name, found in self._asdict().items()}


def idle_reasons(trace: RankTrace, window: tuple[int, int], busy: IntervalArrays) -> IdleReasons:
    """Find what the GPUs of a rank waited for while none of them worked; without GPUs, only data are known of."""
    whole = IntervalArrays(np.array(window[:1]), np.array(window[1:]))
    if not has_gpu_work(trace):
        idle, loads = difference(whole, busy), _of_host(trace)["data"]
        data, unknown = intersection(idle, loads), difference(idle, loads)
        return IdleReasons._make([NOTHING] * len(IdleReasons._fields))._replace(data=data, unknown=unknown)
    inner = _between_works(trace, busy)
    set_up = intersection(difference(whole, busy), covered(trace, sets_up(trace)))
    edge = difference(difference(whole, IntervalArrays(busy.start[:1], busy.stop[-1:])), set_up)
    work = stream_work(trace)
    queued, unasked = _queued(trace, work, difference(inner, set_up))
    known, unknown = _after_known_launches(trace, unasked)
    rest, of_host = known, {}
    for name, activity in _of_host(trace).items():
        of_host[name] = intersection(rest, activity)
        rest = difference(rest, activity)
    launch, gap, stream, long = _of_queue(trace, work, inner, queued)
    return IdleReasons(
        set_up,
        edge,
        **of_host,
        host=rest,
        launch=launch,
        gap=gap,
        stream=stream,
        unknown=together(unknown, long),
    )


def _between_works(trace: RankTrace, busy: IntervalArrays) -> IntervalArrays:
    """Idle times between works, also those that took less than the clock's unit."""
    events = trace.events
    short = np.unique(events.start[events.is_gpu_work & (events.start == events.stop)])
    place = np.searchsorted(busy.start, short, side="right")
    inside = (place > 0) & (place < len(busy.start))
    inside[inside] = short[inside] > busy.stop[place[inside] - 1]
    start, stop = np.append(busy.stop[:-1], short[inside]), np.append(busy.start[1:], short[inside])
    return IntervalArrays(np.sort(start), np.sort(stop))


def _queued(trace: RankTrace, work: StreamWork, inner: IntervalArrays) -> tuple[IntervalArrays, IntervalArrays]:
    """Parts of idle times in which some work was asked for, and in which none was."""
    called = trace.events.has_call[work.event]
    outstanding = union(work.asked[called], work.start[called])
    return intersection(inner, outstanding), difference(inner, outstanding)


def _after_known_launches(trace: RankTrace, unasked: IntervalArrays) -> tuple[IntervalArrays, IntervalArrays]:
    """Parts of times without anything asked for: after launches with work in the trace, and after others.

    Where more than a tenth of all launches have none, or no call was recorded, nothing is known.
    """
    launches = Launches.of(trace)
    lost = ~launches.recorded
    if not len(lost) or lost.sum() > MAX_UNKNOWN * len(lost):
        return NOTHING, unasked
    until = np.append(launches.at[1:], np.iinfo(np.int64).max)
    doubtful = intersection(unasked, union(launches.at[lost], until[lost]))
    return difference(unasked, doubtful), doubtful


def _of_host(trace: RankTrace) -> dict[str, IntervalArrays]:
    """Times in which a program does what :class:`IdleReasons` names; of several at once, the first counts."""
    events = trace.events
    loads = np.isin(events.category, NAMED_BY_PROGRAMS) & events_matching(trace, DATA_LOADING)
    manages = np.isin(call_kinds(trace), ALLOCATES)
    wanted = {"data": loads, "memory": manages, "ranks": cpu_collectives(trace)}
    return {name: covered(trace, rows) for name, rows in wanted.items()}


def _of_queue(
    trace: RankTrace, work: StreamWork, inner: IntervalArrays, queued: IntervalArrays
) -> tuple[IntervalArrays, IntervalArrays, IntervalArrays, IntervalArrays]:
    """Parts of idle times with work asked for: launches, gaps, waits of streams, and what is too long for these.

    The work that ends an idle time tells: what was asked for during it was on its way from then on, and other work
    that was outstanding before then waited for it.
    """
    events = trace.events
    ends = np.flatnonzero(np.isin(work.start, inner.stop) & events.has_call[work.event])
    place = np.searchsorted(inner.stop, work.start[ends])
    # of the works that begin at once, the one that was asked for first
    order = np.lexsort((work.asked[ends], place))
    known, first = np.unique(place[order], return_index=True)
    its = ends[order[first]]
    gaps = IntervalArrays(inner.start[known], inner.stop[known])
    during, asked = work.asked[its] >= gaps.start, np.clip(work.asked[its], gaps.start, gaps.stop)
    called = np.clip(events.stop[events.call[work.event[its]]], asked, gaps.stop)
    late = np.maximum(called, gaps.stop - MAX_LAUNCH_DELAY)

    def within(start: Int64, stop: Int64, which: Bool) -> IntervalArrays:
        return intersection(queued, union(start[which], stop[which]))

    launch = together(within(asked, called, during), within(late, gaps.stop, during))
    stream = within(gaps.start, asked, during)
    gap = within(gaps.start, gaps.stop, ~during & (gaps.lengths < MAX_KERNEL_DELAY))
    return launch, gap, stream, difference(queued, together(together(launch, stream), gap))


@dataclass(frozen=True, slots=True, repr=False)
class StreamIdle(ColumnTable):
    """A row for each stream: gaps between its works, each by the reason of all of it.

    As HTA's ``get_idle_time_breakdown``, whose ``host_wait`` is :attr:`host`, ``kernel_wait`` is :attr:`gap` and
    ``other`` the sum of :attr:`other_stream` and :attr:`unknown`. Unlike there, streams of one number on two devices
    are two, an overlap of two works is no idle time, and a gap is short up to 30 us, not 30 ns.
    """

    device: Int32
    stream: Int32
    works: Int32
    #: The later work was asked for after the earlier had ended.
    host: Annotated[Int64, Column(unit="nanoseconds")]
    #: It waited for work on another stream, or in a gap of unknown reason other work ended right before it.
    other_stream: Annotated[Int64, Column(unit="nanoseconds")]
    gap: Annotated[Int64, Column(unit="nanoseconds")]
    unknown: Annotated[Int64, Column(unit="nanoseconds")]


def idle_by_stream(trace: RankTrace, *, short_gap: int = SHORT_GAP) -> StreamIdle:
    """Sum up the gaps between the works of each stream by reason; ``short_gap`` is in nanoseconds."""
    events, work = trace.events, stream_work(trace)
    first = np.flatnonzero(np.diff(work.stream, prepend=MISSING))
    reached = _reached(work, events.stop[work.event])
    lasts = np.maximum(work.start - reached, 0)
    lasts[first] = 0
    called = events.has_call[work.event]
    host = called & (work.asked > reached)
    held = mask_of(waits_of_streams(trace, work)[1], len(work.event)) | _ended_elsewhere(events.stop[work.event], work)
    reason = np.select([host, held & (lasts >= short_gap), lasts < short_gap], [0, 1, 2], 3)
    sums = [np.add.reduceat(np.where(reason == each, lasts, 0), first) if len(first) else first for each in range(4)]
    of = work.event[first]
    return StreamIdle(events.device[of], events.stream[of], np.diff(np.append(first, len(work.event))), *sums)


def _reached(work: StreamWork, stop: Int64) -> Int64:
    """For each work, the last end of those before it on its stream; for the first, its start."""
    reached = work.start.copy()
    for here in np.split(np.arange(len(stop)), np.flatnonzero(np.diff(work.stream)) + 1):
        reached[here[1:]] = np.maximum.accumulate(stop[here])[:-1]
    return reached


def _ended_elsewhere(stop: Int64, work: StreamWork) -> Bool:
    """Mask of works right before which work of another stream ended, the last of all to end."""
    order = np.argsort(stop, kind="stable")
    last = np.searchsorted(stop[order], work.start, side="right") - 1
    before = order[np.maximum(last, 0)] if len(order) else order
    ended: Bool = (last >= 0) & (work.start - stop[before] < SHORT_GAP) & (work.stream[before] != work.stream)
    return ended
