"""RecordClock: times of CUPTI's records as monotonic nanoseconds."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: More than clocks drift apart between two readings, nanoseconds: the wall clock was set.
STEP_NS = 1_000_000

#: A clock within this of the wall clock counts its nanoseconds.
_NEAR_NS = 60_000_000_000


class Reading(NamedTuple):
    """Two clocks at one instant."""

    #: As records have it.
    record: int
    #: Monotonic nanoseconds.
    monotonic: int


class RecordClock:
    """Converts by a line through readings of both clocks.

    CUPTI's clock is the wall clock by default, and after a ``torch.profiler`` has run the processor's counter of ticks,
    whose rate is then measured from the first reading on.

    Parameters
    ----------
    first
        Taken before any record.
    wall
        The wall clock then, nanoseconds.
    """

    def __init__(self, first: Reading, *, wall: int) -> None:
        self._first = self._last = first
        self._in_nanoseconds = abs(first.record - wall) < _NEAR_NS
        self._rate = 1.0

    def read(self, now: Reading) -> bool:
        """Take a reading; whether the record clock jumped since the last, so that times in between are uncertain."""
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
        """Times of records as monotonic nanoseconds, by the last reading."""
        since = times.astype(np.int64) - self._last.record
        if not self._in_nanoseconds:
            since = np.rint(since * self._rate).astype(np.int64)
        return since + self._last.monotonic
