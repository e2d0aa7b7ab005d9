"""Enqueued: what the streams of a rank's GPUs were asked for, and when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Int32, Int64
from dask_efficiency.torch_traces.kineto.trace import Events, RankTrace
from dask_efficiency.torch_traces.path.lanes import by_thread, pairs_ranked

_Rows = NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class Enqueued:
    """Work on GPUs whose call is known, a row each, by stream and then in the order of the calls."""

    #: Rows of the work in the trace.
    work: Int32
    #: Number of its stream, over all devices.
    stream: Int64
    #: When it was asked for, nanoseconds.
    at: Int64
    #: When it and all work before it on its stream had ended, nanoseconds.
    ended: Int64
    #: Where each stream's work begins in these columns, and where the last one's ends.
    first: Int64
    events: Events

    @classmethod
    def of(cls, trace: RankTrace) -> Self:
        """What a rank's streams were asked for."""
        events = trace.events
        rows = np.flatnonzero(events.is_gpu_work & (events.call != MISSING)).astype(np.int32)
        stream = pairs_ranked(events.device[rows], events.stream[rows]).astype(np.int64)
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
        """How many there are."""
        return len(self.first) - 1

    def last(self, stream: int, at: Int64) -> Int64:
        """The work that a stream was asked for last before some instants; missing if it was asked for nothing."""
        start, stop = self.first[stream : stream + 2].tolist()
        which = np.searchsorted(self.at[start:stop], at) - 1
        return (
            np.where(which >= 0, self.work[start:stop][which], MISSING) if stop > start else np.full(len(at), MISSING)
        )

    def last_of_each(self, stream: Int64, at: Int64) -> Int64:
        """The same of a stream for each instant; missing where the stream is."""
        work = np.full(len(at), MISSING)
        for number in np.unique(stream[stream != MISSING]).tolist():
            here = stream == number
            work[here] = self.last(number, at[here])
        return work

    def last_ended(self, at: Int64, until: Int64) -> Int64:
        """Of the last work of each stream before some instants, what ended last but not after others."""
        work, ended = np.full(len(at), MISSING), np.full(len(at), MISSING)
        for stream in range(self.streams):
            last = self.last(stream, at)
            known = last != MISSING
            known[known] = self.events.stop[last[known]] <= until[known]
            known[known] = self.events.stop[last[known]] > ended[known]
            work[known], ended[known] = last[known], self.events.stop[last[known]]
        return work

    def last_ended_of(self, stream: Int64, at: Int64, until: Int64) -> Int64:
        """Of the work that streams were asked for before some instants, the last that ended not after others."""
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
        """How much of what streams had been asked for had not ended at some instants."""
        count = np.zeros(len(at), np.int64)
        for number in np.unique(stream).tolist():
            start, stop = self.first[number : number + 2].tolist()
            here = stream == number
            count[here] = np.searchsorted(self.at[start:stop], at[here])
            count[here] -= np.searchsorted(self.ended[start:stop], at[here], side="right")
        return count

    def stream_of(self, work: _Rows) -> Int64:
        """The stream of some rows of the trace."""
        numbers = np.full(len(self.events), MISSING, np.int64)
        numbers[self.work] = self.stream
        return numbers[work]

    def used_by(self, asking: _Rows, at: Int64) -> Int64:
        """The stream that each call's thread last asked for something before an instant; missing if it did not."""
        found = np.full(len(at), MISSING)
        for here, mine in self._of_threads(asking):
            which = np.searchsorted(self.at[mine], at[here]) - 1
            found[here[which >= 0]] = self.stream[mine[which[which >= 0]]]
        return found

    def next_of_thread(self, asking: _Rows, at: Int64, other_than: Int64) -> Int64:
        """The work that each call's thread asked for next after an instant; missing if there is none.

        Parameters
        ----------
        other_than
            Streams that are passed over; missing for none.
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
        """For each thread, which of some rows are on it, and what it asked for, in order of time."""
        for here, mine in by_thread(self.events, asking, self.events.call[self.work]):
            yield here, mine[np.argsort(self.at[mine], kind="stable")]
