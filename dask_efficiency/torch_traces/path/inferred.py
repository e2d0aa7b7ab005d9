"""Infers which calls waited for which work on a GPU, for traces without synchronisation events (``cuda_sync``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Int32, Int64
from dask_efficiency.gpu.calls import LONG
from dask_efficiency.torch_traces.kineto.numbers import mask_of
from dask_efficiency.torch_traces.kineto.trace import Category, Events, RankTrace
from dask_efficiency.torch_traces.path.graph import Edges, Nodes, Region, waits_as_edges
from dask_efficiency.torch_traces.path.lanes import by_thread, comparable_keys, rank_pairs
from dask_efficiency.torch_traces.path.roles import CallKind, awaited_copies, call_kinds, to_pageable
from dask_efficiency.torch_traces.path.streams import last_of_calls

_Rows = NDArray[np.integer]

#: A call that waited returns within this many nanoseconds after the work ended; only then may it have waited for
#: another stream than the last that its thread used. 3 to 9 us in HTA's two traces of AlexNet with synchronisations.
MAX_RETURN = 30_000

#: A long launch onto a stream with this many works has waited for room: CUDA's queue takes 1024.
MIN_FULL_QUEUE = 1_000


@dataclass(frozen=True, slots=True)
class StreamQueues:
    """Work that GPUs' streams were asked for by known calls, a row each, by stream and then in the order of calls."""

    #: Rows of the work in the trace.
    work: Int32
    #: Number of its stream, over all devices.
    stream: Int64
    #: Instant at which it was asked for, nanoseconds.
    at: Int64
    #: Instant at which it and all work before it on its stream had ended, nanoseconds.
    ended: Int64
    #: First row of each stream, and the end of the last.
    first: Int64
    events: Events

    @classmethod
    def of(cls, trace: RankTrace) -> Self:
        """Queues of a rank's streams."""
        events = trace.events
        rows = np.flatnonzero(events.is_gpu_work & events.has_call).astype(np.int32)
        stream = rank_pairs(events.device[rows], events.stream[rows]).astype(np.int64)
        at = events.start[events.call[rows]]
        order = np.lexsort((events.start[rows], at, stream))
        rows, stream, at = rows[order], stream[order], at[order]
        first = np.searchsorted(stream, np.arange(int(stream.max(initial=-1)) + 2))
        ended = events.stop[rows]
        for start, stop in zip(first[:-1].tolist(), first[1:].tolist(), strict=True):
            ended[start:stop] = np.maximum.accumulate(ended[start:stop])
        return cls(rows, stream, at, ended, first, events)

    def _rows(self, column: Int64, stream: Int64, at: Int64, side: Literal["left", "right"] = "left") -> Int64:
        """Row after the last one of each stream that a column has before an instant."""
        known, wanted = comparable_keys((self.stream, column), (stream, at))
        return np.searchsorted(known, wanted, side)

    def _work_before(self, rows: Int64, stream: Int64) -> Int64:
        """Work in the row before each on its stream; missing if there is none, or no stream."""
        known = (stream != MISSING) & (rows > self.first[stream])
        return np.where(known, np.append(self.work, MISSING)[rows - 1], MISSING)

    def last(self, stream: Int64, at: Int64) -> Int64:
        """Last work that each stream was asked for before an instant; missing if there is none, or no stream."""
        return self._work_before(self._rows(self.at, stream, at), stream)

    def last_ended(self, at: Int64, until: Int64) -> Int64:
        """The last to end, by other instants, among the last work of each stream before some instants."""
        work, ended = np.full(len(at), MISSING), np.full(len(at), MISSING)
        for stream in range(len(self.first) - 1):
            last = self.last(np.full(len(at), stream), at)
            stop = self.events.stop[last]
            later = (last != MISSING) & (stop <= until) & (stop > ended)
            work[later], ended[later] = last[later], stop[later]
        return work

    def last_ended_of(self, stream: Int64, at: Int64, until: Int64) -> Int64:
        """Work of a stream that ended last by some instants, of what it was asked for before others."""
        asked, ended = self._rows(self.at, stream, at), self._rows(self.ended, stream, until, "right")
        return self._work_before(np.minimum(asked, ended), stream)

    def unfinished(self, stream: Int64, at: Int64) -> Int64:
        """Number of works that a stream had been asked for and that had not ended, at some instants."""
        return self._rows(self.at, stream, at) - self._rows(self.ended, stream, at, "right")

    def stream_of(self, work: _Rows) -> Int64:
        """Stream of some rows of the trace."""
        numbers = np.full(len(self.events), MISSING, np.int64)
        numbers[self.work] = self.stream
        return numbers[work]

    def used_by(self, asking: _Rows, at: Int64) -> Int64:
        """Stream that each call's thread used last before an instant; missing if it used none."""
        used = np.full(len(at), MISSING)
        for here, mine in self._of_threads(asking):
            which = np.searchsorted(self.at[mine], at[here]) - 1
            used[here[which >= 0]] = self.stream[mine[which[which >= 0]]]
        return used

    def next_of_thread(self, asking: _Rows, at: Int64, other_than: Int64) -> Int64:
        """Work that each call's thread asked for next after an instant, on other streams than one; or missing."""
        following = np.full(len(at), MISSING)
        for here, mine in self._of_threads(asking):
            for stream in np.unique(other_than[here]).tolist():
                some = here[other_than[here] == stream]
                rest = mine[self.stream[mine] != stream]
                which = np.searchsorted(self.at[rest], at[some])
                known = which < len(rest)
                following[some[known]] = self.work[rest[which[known]]]
        return following

    def _of_threads(self, asking: _Rows) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """For each thread, positions of its calls among some rows, and of the work it asked for, in order of time."""
        for here, mine in by_thread(self.events, asking, self.events.call[self.work]):
            yield here, mine[np.argsort(self.at[mine], kind="stable")]


class _Waits(NamedTuple):
    """Rows of work, and of calls that waited for it."""

    work: _Rows
    call: _Rows


class Awaited(NamedTuple):
    """Work that had ended by the return of a call, by what that call means; by the clocks it may end later."""

    work: _Rows
    call: _Rows
    #: True where no guess about streams is in it.
    sure: Bool


def awaited(trace: RankTrace) -> Awaited:
    """Find the work that calls waited for, whenever it ended."""
    events, kinds, queues = trace.events, call_kinds(trace), StreamQueues.of(trace)
    calls = np.flatnonzero(kinds == CallKind.DEVICE_WAIT)
    works = np.flatnonzero(events.is_gpu_work & events.has_call)
    of_one_device = len(np.unique(events.device[works])) == 1
    awaited: list[tuple[_Rows, _Rows, Bool]] = []
    for stream in range(len(queues.first) - 1):
        work = last_of_calls(events, queues.last(np.full(len(calls), stream), events.start[calls]))
        awaited.append((work, calls, np.full(len(calls), of_one_device)))
    for waiting, asking in _waits_for_streams(trace, np.ones(len(events), np.bool_)):
        work = last_of_calls(events, queues.last(queues.used_by(asking, events.start[asking]), events.start[asking]))
        awaited.append((work, waiting, np.zeros(len(waiting), np.bool_)))
    copies = awaited_copies(trace)
    copies = copies[(kinds[events.call[copies]] == CallKind.COPY) | to_pageable(trace)[copies]]
    awaited.append((copies, events.call[copies].astype(np.int64), np.ones(len(copies), np.bool_)))
    work, calls, sure = (np.concatenate(part) for part in zip(*awaited, strict=True))
    known = work != MISSING
    return Awaited(work[known], calls[known], sure[known])


def inferred_syncs(trace: RankTrace, region: Region, nodes: Nodes) -> Edges:
    """Edges from ends of work to the ends of calls that waited for it, and to work that streams held back for it.

    Edges are between events of the region, of kind SYNC and weight 0, marked as inferred. The rules are ours. A call
    that waits for

    - a device waits for the last work of each of its streams;
    - a stream, for the last work of the stream that its thread used last, and all of a CUDA graph there, unless only
      another stream's work ended during the call;
    - an event, likewise, for work before the last recorded event;
    - its own copy, if that ended during the call (:func:`awaited_copies`); ``cudaFree``, for work that ended during the
      call; a long launch, for room in the queue of a full stream.

    After ``cudaStreamWaitEvent`` the thread's next work on another stream waits for the work of the thread's last
    stream before the last recorded event. If that cannot be, the thread's next work waits for the last work to end
    before it on other streams.

    :data:`MAX_RETURN` was chosen on two recorded traces, HTA's ``alexnet`` and ``simple_add``. The rules for waits of
    streams were chosen on programs of a simulator, with seeds 0 to 199, and so far on no recorded trace.
    """
    inside = mask_of(region.rows, len(trace.events))
    starts, stops = nodes.positions(len(inside))
    syncs = [(stops[work], stops[call]) for work, call in _waits(trace, inside)]
    syncs += [(stops[work], starts[held_back]) for work, held_back in _between_streams(trace, inside)]
    source, target = (np.concatenate(ends) for ends in zip(*syncs, strict=True))
    pairs = np.unique(np.stack([source, target], axis=1), axis=0)
    return waits_as_edges(pairs[:, 0], pairs[:, 1], inferred=True)


def _waits(trace: RankTrace, inside: Bool) -> Iterator[_Waits]:
    """Calls among some events that waited, and the work that each waited for."""
    kinds = np.where(inside, call_kinds(trace), CallKind.OTHER)
    queues = StreamQueues.of(trace)

    def of(*wanted: CallKind) -> _Rows:
        return np.flatnonzero(np.isin(kinds, wanted))

    calls = of(CallKind.DEVICE_WAIT)
    for stream in range(len(queues.first) - 1):
        yield _ended_in_time(trace, queues.last(np.full(len(calls), stream), trace.events.start[calls]), calls)
    for calls, asking in _waits_for_streams(trace, inside):
        yield _for_stream(trace, queues, calls, asking)
    copies = awaited_copies(trace)
    copies = copies[inside[trace.events.call[copies]]]
    yield _ended_in_time(trace, copies, trace.events.call[copies])
    yield _for_any_work(trace, queues, of(CallKind.FREE))
    yield _for_room(trace, queues, np.flatnonzero(inside))


def _waits_for_streams(trace: RankTrace, inside: Bool) -> Iterator[tuple[_Rows, _Rows]]:
    """Calls that wait for a stream or an event, and the calls at which what they wait for had been asked for."""
    kinds = call_kinds(trace)
    calls = np.flatnonzero(inside & (kinds == CallKind.STREAM_WAIT))
    yield calls, calls
    # The trace does not name the event: the last one that was recorded on any thread, or else by the call itself.
    calls = np.flatnonzero(inside & (kinds == CallKind.EVENT_WAIT))
    records = trace.events.by_start(np.flatnonzero(kinds == CallKind.EVENT_RECORD))
    last = _last_before(trace.events, records, calls)
    yield calls, np.where(last != MISSING, last, calls)


def _for_stream(trace: RankTrace, queues: StreamQueues, calls: _Rows, asking: _Rows) -> _Waits:
    """Waits for the stream that the thread of an ``asking`` call used last, or for the last work to end in the call."""
    events = trace.events
    start, stop = events.start[calls], events.stop[calls]
    last = queues.last(queues.used_by(asking, events.start[asking]), events.start[asking])
    work = last_of_calls(events, last)
    ended = events.stop[work]
    during = (work != MISSING) & (ended > start) & (ended <= stop)
    other = queues.last_ended(start, stop)
    ended = events.stop[other]
    better = ~during & (other != MISSING) & (ended > start)
    better &= (stop - ended <= MAX_RETURN) & (stop - start > MAX_RETURN)
    return _ended_in_time(trace, np.where(better, other, work), calls)


def _for_any_work(trace: RankTrace, queues: StreamQueues, calls: _Rows) -> _Waits:
    start, stop = trace.events.start[calls], trace.events.stop[calls]
    work = queues.last_ended(start, stop)
    known = (work != MISSING) & (trace.events.stop[work] > start)
    return _Waits(work[known], calls[known])


def _for_room(trace: RankTrace, queues: StreamQueues, rows: _Rows) -> _Waits:
    """Waits of long launches into a full queue for the last work to end on that stream before they returned."""
    events = trace.events
    works = rows[np.isin(events.category[rows], (Category.KERNEL, Category.FILL)) & events.has_call[rows]]
    works = works[events.stop[events.call[works]] - events.start[events.call[works]] >= LONG]
    calls, stream = events.call[works], queues.stream_of(works)
    full = queues.unfinished(stream, events.start[calls]) >= MIN_FULL_QUEUE
    calls, stream = calls[full], stream[full]
    ended = queues.last_ended_of(stream, events.start[calls], events.stop[calls])
    known = (ended != MISSING) & (events.stop[ended] > events.start[calls])
    return _Waits(ended[known], calls[known])


def _ended_in_time(trace: RankTrace, work: _Rows, calls: _Rows) -> _Waits:
    """Waits for work that had ended when the call returned."""
    known = (work != MISSING) & (trace.events.stop[work] <= trace.events.stop[calls])
    return _Waits(work[known], calls[known])


def _between_streams(trace: RankTrace, inside: Bool) -> Iterator[_Waits]:
    """Waits of work that a stream held back until an event, for work of another stream."""
    events, kinds = trace.events, call_kinds(trace)
    calls = np.flatnonzero(inside & (kinds == CallKind.STREAM_WAITS_EVENT))
    if not len(calls):
        return
    queues, at = StreamQueues.of(trace), events.start[calls]
    # The event that a thread recorded last stands for work of its stream; the stream that waits is another one.
    records, recorded = np.flatnonzero(kinds == CallKind.EVENT_RECORD), np.full(len(calls), MISSING, np.int64)
    for waiting, earlier in by_thread(events, calls, records):
        recorded[waiting] = _last_before(events, events.by_start(records[earlier]), calls[waiting])
    recorded_at = np.where(recorded != MISSING, events.start[recorded], 0)
    meant = queues.used_by(calls, recorded_at)
    held_back = queues.next_of_thread(calls, at, meant)
    began = np.where(held_back != MISSING, events.start[held_back], 0)
    work = queues.last_ended_of(meant, recorded_at, began)
    likely = (work != MISSING) & (held_back != MISSING)
    yield _Waits(work[likely], held_back[likely])
    # Otherwise the thread's next work waited for the last work to end before it.
    calls, at = calls[~likely], at[~likely]
    held_back = queues.next_of_thread(calls, at, np.full(len(calls), MISSING))
    at, held_back = (column[held_back != MISSING] for column in (at, held_back))
    own, began = queues.stream_of(held_back), events.start[held_back]
    last = np.full(len(at), MISSING)
    for stream in range(len(queues.first) - 1):
        work = queues.last_ended_of(np.where(own == stream, MISSING, stream), at, began)
        later = (work != MISSING) & (events.device[work] == events.device[held_back])
        later &= (last == MISSING) | (events.stop[work] > events.stop[last])
        last[later] = work[later]
    yield _Waits(last[last != MISSING], held_back[last != MISSING])


def _last_before(events: Events, records: _Rows, calls: _Rows) -> Int64:
    """The last of some calls, in order of time, that begins before each of others; missing if there is none."""
    which = np.searchsorted(events.start[records], events.start[calls]) - 1
    return np.where(which >= 0, np.append(records, MISSING)[which], MISSING)
