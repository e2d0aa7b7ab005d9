"""EventHeap: virtual time and its events."""

from __future__ import annotations

from collections.abc import Callable, Collection
from heapq import heappop, heappush
from typing import Any


class EventHeap:
    """Clock that jumps from one event to the next; events of one instant happen in the order of their scheduling."""

    __slots__ = ("_events", "_made", "now", "periodic", "seconds")

    def __init__(self, now: int = 0) -> None:
        #: Nanoseconds, and the same instant in seconds.
        self.now, self.seconds = now, now / 1e9
        self._events: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._made = 0
        #: Number of functions that are called periodically.
        self.periodic = 0

    def __len__(self) -> int:
        return len(self._events)

    def clear(self) -> None:
        """Drop all events."""
        self._events.clear()

    def at(self, when: int, function: Callable[..., object], *arguments: Any) -> None:
        """Schedule a call at an instant, or now if that has passed."""
        self._made = made = self._made + 1
        now = self.now
        heappush(self._events, (when if when > now else now, made, function, arguments))

    def every(self, interval: int, function: Callable[[], object], goes_on: Callable[[], bool] = lambda: True) -> None:
        """Call a function periodically, as long as a condition holds."""
        self.periodic += 1

        def again() -> None:
            if not goes_on():
                self.periodic -= 1
                return
            function()
            self.at(self.now + interval, again)

        self.at(self.now + interval, again)

    def step(self) -> bool:
        """Process the next event; False if there was none."""
        return self.steps(1)

    def steps(self, count: int) -> bool:
        """Process a number of events; False if there were fewer."""
        events = self._events
        for _ in range(count):
            if not events:
                return False
            now, _, function, arguments = heappop(events)
            self.now, self.seconds = now, now / 1e9
            function(*arguments)
        return True

    def run(self, left: Collection[object] = (True,)) -> bool:
        """Process events until they have emptied a collection; False if they end before. By default, process all."""
        events = self._events
        while left and events:
            now, _, function, arguments = heappop(events)
            self.now, self.seconds = now, now / 1e9
            function(*arguments)
        return not left
