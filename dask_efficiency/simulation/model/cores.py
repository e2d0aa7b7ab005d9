"""Cores: a host's cores, for which event loops and threads that wake up wait in turn, and which tasks share."""

from __future__ import annotations

import random
from heapq import heapreplace
from math import ceil
from typing import Protocol

from dask_efficiency.simulation.model.events import EventHeap
from dask_efficiency.simulation.model.processor import Processor

#: Cores that a process of Dask uses beside its tasks, for its profiler, heartbeats and monitors: in runs of single
#: workers with 18 to 34 tasks a second, CPU grew by 2.3 ms a task from this on.
BACKGROUND = 0.05

#: Of a host's cores, what is left for tasks however much goes on in the background.
MIN_LEFT = 0.1

#: Nanoseconds of one piece of what processes do in the background (profiler, heartbeats, garbage collection), and how
#: far back it still matters when what is in the foreground needs a core.
_PIECE, _RECENT = 500_000, 5_000_000


class Cores(Protocol):
    """What lets a process compute."""

    #: The tasks that compute.
    threads: Processor

    def take(self, ns: int) -> int:
        """When a computation of so many nanoseconds ends that could begin now."""
        ...


class EnoughCores:
    """A host on which nothing waits for a core."""

    def __init__(self, clock: EventHeap) -> None:
        self._clock = clock
        self.threads = Processor(clock)

    def take(self, ns: int) -> int:  # noqa: D102  # as the protocol says
        return self._clock.now + ns


class FewCores:
    """A host with so many cores; short computations wait in turn for the first one that is free.

    They go before tasks that compute, as an operating system lets what has slept go first; tasks share the rest.

    Parameters
    ----------
    count
        Above 0; short computations wait for whole ones.
    background
        Cores that processes use beside what is simulated: it comes in small pieces, at times that the seed decides.
    seed
        Decides them; hosts of one run need seeds of their own.
    """

    def __init__(self, clock: EventHeap, count: float, background: float, seed: object) -> None:
        self._clock, self._background = clock, background
        self._free = [clock.now] * ceil(count)
        # A text as the seed, so that it draws nothing that others draw too.
        self._random = random.Random(f"cores {seed}")
        self._last, self._owed = clock.now, 0.0
        self.threads = Processor(clock, max(count - background, MIN_LEFT * count))

    def take(self, ns: int) -> int:  # noqa: D102
        now = self._clock.now
        self._work_in_background(now)
        if len(self.threads):
            self.threads.give_way(ns)
        end = max(self._free[0], now) + ns
        heapreplace(self._free, end)
        return end

    def _work_in_background(self, now: int) -> None:
        since, self._last = max(self._last, now - _RECENT), now
        self._owed += (now - since) * self._background
        pieces = int(self._owed // _PIECE)
        self._owed -= pieces * _PIECE
        for at in sorted(self._random.randint(since, now) for _ in range(pieces)):
            heapreplace(self._free, max(self._free[0], at) + _PIECE)
