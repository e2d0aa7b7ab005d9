"""Messages between processes: event loops that do one thing after the other, and streams that send in batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dask_efficiency.simulation.events import EventHeap


class Loop:
    """An event loop: what comes while it is busy waits its turn."""

    def __init__(self, clock: EventHeap) -> None:
        self._clock = clock
        self._free = 0

    def do(self, ns: int, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function after the loop has spent so long on it."""
        self._free = max(self._free, self._clock.now) + ns
        self._clock.at(self._free, function, *arguments)


class Stream:
    """Dask's ``BatchedSend`` in virtual time: what is sent within an interval after a batch travels together after it.

    Parameters
    ----------
    interval
        Nanoseconds between two batches.
    """

    def __init__(self, clock: EventHeap, interval: int) -> None:
        self._clock, self._interval = clock, interval
        self._buffer: list[Any] = []
        self._next, self._planned = 0, False
        self._way = 0
        self._receive: Callable[[list[Any]], object] = _nobody

    def connect(self, way: int, receive: Callable[[list[Any]], object]) -> None:
        """Deliver batches to a receiver; they travel for so many nanoseconds."""
        self._way, self._receive = way, receive

    def send(self, *messages: Any) -> None:
        """Send messages."""
        self._buffer.extend(messages)
        if self._buffer and not self._planned:
            self._planned = True
            self._clock.at(self._next, self._flush)

    def _flush(self) -> None:
        batch, self._buffer, self._planned = self._buffer, [], False
        self._next = self._clock.now + self._interval
        self._clock.at(self._clock.now + self._way, self._receive, batch)

    def closed(self) -> bool:
        """Whether nothing can be sent."""
        return False

    def abort(self) -> None:
        """Nothing is sent any more."""
        self._buffer.clear()


def _nobody(batch: list[Any]) -> None:
    """Nobody is connected."""
