"""Infers which calls waited for which work on a GPU, for traces without synchronisation events (``cuda_sync``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Int32, Int64
from dask_efficiency.gpu.calls import LONG
from dask_efficiency.torch_traces.kineto.trace import Category, Events, RankTrace
from dask_efficiency.torch_traces.path.graph import EdgeKind, Edges, Nodes, Region
from dask_efficiency.torch_traces.path.lanes import by_thread, rank_pairs
from dask_efficiency.torch_traces.path.roles import CallKind, call_kinds

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
        rows = np.flatnonzero(events.is_gpu_work & (events.call != MISSING)).astype(np.int32)
        stream = rank_pairs(events.device[rows], events.stream[rows]).astype(np.int64)
        at = events.start[events.call[rows]]
        order = np.lexsort((events.start[rows], at, stream))
        rows, stream, at = rows[order], stream[order], at[order]
        first = np.searchsorted(stream, np.arange(int(stream.max(initial=-1)) + 2))
        ended = events.stop[rows]
        for start, stop in zip(first[:-1].tolist(), first[1:].tolist(), strict=True):
            ended[start:stop] = np.maximum.accumulate(ended[start:stop])
        return cls(rows, stream, at, ended, first, events)

    @property
    def streams(self) -> int:
        """Number of streams."""
        return len(self.first) - 1

    def last(self, stream: int, at: Int64) -> Int64:
        """Last work that a stream was asked for before some instants; missing if there is none."""
        start, stop = self.first[stream : stream + 2].tolist()
        which = np.searchsorted(self.at[start:stop], at) - 1
        return (
            np.where(which >= 0, self.work[start:stop][which], MISSING) if stop > start else np.full(len(at), MISSING)
        )

    def last_of_each(self, stream: Int64, at: Int64) -> Int64:
        """:meth:`last` of a stream for each instant; missing where the stream is."""
        work = np.full(len(at), MISSING)
        for number in np.unique(stream[stream != MISSING]).tolist():
            here = stream == number
            work[here] = self.last(number, at[here])
        return work

    def last_ended(self, at: Int64, until: Int64) -> Int64:
        """The last to end, by other instants, among the last work of each stream before some instants."""
        work, ended = np.full(len(at), MISSING), np.full(len(at), MISSING)
        for stream in range(self.streams):
            last = self.last(stream, at)
            known = last != MISSING
            known[known] = self.events.stop[last[known]] <= until[known]
            known[known] = self.events.stop[last[known]] > ended[known]
            work[known], ended[known] = last[known], self.events.stop[last[known]]
        return work

    def last_ended_of(self, stream: Int64, at: Int64, until: Int64) -> Int64:
        """Work of a stream that ended last by some instants, of what it was asked for before others."""
        work = np.full(len(until), MISSING)
        for number in np.unique(stream[stream != MISSING]).tolist():
            start, stop = self.first[number : number + 2].tolist()
            here = stream == number
            asked = np.searchsorted(self.at[start:stop], at[here])
            ended = np.searchsorted(self.ended[start:stop], until[here], side="right")
            which = np.minimum(asked, ended) - 1
            work[here] = np.where(which >= 0, self.work[start:stop][which], MISSING)
        return work

    def unfinished(self, stream: Int64, at: Int64) -> Int64:
        """Number of works that a stream had been asked for and that had not ended, at some instants."""
        count = np.zeros(len(at), np.int64)
        for number in np.unique(stream).tolist():
            start, stop = self.first[number : number + 2].tolist()
            here = stream == number
            count[here] = np.searchsorted(self.at[start:stop], at[here])
            count[here] -= np.searchsorted(self.ended[start:stop], at[here], side="right")
        return count

    def stream_of(self, work: _Rows) -> Int64:
        """Stream of some rows of the trace."""
        numbers = np.full(len(self.events), MISSING, np.int64)
        numbers[self.work] = self.stream
        return numbers[work]

    def used_by(self, asking: _Rows, at: Int64) -> Int64:
        """Stream that each call's thread used last before an instant; missing if it used none."""
        found = np.full(len(at), MISSING)
        for here, mine in self._of_threads(asking):
            which = np.searchsorted(self.at[mine], at[here]) - 1
            found[here[which >= 0]] = self.stream[mine[which[which >= 0]]]
        return found

    def next_of_thread(self, asking: _Rows, at: Int64, other_than: Int64) -> Int64:
        """Work that each call's thread asked for next after an instant; missing if there is none.

        Work on the stream ``other_than`` is skipped, by call; missing for none.
        """
        found = np.full(len(at), MISSING)
        for here, mine in self._of_threads(asking):
            for stream in np.unique(other_than[here]).tolist():
                some = here[other_than[here] == stream]
                rest = mine[self.stream[mine] != stream]
                which = np.searchsorted(self.at[rest], at[some])
                known = which < len(rest)
                found[some[known]] = self.work[rest[which[known]]]
        return found

    def _of_threads(self, asking: _Rows) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """For each thread, positions of its calls among some rows, and of the work it asked for, in order of time."""
        for here, mine in by_thread(self.events, asking, self.events.call[self.work]):
            yield here, mine[np.argsort(self.at[mine], kind="stable")]


class _Waits(NamedTuple):
    """Rows of work, and of calls that waited for it."""

    work: _Rows
    call: _Rows


def inferred_syncs(trace: RankTrace, region: Region, nodes: Nodes) -> Edges:
    """Edges from ends of work to the ends of calls that waited for it, and to work that streams held back for it.

    Edges are between events of the region, of kind SYNC and weight 0, marked as inferred, and none goes back in time.

    The rules are ours. A call that waits for

    - a device waits for the last work of each of its streams;
    - a stream, for the last work of the stream that its thread used last, unless only another stream's work ended
      during the call;
    - an event, likewise, for work before the last recorded event;
    - its own copy, if that ended during the call; ``cudaFree``, for work that ended during the call; a long launch, for
      room in the queue of a full stream.

    After ``cudaStreamWaitEvent`` the thread's next work on another stream waits for the work of the thread's last
    stream before the last recorded event. If that cannot be, the thread's next work waits for the last work to end
    before it on other streams.

    :data:`MAX_RETURN` was chosen on two recorded traces, HTA's ``alexnet`` and ``simple_add``. The rules for waits of
    streams were chosen on programs of a simulator, with seeds 0 to 199, and so far on no recorded trace.
    """
    inside = np.zeros(len(trace.events), bool)
    inside[region.rows] = True
    starts, stops = nodes.positions(len(inside))
    sources, targets = [], []
    for work, call in waits(trace, inside):
        sources.append(stops[work])
        targets.append(stops[call])
    for work, held_back in _between_streams(trace, inside):
        sources.append(stops[work])
        targets.append(starts[held_back])
    source, target = np.concatenate(sources), np.concatenate(targets)
    forward = (source != MISSING) & (target != MISSING)
    forward[forward] = nodes.at[source[forward]] <= nodes.at[target[forward]]
    pairs = np.unique(np.stack([source[forward], target[forward]], axis=1), axis=0)
    return Edges.from_columns(
        {
            "source": pairs[:, 0],
            "target": pairs[:, 1],
            "kind": np.full(len(pairs), EdgeKind.SYNC, np.int8),
            "weight": np.zeros(len(pairs), np.int64),
            "inferred": np.ones(len(pairs), bool),
        }
    )


def waits(trace: RankTrace, inside: NDArray[np.bool_]) -> Iterator[_Waits]:
    """Calls among some events that waited, and the work that each waited for."""
    kinds = np.where(inside, call_kinds(trace), CallKind.OTHER)
    enqueued = StreamQueues.of(trace)

    def of(*wanted: CallKind) -> _Rows:
        return np.flatnonzero(np.isin(kinds, wanted))

    yield from _for_device(trace, enqueued, of(CallKind.DEVICE_WAIT))
    yield _for_stream(trace, enqueued, of(CallKind.STREAM_WAIT))
    yield _for_event(trace, enqueued, of(CallKind.EVENT_WAIT))
    yield _for_own_copies(trace, of(CallKind.COPY, CallKind.COPY_ASYNC))
    yield _for_any_work(trace, enqueued, of(CallKind.FREE))
    yield _for_room(trace, enqueued, np.flatnonzero(inside))


def _for_device(trace: RankTrace, enqueued: StreamQueues, calls: _Rows) -> Iterator[_Waits]:
    for stream in range(enqueued.streams):
        work = enqueued.last(stream, trace.events.start[calls])
        yield _ended_in_time(trace, work, calls)


def _for_stream(trace: RankTrace, enqueued: StreamQueues, calls: _Rows) -> _Waits:
    at = trace.events.start[calls]
    work = enqueued.last_of_each(enqueued.used_by(calls, at), at)
    return _ended_in_time(trace, *_or_ended_during_call(trace, enqueued, calls, work, at))


def _for_event(trace: RankTrace, enqueued: StreamQueues, calls: _Rows) -> _Waits:
    """Waits for the last event recorded before the call, as the trace does not say which event it is."""
    events = trace.events
    records = np.flatnonzero(call_kinds(trace) == CallKind.EVENT_RECORD)
    records = records[np.argsort(events.start[records], kind="stable")]
    which = np.searchsorted(events.start[records], events.start[calls]) - 1
    recorded = which >= 0
    asking = calls.copy()
    asking[recorded] = records[which[recorded]]
    at = events.start[asking]
    work = enqueued.last_of_each(enqueued.used_by(asking, at), at)
    return _ended_in_time(trace, *_or_ended_during_call(trace, enqueued, calls, work, events.start[calls]))


def _or_ended_during_call(
    trace: RankTrace, enqueued: StreamQueues, calls: _Rows, work: _Rows, at: Int64
) -> tuple[_Rows, _Rows]:
    """The presumed work; or the last that ended during the call, if the presumed work did not."""
    events = trace.events
    start, stop = events.start[calls], events.stop[calls]
    known = work != MISSING
    during = known.copy()
    during[known] = (events.stop[work[known]] > start[known]) & (events.stop[work[known]] <= stop[known])
    other = enqueued.last_ended(at, stop)
    better = ~during & (other != MISSING)
    ended = events.stop[other]
    better &= (ended > start) & (stop - ended <= MAX_RETURN) & (stop - start > MAX_RETURN)
    return np.where(better, other, work), calls


def _for_own_copies(trace: RankTrace, calls: _Rows) -> _Waits:
    """Waits of calls for their own copies that ended during the call."""
    wanted = np.zeros(len(trace.events), bool)
    wanted[calls] = True
    copies = np.flatnonzero((trace.events.category == Category.COPY) & (trace.events.call != MISSING))
    copies = copies[wanted[trace.events.call[copies]]]
    return _ended_in_time(trace, copies, trace.events.call[copies])


def _for_any_work(trace: RankTrace, enqueued: StreamQueues, calls: _Rows) -> _Waits:
    work = enqueued.last_ended(trace.events.start[calls], trace.events.stop[calls])
    known = work != MISSING
    known[known] = trace.events.stop[work[known]] > trace.events.start[calls[known]]
    return _Waits(work[known], calls[known])


def _for_room(trace: RankTrace, enqueued: StreamQueues, rows: _Rows) -> _Waits:
    """Waits of long launches into a full queue for the last work to end on that stream before they returned."""
    events = trace.events
    works = rows[np.isin(events.category[rows], (Category.KERNEL, Category.FILL)) & (events.call[rows] != MISSING)]
    works = works[events.stop[events.call[works]] - events.start[events.call[works]] >= LONG]
    calls = events.call[works]
    stream = enqueued.stream_of(works)
    waiting = enqueued.unfinished(stream, events.start[calls])
    works, calls, stream = (column[waiting >= MIN_FULL_QUEUE] for column in (works, calls, stream))
    ended = enqueued.last_ended_of(stream, events.start[calls], events.stop[calls])
    known = ended != MISSING
    known[known] = events.stop[ended[known]] > events.start[calls[known]]
    return _Waits(ended[known], calls[known])


def _ended_in_time(trace: RankTrace, work: _Rows, calls: _Rows) -> _Waits:
    """Waits for work that had ended when the call returned."""
    known = work != MISSING
    known[known] = trace.events.stop[work[known]] <= trace.events.stop[calls[known]]
    return _Waits(work[known], calls[known])


def _between_streams(trace: RankTrace, inside: NDArray[np.bool_]) -> Iterator[_Waits]:
    """Waits of work that a stream held back until an event, for work of another stream."""
    events, kinds = trace.events, call_kinds(trace)
    calls = np.flatnonzero(inside & (kinds == CallKind.STREAM_WAITS_EVENT))
    if not len(calls):
        return
    enqueued = StreamQueues.of(trace)
    at = events.start[calls]
    # The last recorded event stands for work of its stream; the stream that waits is another one.
    recorded = _last_recorded(trace, np.flatnonzero(kinds == CallKind.EVENT_RECORD), calls)
    recorded_at = np.where(recorded != MISSING, events.start[recorded], 0)
    meant = enqueued.used_by(calls, recorded_at)
    held_back = enqueued.next_of_thread(calls, at, meant)
    began = np.where(held_back != MISSING, events.start[held_back], 0)
    work = enqueued.last_ended_of(meant, recorded_at, began)
    likely = (work != MISSING) & (held_back != MISSING)
    yield _Waits(work[likely], held_back[likely])
    # Otherwise the thread's next work waited for the last work to end before it.
    calls, at = calls[~likely], at[~likely]
    held_back = enqueued.next_of_thread(calls, at, np.full(len(calls), MISSING))
    calls, at, held_back = (column[held_back != MISSING] for column in (calls, at, held_back))
    own, began = enqueued.stream_of(held_back), events.start[held_back]
    last = np.full(len(calls), MISSING)
    for stream in range(enqueued.streams):
        work = enqueued.last_ended_of(np.where(own == stream, MISSING, stream), at, began)
        later = (work != MISSING) & (events.device[work] == events.device[held_back])
        later &= (last == MISSING) | (events.stop[work] > events.stop[last])
        last[later] = work[later]
    yield _Waits(last[last != MISSING], held_back[last != MISSING])


def _last_recorded(trace: RankTrace, records: _Rows, calls: _Rows) -> Int64:
    """The last call on the same thread that recorded an event before each of some calls; missing if there is none."""
    events = trace.events
    found = np.full(len(calls), MISSING, np.int64)
    for here, there in by_thread(events, calls, records):
        mine = records[there]
        mine = mine[np.argsort(events.start[mine], kind="stable")]
        which = np.searchsorted(events.start[mine], events.start[calls[here]]) - 1
        found[here[which >= 0]] = mine[which[which >= 0]]
    return found
