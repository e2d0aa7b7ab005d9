"""RecordClock: converts the times of CUPTI's records to monotonic nanoseconds."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Clocks drift less than this between two readings, nanoseconds; if they differ by more, the wall clock was set.
STEP_NS = 1_000_000

#: A clock that differs by less than this from the wall clock counts the same nanoseconds.
_NEAR_NS = 60_000_000_000


class ClockPair(NamedTuple):
    """The times of two clocks at one instant."""

    #: By the clock of the records.
    record: int
    #: Monotonic nanoseconds.
    monotonic: int


class RecordClock:
    """Converts times along a line through readings of both clocks.

    CUPTI's clock is the wall clock by default. After a ``torch.profiler`` has run it is the processor's counter of
    ticks, whose rate is then measured from the first reading on.

    Parameters
    ----------
    first
        A reading from before any record.
    wall
        The wall clock at that time, nanoseconds.
    """

    def __init__(self, first: ClockPair, *, wall: int) -> None:
        self._first = self._last = first
        self._in_nanoseconds = abs(first.record - wall) < _NEAR_NS
        self._rate = 1.0

    def read(self, now: ClockPair) -> bool:
        """Take a reading; True if the record clock has jumped since the last, so times in between are uncertain."""
        ahead, passed = now.record - self._last.record, now.monotonic - self._last.monotonic
        stepped = self._last is not self._first or self._in_nanoseconds
        stepped = stepped and abs(ahead * self._rate - passed) > STEP_NS + 1e-4 * passed
        if stepped:
            self._first = now
        elif not self._in_nanoseconds and now.record > self._first.record:
            self._rate = (now.monotonic - self._first.monotonic) / (now.record - self._first.record)
        self._last = now
        return stepped

    def monotonic(self, times: NDArray[Any]) -> NDArray[np.int64]:
        """Times of records as monotonic nanoseconds, according to the readings so far."""
        since = times.astype(np.int64) - self._last.record
        if not self._in_nanoseconds:
            since = np.rint(since * self._rate).astype(np.int64)
        return since + self._last.monotonic
