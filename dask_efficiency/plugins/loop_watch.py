"""LoopWatch: when an event loop did not turn."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from dask_efficiency.plugins.data_moves import DataMoves

#: A turn that is later than this is reported.
LATE_NS = 10_000_000


class LoopWatch:
    """Reports when a server's event loop was late for Dask's own tick, of every 20 ms, by another 10 ms.

    A timer of our own would wake an idle process up, which costs more than all else that is recorded.
    Where upstream has no such tick any more, nothing is reported and nothing breaks.

    Parameters
    ----------
    server
        A scheduler or a worker.
    blocked
        Called with the interval, nanoseconds of the monotonic clock, and with how many of them went
        to the moving of data. Its start lies between the last tick and the one that was due: the middle is reported.
    """

    def __init__(self, server: Any, blocked: Callable[[int, int, int], object]) -> None:
        self._blocked = blocked
        self._tick = getattr(server, "periodic_callbacks", {}).get("tick")
        self._last = monotonic_ns()
        self._moves: DataMoves | None = None
        if self._tick is not None:
            self._interval = round(self._tick.callback_time * 1e6)
            self._original = self._tick.callback
            self._wrapper = self._turn
            self._tick.callback = self._wrapper
            self._moves = DataMoves()

    def stop(self) -> None:
        """Watch no more."""
        if self._tick is not None and self._tick.callback is self._wrapper:
            self._tick.callback = self._original
        moves, self._moves = self._moves, None
        if moves is not None:
            moves.close()

    def _turn(self) -> Any:
        now = monotonic_ns()
        moves = self._moves
        if moves is not None:
            moving = moves.turn(now - self._last)
            start = self._last + self._interval // 2
            if now - self._last - self._interval > LATE_NS:
                self._blocked(start, now, min(moving, now - start))
        self._last = now
        return self._original()
