"""LoopWatch: when an event loop did not turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic_ns

#: How often the loop is asked to turn.
INTERVAL_NS = 10_000_000

#: A turn that is later than this is reported.
LATE_NS = 10_000_000


class LoopWatch:
    """Asks the running event loop to turn every 10 ms, and reports when it was late by another 10 ms.

    Parameters
    ----------
    blocked
        Called with the interval, nanoseconds of the monotonic clock. Its start lies between the last
        turn and the one that was due: the middle is reported.
    """

    def __init__(self, blocked: Callable[[int, int], object]) -> None:
        self._blocked = blocked
        self._loop = asyncio.get_running_loop()
        self._due = monotonic_ns() + INTERVAL_NS
        self._timer = self._loop.call_later(INTERVAL_NS / 1e9, self._turn)

    def stop(self) -> None:
        """Watch no more."""
        self._timer.cancel()

    def _turn(self) -> None:
        now = monotonic_ns()
        if now - self._due > LATE_NS:
            self._blocked(self._due - INTERVAL_NS // 2, now)
        self._due = now + INTERVAL_NS
        self._timer = self._loop.call_later(INTERVAL_NS / 1e9, self._turn)
