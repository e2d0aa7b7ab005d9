"""StreamWork: the work on a GPU in the order of its streams, and how much was outstanding when it was asked for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Int64
from dask_efficiency.torch_traces.kineto.trace import RankTrace
from dask_efficiency.torch_traces.path.lanes import in_one_order, pairs_ranked


class StreamWork(NamedTuple):
    """Work on the GPUs, one stream after the other, and on each in the order in which it began."""

    #: Row of the trace.
    event: NDArray[np.intp]
    #: Number of its stream; streams of different devices are different.
    stream: NDArray[np.intp]
    #: When it was asked for, nanoseconds; when it began where no call is known.
    asked: Int64
    start: Int64

    def take(self, which: NDArray[np.bool_]) -> StreamWork:
        """Some of it."""
        return StreamWork(*(column[which] for column in self))


def stream_work(trace: RankTrace) -> StreamWork:
    """All work on GPUs of a trace."""
    events = trace.events
    rows = np.flatnonzero(events.is_gpu_work)
    stream = pairs_ranked(events.device[rows], events.stream[rows])
    start = events.start[rows]
    order = np.lexsort((start, stream))
    rows, stream, start = rows[order], stream[order], start[order]
    call = events.call[rows]
    return StreamWork(rows, stream, np.where(call != MISSING, events.start[call], start), start)


def alone_in_queue(trace: RankTrace, work: StreamWork) -> Bool:
    """Whether a stream had nothing to do when each work was asked for, and nothing more when it began.

    What one call asked for on a stream is outstanding once: from the call until the first of it begins. Only that
    first one can have been alone.

    References
    ----------
    Queue length: HTA (``traceinsight`` 0.6.1), ``TraceCounters``. We differ: it is counted for each stream of each
    device, whatever the call's name, while HTA takes streams of different devices for one and knows a list of names,
    without those that launch graphs; of instants that are equal, calls come before work, while HTA's order of them is
    that of a sort that is not stable.
    """
    call = trace.events.call[work.event]
    known = np.flatnonzero(call != MISSING)
    groups = pairs_ranked(work.stream[known], call[known])
    # the work is in the order of streams and times, so that the first of a group is the one that begins first
    first = known[np.unique(groups, return_index=True)[1]]
    asked, began = in_one_order((work.stream[first], work.asked[first]), (work.stream[first], work.start[first]))
    calls, starts = np.sort(asked), np.sort(began)
    # both are sorted by stream, so what is of streams before this one is in both counts
    when_asked = np.searchsorted(calls, asked, side="right") - np.searchsorted(starts, asked, side="left")
    when_began = np.searchsorted(calls, began, side="right") - np.searchsorted(starts, began, side="right")
    alone = np.zeros(len(work.event), np.bool_)
    alone[first] = (when_asked == 1) & (when_began == 0)
    return alone


def previous_on_stream(work: StreamWork) -> NDArray[np.intp]:
    """For each work the position of the one before it on its stream, or missing."""
    position = np.arange(len(work.event)) - 1
    position[1:][work.stream[1:] != work.stream[:-1]] = MISSING
    return position
