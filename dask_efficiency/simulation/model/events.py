"""EventHeap: virtual time, and what is to happen in it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from heapq import heappop, heappush
from typing import Any


class EventHeap:
    """A clock that jumps from one event to the next; events of one instant happen in the order of their making."""

    __slots__ = ("_events", "_made", "now", "seconds")

    def __init__(self, now: int = 0) -> None:
        #: Nanoseconds, and the same instant in seconds.
        self.now, self.seconds = now, now / 1e9
        self._events: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._made = 0

    def __len__(self) -> int:
        return len(self._events)

    def clear(self) -> None:
        """Nothing is to happen any more."""
        self._events.clear()

    def at(self, when: int, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function at an instant, or now if that has passed."""
        self._made = made = self._made + 1
        now = self.now
        heappush(self._events, (when if when > now else now, made, function, arguments))

    def step(self) -> bool:
        """Let the next event happen; whether there was one."""
        if not self._events:
            return False
        now, _, function, arguments = heappop(self._events)
        self.now, self.seconds = now, now / 1e9
        function(*arguments)
        return True

    def steps(self, count: int) -> bool:
        """Let so many events happen; whether there were as many."""
        events = self._events
        for _ in range(count):
            if not events:
                return False
            now, _, function, arguments = heappop(events)
            self.now, self.seconds = now, now / 1e9
            function(*arguments)
        return True

    def run(self, left: Collection[object]) -> bool:
        """Let events happen until a collection is empty; whether it is.

        Parameters
        ----------
        left
            What is waited for.
        """
        events = self._events
        while left and events:
            now, _, function, arguments = heappop(events)
            self.now, self.seconds = now, now / 1e9
            function(*arguments)
        return not left
