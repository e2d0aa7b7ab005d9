"""Waits of calls and streams, from the synchronisations that CUPTI recorded."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Int32
from dask_efficiency.torch_traces.kineto.numbers import first_with
from dask_efficiency.torch_traces.kineto.trace import Category, RankTrace
from dask_efficiency.torch_traces.path.graph import Edges, Nodes, waits_as_edges
from dask_efficiency.torch_traces.path.lanes import comparable_keys, rank_pairs
from dask_efficiency.torch_traces.path.roles import CallKind, call_kinds, events_named
from dask_efficiency.torch_traces.path.streams import StreamWork, last_of_calls

#: Kineto's names of waits of calls for all streams of a device, for a stream, and for the work before a recorded event;
#: and of waits of a stream for such work.
_CONTEXT, _STREAM, _EVENT, _STREAM_WAIT = "Context Sync", "Stream Sync", "Event Sync", "Stream Wait Event"

#: Pairs of work and what waited for its end: positions in the work on streams, and rows of calls or positions of work.
_Waits = tuple[NDArray[np.intp], NDArray[np.intp]]


def sync_edges(trace: RankTrace, work: StreamWork, nodes: Nodes, positions: tuple[Int32, Int32]) -> Edges:
    """Edges of all recorded synchronisations, to work and to the ends of calls; from the work of the whole trace."""
    starts, stops = positions
    sources, held_back = waits_of_streams(trace, work)
    others, calls = _waits_of_calls(trace, work, starts[work.event] != MISSING)
    target = np.concatenate([starts[work.event[held_back]], stops[calls]])
    return waits_as_edges(stops[work.event[np.concatenate([sources, others])]], target, inferred=False)


def _waits_of_calls(trace: RankTrace, work: StreamWork, in_region: Bool) -> _Waits:
    """Work that each waiting call waited for: the last on a stream to begin before the wait ended and end before it.

    If that is of a CUDA graph, also for the last work of the graph to end, on any stream. HTA's
    ``_construct_graph_from_kernels`` takes a context for all devices, and the last one that began, even if it
    ended later than the call.
    """
    events = trace.events
    syncs = _syncs(trace, _CONTEXT, _STREAM)
    of_context, waited_on = events_named(trace, _CONTEXT.__eq__)[syncs], events.stream[syncs]
    pairs = [_before_events(trace, work, _EVENT)]
    for here in _by_stream(work, in_region):
        stream = events.stream[work.event[here[0]]]
        on_stream = np.where(of_context, stream, waited_on)
        concerned = syncs[_concerning(trace, work.event[here[0]], syncs, on_stream)]
        call = events.call[concerned]
        begun = np.searchsorted(work.start[here], events.stop[concerned], side="left")
        ended = np.searchsorted(np.maximum.accumulate(events.stop[work.event[here]]), events.stop[call], side="right")
        number = np.minimum(begun, ended)
        pairs.append((here[number[number > 0] - 1], call[number > 0].astype(np.intp)))
    waits, calls = (np.concatenate(part) for part in zip(*pairs, strict=True))
    place = np.full(len(events), MISSING)
    place[work.event] = np.arange(len(work.event))
    whole = place[last_of_calls(events, work.event[waits])]
    more = whole != waits
    return np.concatenate([waits, whole[more]]), np.concatenate([calls, calls[more]])


def waits_of_streams(trace: RankTrace, work: StreamWork) -> _Waits:
    """Waits of work on one stream for work on another, after a call that made the stream wait for an event.

    The next work that the call's thread asks for on that stream begins only after the work from before the recorded
    event has ended; HTA's ``_get_cuda_stream_wait_event_df`` keeps only the last stream of several.
    """
    events = trace.events
    sources, syncs = _before_events(trace, work, _STREAM_WAIT, by_call=False)
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


def _syncs(trace: RankTrace, *names: str) -> NDArray[np.intp]:
    """Rows of the synchronisations of some names with known calls."""
    events = trace.events
    return np.flatnonzero(
        (events.category == Category.SYNC) & events.has_call & events_named(trace, names.__contains__)
    )


def _before_events(trace: RankTrace, work: StreamWork, name: str, *, by_call: bool = True) -> _Waits:
    """Waits for an event: each for the last work that the event's stream was asked for before it was recorded."""
    events = trace.events
    rows = _syncs(trace, name)
    # instant at which the call with that correlation recorded its event
    records = np.flatnonzero((call_kinds(trace) == CallKind.EVENT_RECORD) & (events.correlation > 0))
    place = first_with(events.correlation[records], events.recorded_by[rows])
    recorded = np.where(place != MISSING, np.append(events.start[records], MISSING)[place], MISSING)
    awaited = np.full(len(rows), MISSING)
    for here in _by_stream(work, events.has_call[work.event]):
        of_stream = _concerning(trace, work.event[here[0]], rows, events.recorded_stream[rows])
        concerned = np.flatnonzero((recorded != MISSING) & of_stream)
        order = np.argsort(work.asked[here], kind="stable")
        number = np.searchsorted(work.asked[here][order], recorded[concerned], side="right")
        awaited[concerned[number > 0]] = here[order[number[number > 0] - 1]]
    good = awaited != MISSING
    return awaited[good], (events.call[rows] if by_call else rows)[good].astype(np.intp)


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
    concerning: Bool = ((device == events.device[work]) | (device == MISSING)) & (stream == events.stream[work])
    return concerning
