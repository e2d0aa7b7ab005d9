"""StreamWork: the work on a GPU by stream, the queues of streams, and the edges of the graph that follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Column, ColumnTable, Int32, Int64
from dask_efficiency.torch_traces.kineto.numbers import mask_of
from dask_efficiency.torch_traces.kineto.trace import Events, RankTrace
from dask_efficiency.torch_traces.path.graph import EdgeKind, Edges, Nodes
from dask_efficiency.torch_traces.path.lanes import comparable_keys, rank_pairs

#: Nanoseconds from which on a gap on a stream has another cause than the GPU: kernels are about 10 us apart,
#: collectives up to 1 ms (HTA, ``KERNEL_KERNEL_DELAY_THRESHOLD_US``).
MAX_KERNEL_DELAY = 1_500_000

#: An instant before all others.
NEVER = np.iinfo(np.int64).min


class StreamWork(NamedTuple):
    """Work on GPUs by stream, then in the order in which it began."""

    #: Row of the trace.
    event: NDArray[np.intp]
    #: Number of its stream, over all devices.
    stream: NDArray[np.intp]
    #: Instant of its call, nanoseconds; without a call, its start.
    asked: Int64
    start: Int64

    def take(self, which: NDArray[Any]) -> StreamWork:
        """Rows by position or mask."""
        return StreamWork(*(column[which] for column in self))


def stream_work(trace: RankTrace) -> StreamWork:
    """All work on GPUs of a trace."""
    events = trace.events
    rows = np.flatnonzero(events.is_gpu_work)
    stream, start, call = rank_pairs(events.device[rows], events.stream[rows]), events.start[rows], events.call[rows]
    asked = np.where(call != MISSING, events.start[call], start)
    return StreamWork(rows, stream, asked, start).take(np.lexsort((start, stream)))


def alone_in_queue(trace: RankTrace, work: StreamWork) -> Bool:
    """Mask of works whose stream was idle when they were asked for, and had nothing else queued when they began.

    All work of one call on a stream is outstanding once, until the first of it begins, and only that can be alone.
    Unlike in HTA's ``TraceCounters``, each stream of each device has its queue, whatever the call's name; of instants
    that are equal, calls come before work.
    """
    call = trace.events.call[work.event]
    known = np.flatnonzero(call != MISSING)
    groups = rank_pairs(work.stream[known], call[known])
    # work is sorted by stream and time, so the first of a group begins first
    first = known[np.unique(groups, return_index=True)[1]]
    asked, began = comparable_keys((work.stream[first], work.asked[first]), (work.stream[first], work.start[first]))
    calls, starts = np.sort(asked), np.sort(began)
    # both are sorted by stream, so earlier streams cancel out
    when_asked = np.searchsorted(calls, asked, side="right") - np.searchsorted(starts, asked, side="left")
    when_began = np.searchsorted(calls, began, side="right") - np.searchsorted(starts, began, side="right")
    return mask_of(first[(when_asked == 1) & (when_began == 0)], len(work.event))


def last_of_calls(events: Events, work: NDArray[np.integer]) -> NDArray[np.integer]:
    """For some works, the one that ended last of what their calls asked for; missing for missing ones.

    A CUDA graph is one call with work on several streams, and what comes after it on its own waits for all of that.
    """
    rows = np.flatnonzero(events.is_gpu_work & events.has_call)
    rows = rows[np.argsort(events.stop[rows], kind="stable")]
    last = np.full(len(events) + 1, MISSING, np.int64)
    last[events.call[rows]] = rows
    known = (work != MISSING) & events.has_call[work]
    return np.where(known, last[events.call[work]], work)


@dataclass(frozen=True, slots=True, repr=False)
class QueueLengths(ColumnTable):
    """A row for each change, by device, stream and time; a length holds until the stream's next row."""

    #: On the rank's clock.
    at: Annotated[Int64, Column(unit="nanoseconds")]
    device: Int32
    stream: Int32
    length: Int32


def queue_lengths(trace: RankTrace) -> QueueLengths:
    """Count the launches that each stream had not begun: a row where a call for work begins, and where the work does.

    Calls come first at equal times. The one call of a CUDA graph asks for all its kernels. HTA's
    ``get_queue_length_time_series`` mixes devices, and counts calls of some names only.
    """
    events = trace.events
    rows = np.flatnonzero(events.is_gpu_work & events.has_call)
    at = np.concatenate([events.start[events.call[rows]], events.start[rows]])
    change = np.repeat(np.array([1, -1], np.int32), len(rows))
    device, stream = np.tile(events.device[rows], 2), np.tile(events.stream[rows], 2)
    order = np.lexsort((-change, at, stream, device))
    at, change, device, stream = at[order], change[order], device[order], stream[order]
    first = np.flatnonzero((np.diff(device, prepend=-2) != 0) | (np.diff(stream, prepend=-2) != 0))
    length = np.cumsum(change, dtype=np.int64)
    length -= np.repeat((length - change)[first], np.diff(np.append(first, len(change))))
    return QueueLengths(at, device, stream, length.astype(np.int32))


def work_edges(
    trace: RankTrace, nodes: Nodes, positions: tuple[Int32, Int32], work: StreamWork, alone: Bool, waited: Int64
) -> list[Edges]:
    """Build the edges to and within the work of a region, as HTA's ``_construct_graph_from_kernels``.

    A kernel's delay belongs to its launch if its stream was idle when it was asked for, and nothing else was asked for
    until it began. Otherwise the kernel before it on its stream delayed it, unless it waited for another stream or the
    gap reaches :data:`MAX_KERNEL_DELAY`. In any case it did not begin before it was asked for. ``waited`` is the end of
    the work on other streams that it waited for, or :data:`NEVER`.
    """
    starts, stops = positions
    before = np.arange(len(work.event)) - 1
    has_before = before >= 0
    has_before[1:] &= work.stream[1:] == work.stream[:-1]
    ended = np.where(has_before, trace.events.stop[work.event[before]], NEVER)
    call = trace.events.call[work.event]
    has_call = (call != MISSING) & (starts[call] != MISSING)
    launched = alone & has_call & (ended < work.asked) & (waited < work.asked)
    late = has_call & ~launched
    delayed = ~launched & has_before & (work.start - ended < MAX_KERNEL_DELAY) & (waited < ended)
    begins, last = starts[work.event], work.event[before]

    def edges(kind: EdgeKind, source: Int32, target: Int32, event: NDArray[np.intp] | int = MISSING) -> Edges:
        return Edges.of(source, target, kind, nodes.at[target] - nodes.at[source], event)

    return [
        edges(EdgeKind.OPERATOR, begins, stops[work.event], work.event),
        edges(EdgeKind.LAUNCH_DELAY, starts[call[launched]], begins[launched]),
        edges(EdgeKind.KERNEL_DELAY, stops[last[delayed]], begins[delayed], last[delayed]),
        Edges.of(starts[call[late]], begins[late], EdgeKind.LAUNCH_DELAY, 0),
    ]
