"""EventHeap: virtual time, and what is to happen in it."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class EventHeap:
    """A clock that jumps from one event to the next; events of one instant happen in the order of their making."""

    def __init__(self, now: int = 0) -> None:
        #: Nanoseconds.
        self.now = now
        self._events: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._made = 0

    def __len__(self) -> int:
        return len(self._events)

    def at(self, when: int, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function at an instant, or now if that has passed."""
        self._made += 1
        heappush(self._events, (max(when, self.now), self._made, function, arguments))

    def step(self) -> bool:
        """Let the next event happen; whether there was one."""
        if not self._events:
            return False
        self.now, _, function, arguments = heappop(self._events)
        function(*arguments)
        return True
