"""Waits of calls and streams, from the synchronisations that CUPTI recorded."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Int32, Int64
from dask_efficiency.torch_traces.kineto.numbers import first_with
from dask_efficiency.torch_traces.kineto.trace import Category, RankTrace
from dask_efficiency.torch_traces.path.graph import Edges, Nodes, waits_as_edges
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

#: Pairs of work and what waited for its end: positions in the work on streams, and rows of calls or positions of work.
_Waits = tuple[NDArray[np.intp], NDArray[np.intp]]


def sync_edges(trace: RankTrace, work: StreamWork, nodes: Nodes, positions: tuple[Int32, Int32]) -> Edges:
    """Edges of all recorded synchronisations, to work and to the ends of calls; from the work of the whole trace."""
    starts, stops = positions
    sources, held_back = _waits_of_streams(trace, work)
    others, calls = _waits_of_calls(trace, work, starts[work.event] != MISSING)
    target = np.concatenate([starts[work.event[held_back]], stops[calls]])
    return waits_as_edges(stops[work.event[np.concatenate([sources, others])]], target, inferred=False)


def _waits_of_calls(trace: RankTrace, work: StreamWork, in_region: Bool) -> _Waits:
    """Work that each waiting call waited for: the last on a stream to begin before the wait ended and end before it.

    HTA's ``_construct_graph_from_kernels`` takes a context for all devices, and the last one that began, even if it
    ended later than the call.
    """
    events = trace.events
    syncs, kind = _syncs(trace, (_SyncKind.CONTEXT, _SyncKind.STREAM))
    waited_on = events.stream[syncs]
    found = [_before_events(trace, work, _SyncKind.EVENT)]
    for here in _by_stream(work, in_region):
        stream = events.stream[work.event[here[0]]]
        on_stream = np.where(kind == _SyncKind.CONTEXT, stream, waited_on)
        concerned = syncs[_concerning(trace, work.event[here[0]], syncs, on_stream)]
        call = events.call[concerned]
        begun = np.searchsorted(work.start[here], events.stop[concerned], side="left")
        ended = np.searchsorted(np.maximum.accumulate(events.stop[work.event[here]]), events.stop[call], side="right")
        number = np.minimum(begun, ended)
        found.append((here[number[number > 0] - 1], call[number > 0].astype(np.intp)))
    waits, calls = (np.concatenate(part) for part in zip(*found, strict=True))
    return waits, calls


def _waits_of_streams(trace: RankTrace, work: StreamWork) -> _Waits:
    """Waits of work on one stream for work on another, after a call that made the stream wait for an event.

    The next work that the call's thread asks for on that stream begins only after the work from before the recorded
    event has ended; HTA's ``_get_cuda_stream_wait_event_df`` keeps only the last stream of several.
    """
    events = trace.events
    sources, syncs = _before_events(trace, work, _SyncKind.STREAM_WAIT, by_call=False)
    calls = np.concatenate([events.call[work.event], events.call[syncs]])
    threads = rank_pairs(events.process[calls], events.thread[calls])
    asking, waiting = threads[: len(work.event)], threads[len(work.event) :]
    next_work = np.full(len(syncs), MISSING)
    for here in _by_stream(work, events.has_call[work.event]):
        concerned = np.flatnonzero(_concerning(trace, work.event[here[0]], syncs, events.stream[syncs]))
        called_at = events.start[events.call[syncs[concerned]]]
        asked, called = comparable_keys((asking[here], work.asked[here]), (waiting[concerned], called_at))
        order = np.argsort(asked, kind="stable")
        place = np.minimum(np.searchsorted(asked[order], called), len(here) - 1)
        after = here[order[place]]
        good = (asked[order[place]] >= called) & (asking[after] == waiting[concerned])
        next_work[concerned[good]] = after[good]
    apart = (next_work != MISSING) & (work.stream[sources] != work.stream[next_work])
    return sources[apart], next_work[apart]


def _syncs(trace: RankTrace, kinds: tuple[_SyncKind, ...]) -> tuple[NDArray[np.intp], NDArray[np.int8]]:
    """Rows of the synchronisations of some kinds with known calls, and their kinds."""
    events = trace.events
    of_name = np.array([*(_KINDS.get(name, MISSING) for name in trace.names), MISSING], np.int8)
    rows = np.flatnonzero((events.category == Category.SYNC) & events.has_call)
    kind = of_name[events.name[rows]]
    wanted = np.isin(kind, kinds)
    return rows[wanted], kind[wanted]


def _before_events(trace: RankTrace, work: StreamWork, kind: _SyncKind, *, by_call: bool = True) -> _Waits:
    """Waits for an event: each for the last work that the event's stream was asked for before it was recorded."""
    events = trace.events
    rows, _ = _syncs(trace, (kind,))
    recorded = _recorded_at(trace, events.recorded_by[rows])
    found = np.full(len(rows), MISSING)
    for here in _by_stream(work, events.has_call[work.event]):
        of_stream = _concerning(trace, work.event[here[0]], rows, events.recorded_stream[rows])
        concerned = np.flatnonzero((recorded != MISSING) & of_stream)
        order = np.argsort(work.asked[here], kind="stable")
        number = np.searchsorted(work.asked[here][order], recorded[concerned], side="right")
        found[concerned[number > 0]] = here[order[number[number > 0] - 1]]
    good = found != MISSING
    return found[good], (events.call[rows] if by_call else rows)[good].astype(np.intp)


def _recorded_at(trace: RankTrace, correlation: Int64) -> Int64:
    """Instant at which the call with a correlation recorded its event, or missing."""
    events = trace.events
    calls = np.flatnonzero((call_kinds(trace) == CallKind.EVENT_RECORD) & (events.correlation > 0))
    place = first_with(events.correlation[calls], correlation)
    return np.where(place != MISSING, np.append(events.start[calls], MISSING)[place], MISSING)


def _by_stream(work: StreamWork, which: Bool) -> list[NDArray[np.intp]]:
    """Positions of each stream's work, in the order in which it began."""
    positions = np.flatnonzero(which)
    if not positions.size:
        return []
    stream = work.stream[positions]
    return np.split(positions, np.flatnonzero(stream[1:] != stream[:-1]) + 1)


def _concerning(trace: RankTrace, work: np.intp, syncs: NDArray[np.intp], stream: Int32) -> Bool:
    """Mask of synchronisations that concern the stream of some work, each on a stream of its device or of any."""
    events = trace.events
    device = events.device[syncs]
    found: Bool = ((device == events.device[work]) | (device == MISSING)) & (stream == events.stream[work])
    return found
