"""Messages between simulated processes: event loops that take turns, and streams that send in batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from dask_efficiency.simulation.model.cores import HostCores
from dask_efficiency.simulation.model.events import EventHeap

#: Most nanoseconds of a core that a batch of messages needs, on both sides together; time beyond that is waiting. Two
#: processes that sent 100 to 1,000 a second took 450,000 to 550,000 of CPU on a busy machine; of 250,000 to 500,000,
#: which changed predictions little, this one has the tasks of unchanged runs take as long as they did.
ON_CORE = 400_000


class Loop:
    """Event loop: work that arrives while it is busy waits its turn; its host has enough cores if none are given."""

    def __init__(self, clock: EventHeap, cores: HostCores | None = None) -> None:
        self._clock = clock
        self.cores = cores or HostCores(clock)
        self._waiting: deque[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = deque()
        self._busy = False
        #: Instant until which the work that it has begun keeps it busy.
        self.until = 0
        self._when_idle: list[Callable[[], object]] = []

    def do(self, ns: int, function: Callable[..., object], *arguments: Any, idly: int = 0) -> None:
        """Call a function after the loop has computed for ``ns``, and waited for ``idly`` more."""
        self._waiting.append((ns, idly, function, arguments))
        if not self._busy:
            self._next()

    def spend(self, ns: int) -> None:
        """Keep the loop busy for longer with its current work."""
        self.until = max(self.until, self._clock.now) + ns

    def _next(self) -> None:
        self._busy = True
        if self.until > self._clock.now:
            self._clock.at(self.until, self._next)
            return
        ns, idly, function, arguments = self._waiting.popleft()
        self.until = self.cores.take(ns) + idly
        self._clock.at(self.until, self._done, function, arguments)

    def _done(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        function(*arguments)
        if self._waiting:
            self._next()
        else:
            self._busy = False
            if self._when_idle:
                self._clock.at(self.until, self._rest)

    def when_idle(self, function: Callable[[], object]) -> None:
        """Call a function as soon as the loop is idle: now, or after all waiting work."""
        if not self._busy and self.until <= self._clock.now:
            function()
            return
        self._when_idle.append(function)
        if not self._busy:
            self._clock.at(self.until, self._rest)

    def _rest(self) -> None:
        if self._busy:
            return
        if self.until > self._clock.now:
            self._clock.at(self.until, self._rest)
            return
        functions, self._when_idle = self._when_idle, []
        for function in functions:
            function()


class Stream:
    """Dask's ``BatchedSend`` in virtual time: a loop that is idle sends the messages of an interval as one batch."""

    def __init__(self, clock: EventHeap, interval: int, loop: Loop | None = None) -> None:
        self._clock, self._interval, self._loop = clock, interval, loop or Loop(clock)
        self._buffer: list[Any] = []
        self._next, self._planned, self._arrival = 0, False, 0
        self._way: Callable[[], int] = int
        self._receive: Callable[[list[Any]], object] = bool  # which does nothing

    def connect(self, way: Callable[[], int], receive: Callable[[list[Any]], object]) -> None:
        """Deliver batches to a receiver, in order; ``way`` draws the nanoseconds that the next one travels."""
        self._way, self._receive = way, receive

    def send(self, *messages: Any) -> None:
        """Send messages."""
        self._buffer.extend(messages)
        if self._buffer and not self._planned:
            self._planned = True
            self._clock.at(self._next, self._loop.when_idle, self._leave)

    def _leave(self) -> None:
        now = self._clock.now
        batch, self._buffer, self._planned = self._buffer, [], False
        self._next = now + self._interval
        way = self._way()
        computing = min(way, ON_CORE)
        self._arrival = max(self._arrival, self._loop.cores.take(computing) + way - computing)
        self._clock.at(self._arrival, self._receive, batch)

    def closed(self) -> bool:
        """Never, in a simulation."""
        return False

    def abort(self) -> None:
        """Drop the messages that wait."""
        self._buffer.clear()
