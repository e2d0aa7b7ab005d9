"""Waits of calls and streams, from the synchronisations that CUPTI recorded."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Int32, Int64
from dask_efficiency.torch_traces.kineto.numbers import first_with
from dask_efficiency.torch_traces.kineto.trace import Category, RankTrace
from dask_efficiency.torch_traces.path.graph import EdgeKind, Edges, Nodes
from dask_efficiency.torch_traces.path.lanes import comparable_keys, rank_pairs
from dask_efficiency.torch_traces.path.roles import CallKind, call_kinds
from dask_efficiency.torch_traces.path.streams import StreamWork


class _SyncKind(IntEnum):
    """Kind of a synchronisation."""

    #: A call waits for all streams of a device.
    CONTEXT = 0
    #: A call waits for a stream.
    STREAM = 1
    #: A call waits for work from before a recorded event.
    EVENT = 2
    #: A stream waits for work from before a recorded event.
    STREAM_WAIT = 3


#: By Kineto's names.
_KINDS = {
    "Context Sync": _SyncKind.CONTEXT,
    "Stream Sync": _SyncKind.STREAM,
    "Event Sync": _SyncKind.EVENT,
    "Stream Wait Event": _SyncKind.STREAM_WAIT,
}


class _Waits(NamedTuple):
    """Pairs of work and what waited for its end."""

    #: Position in the work on streams.
    work: NDArray[np.intp]
    #: Row of the call, or position of the work, that waited.
    waiter: NDArray[np.intp]


def sync_edges(trace: RankTrace, work: StreamWork, nodes: Nodes, positions: tuple[Int32, Int32]) -> Edges:
    """Edges of all recorded synchronisations, to work and to the ends of calls; from the work of the whole trace."""
    starts, stops = positions
    streams = _waits_of_streams(trace, work)
    calls = _waits_of_calls(trace, work, starts[work.event] != MISSING)
    source = stops[work.event[np.concatenate([streams.work, calls.work])]]
    target = np.concatenate([starts[work.event[streams.waiter]], stops[calls.waiter]])
    good = (source != MISSING) & (target != MISSING)
    return Edges.from_columns(
        {
            "source": source[good],
            "target": target[good],
            "kind": np.full(np.count_nonzero(good), EdgeKind.SYNC, np.int8),
            "weight": np.zeros(np.count_nonzero(good), np.int64),
        }
    )


def _waits_of_calls(trace: RankTrace, work: StreamWork, in_region: Bool) -> _Waits:
    """Work that each waiting call waited for: the last on a stream to begin before the wait ended and end before it.

    Only work ``in_region`` can have been waited for. Source: HTA (``traceinsight`` 0.6.1),
    ``_construct_graph_from_kernels``. We differ: a context is that of one device; the last one that ended in time is
    taken, while HTA takes the last one that began, even if it ended later than the call.
    """
    events = trace.events
    syncs = _syncs(trace, (_SyncKind.CONTEXT, _SyncKind.STREAM))
    found = [_before_events(trace, work, _SyncKind.EVENT)]
    for here in _by_stream(work, in_region):
        first = work.event[here[0]]
        device, stream = events.device[first], events.stream[first]
        concerned = syncs.rows[
            _on_device(events.device[syncs.rows], device)
            & ((syncs.kind == _SyncKind.CONTEXT) | (events.stream[syncs.rows] == stream))
        ]
        call = events.call[concerned]
        begun = np.searchsorted(work.start[here], events.stop[concerned], side="left")
        ended = np.searchsorted(np.maximum.accumulate(events.stop[work.event[here]]), events.stop[call], side="right")
        number = np.minimum(begun, ended)
        found.append(_Waits(here[number[number > 0] - 1], call[number > 0].astype(np.intp)))
    return _Waits(*(np.concatenate(part) for part in zip(*found, strict=True)))


def _waits_of_streams(trace: RankTrace, work: StreamWork) -> _Waits:
    """Waits of work on one stream for work on another.

    A call makes a stream wait for an event. The next work that its thread asks for on that stream begins only after the
    work from before the recorded event has ended. Source: HTA (``traceinsight`` 0.6.1),
    ``_get_cuda_stream_wait_event_df``. We differ: work that has to wait for several streams waits for all of them, not
    only for the last one named; and waiting for its own stream is no wait.
    """
    events = trace.events
    waits = _before_events(trace, work, _SyncKind.STREAM_WAIT, by_call=False)
    threads = _threads(trace, np.concatenate([events.call[work.event], events.call[waits.waiter]]))
    asking, waiting = threads[: len(work.event)], threads[len(work.event) :]
    next_work = np.full(len(waits.waiter), MISSING)
    for here in _by_stream(work, events.call[work.event] != MISSING):
        first = work.event[here[0]]
        concerned = np.flatnonzero(
            _on_device(events.device[waits.waiter], events.device[first])
            & (events.stream[waits.waiter] == events.stream[first])
        )
        called_at = events.start[events.call[waits.waiter[concerned]]]
        asked, called = comparable_keys((asking[here], work.asked[here]), (waiting[concerned], called_at))
        order = np.argsort(asked, kind="stable")
        place = np.minimum(np.searchsorted(asked[order], called), len(here) - 1)
        after = here[order[place]]
        good = (asked[order[place]] >= called) & (asking[after] == waiting[concerned])
        next_work[concerned[good]] = after[good]
    good = next_work != MISSING
    source, target = waits.work[good], next_work[good]
    apart = work.stream[source] != work.stream[target]
    return _Waits(source[apart], target[apart])


class _Syncs(NamedTuple):
    rows: NDArray[np.intp]
    kind: NDArray[np.int8]


def _syncs(trace: RankTrace, kinds: tuple[_SyncKind, ...]) -> _Syncs:
    """Synchronisations of some kinds with known calls."""
    events = trace.events
    of_name = np.array([*(_KINDS.get(name, MISSING) for name in trace.names), MISSING], np.int8)
    rows = np.flatnonzero((events.category == Category.SYNC) & (events.call != MISSING))
    kind = of_name[events.name[rows]]
    wanted = np.isin(kind, kinds)
    return _Syncs(rows[wanted], kind[wanted])


def _before_events(trace: RankTrace, work: StreamWork, kind: _SyncKind, *, by_call: bool = True) -> _Waits:
    """Waits for an event: each for the last work that the event's stream was asked for before it was recorded."""
    events = trace.events
    rows = _syncs(trace, (kind,)).rows
    recorded = _recorded_at(trace, events.recorded_by[rows])
    found = np.full(len(rows), MISSING)
    for here in _by_stream(work, events.call[work.event] != MISSING):
        first = work.event[here[0]]
        concerned = np.flatnonzero(
            (recorded != MISSING)
            & _on_device(events.device[rows], events.device[first])
            & (events.recorded_stream[rows] == events.stream[first])
        )
        order = np.argsort(work.asked[here], kind="stable")
        number = np.searchsorted(work.asked[here][order], recorded[concerned], side="right")
        found[concerned[number > 0]] = here[order[number[number > 0] - 1]]
    good = found != MISSING
    return _Waits(found[good], (events.call[rows] if by_call else rows)[good].astype(np.intp))


def _recorded_at(trace: RankTrace, correlation: Int64) -> Int64:
    """Instant at which the call with a correlation recorded its event, or missing."""
    events = trace.events
    calls = np.flatnonzero((call_kinds(trace) == CallKind.EVENT_RECORD) & (events.correlation > 0))
    if not calls.size:
        return np.full(len(correlation), MISSING, np.int64)
    place = first_with(events.correlation[calls], correlation)
    return np.where(place != MISSING, events.start[calls[place]], MISSING)


def _by_stream(work: StreamWork, which: Bool) -> list[NDArray[np.intp]]:
    """Positions of each stream's work, in the order in which it began."""
    positions = np.flatnonzero(which)
    if not positions.size:
        return []
    stream = work.stream[positions]
    return np.split(positions, np.flatnonzero(stream[1:] != stream[:-1]) + 1)


def _on_device(device: NDArray[np.int32], wanted: np.int32) -> Bool:
    found: Bool = (device == wanted) | (device == MISSING)
    return found


def _threads(trace: RankTrace, calls: NDArray[np.integer]) -> NDArray[np.intp]:
    """Number of each call's thread; meaningless for missing calls."""
    return rank_pairs(trace.events.process[calls], trace.events.thread[calls])
