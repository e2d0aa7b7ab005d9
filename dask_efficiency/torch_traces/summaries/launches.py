"""Launch statistics by stream: delays of launches, kernels shorter than their launch, and queues over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import Column, ColumnTable, Float64, Int32, Int64
from dask_efficiency.torch_traces.kineto.trace import Category, RankTrace
from dask_efficiency.torch_traces.path.lanes import rank_pairs
from dask_efficiency.torch_traces.path.streams import QueueLengths, queue_lengths

#: Launches of one stream that CUDA holds; a launch beyond waits (HTA, ``CUDA_MAX_LAUNCH_QUEUE_PER_STREAM``).
FULL_QUEUE = 1024

#: Nanoseconds below which a kernel is tiny: asking for it takes about as long.
TINY = 10_000

#: Parts of a window of which a page shows the queues.
BINS = 120


@dataclass(frozen=True, slots=True, repr=False)
class StreamLaunches(ColumnTable):
    """A row for each stream, of the work whose call was recorded."""

    device: Int32
    stream: Int32
    works: Int32
    #: From the return of the call to the start of the work, 0 where it began earlier; as in HTA's
    #: ``get_cuda_kernel_launch_stats``.
    delay_median: Annotated[Int64, Column(unit="nanoseconds")]
    delay_p95: Annotated[Int64, Column(unit="nanoseconds")]
    delay_max: Annotated[Int64, Column(unit="nanoseconds")]
    #: Duration of the calls.
    call_median: Annotated[Int64, Column(unit="nanoseconds")]
    #: Number of works that took less time than their call.
    shorter: Int32
    #: Number of kernels, and of those below :data:`TINY`.
    kernels: Int32
    tiny: Int32
    #: Works that were asked for and had not begun: mean over time from the stream's first call to its last work, and
    #: most.
    queue_mean: Float64
    queue_max: Int32
    #: Time with :data:`FULL_QUEUE` of them or more.
    full: Annotated[Int64, Column(unit="nanoseconds")]


def launches_of(trace: RankTrace) -> StreamLaunches:
    """Launch statistics of a rank's streams."""
    events, queues = trace.events, queue_lengths(trace)
    rows = np.flatnonzero(events.is_gpu_work & events.has_call)
    stream = rank_pairs(events.device[rows], events.stream[rows])
    order = np.argsort(stream, kind="stable")
    begins = np.flatnonzero(np.diff(stream[order], prepend=-1))
    of_queue = np.flatnonzero((np.diff(queues.device, prepend=-2) != 0) | (np.diff(queues.stream, prepend=-2) != 0))
    found = [
        (*_of_stream(trace, mine), *_of_queue(queues.take(its)))
        for mine, its in zip(
            np.split(rows[order], begins[1:]), np.split(np.arange(len(queues)), of_queue[1:]), strict=True
        )
        if len(mine)
    ]
    return (
        StreamLaunches(*(np.array(column) for column in zip(*found, strict=True))) if found else StreamLaunches.empty()
    )


def _of_stream(trace: RankTrace, rows: NDArray[np.intp]) -> tuple[int, ...]:
    events = trace.events
    call = events.call[rows]
    took, lasts = events.stop[call] - events.start[call], events.stop[rows] - events.start[rows]
    delay = np.maximum(events.start[rows] - events.stop[call], 0)
    kernels = events.category[rows] == Category.KERNEL
    return (
        *(int(events.device[rows[0]]), int(events.stream[rows[0]]), len(rows)),
        *(int(np.median(delay)), int(np.percentile(delay, 95)), int(delay.max()), int(np.median(took))),
        *(int((lasts < took).sum()), int(kernels.sum()), int((kernels & (lasts < TINY)).sum())),
    )


def _of_queue(queue: QueueLengths) -> tuple[float, int, int]:
    """Mean and largest length of one stream's queue, and nanoseconds for which it was full."""
    lasts = np.diff(queue.at)
    whole = int(lasts.sum())
    mean = float((queue.length[:-1] * lasts).sum()) / whole if whole else 0.0
    return mean, int(queue.length.max()), int(lasts[queue.length[:-1] >= FULL_QUEUE].sum())


def queue_through(trace: RankTrace, window: tuple[int, int]) -> Float64:
    """Mean number of works that all streams together were asked for and had not begun, in equal parts of a window."""
    events = trace.events
    rows = np.flatnonzero(events.is_gpu_work & events.has_call)
    start, length = window[0], max(window[1] - window[0], 1)
    edges: Int64 = start + np.arange(BINS + 1, dtype=np.int64) * length // BINS
    asked, began = (np.sort(at) for at in (events.start[events.call[rows]], events.start[rows]))
    waited = _since(asked, edges) - _since(began, edges)
    mean: Float64 = np.diff(waited) / np.maximum(np.diff(edges), 1)
    return mean


def _since(instants: Int64, edges: Int64) -> Float64:
    """Sum of the times from each sorted instant to each edge that is later."""
    before = np.searchsorted(instants, edges)
    past = np.concatenate([[0.0], np.cumsum(instants - edges[0], dtype=np.float64)])
    sums: Float64 = before * (edges - edges[0]).astype(np.float64) - past[before]
    return sums
