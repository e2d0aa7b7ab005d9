"""Cores of a host, Python's lock (GIL) and GPUs, which event loops and the threads of tasks share."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from math import ceil, inf
from typing import NamedTuple, Protocol

from dask_efficiency.simulation.model.events import EventHeap

#: Nanoseconds of work that count as none: what is left by rounding.
_NONE = 0.5

#: A thread that needs less of a core than this sleeps, as far as others are concerned.
MIN_CPU = 0.02


def fair_shares(demands: Sequence[float], capacity: float = 1.0) -> list[float]:
    """What each gets of something that all share max-min fairly: none gets more than it demands.

    Parameters
    ----------
    demands
        At least 0.
    capacity
        How much there is, at least 0.

    Returns
    -------
    list of float
        In the order of the demands; their sum is at most the capacity.
    """
    if sum(demands) <= capacity:
        return list(demands)
    shares, left = [0.0] * len(demands), capacity
    order = sorted(range(len(demands)), key=demands.__getitem__)
    for place, i in enumerate(order):
        shares[i] = min(demands[i], left / (len(order) - place))
        left -= shares[i]
    return shares


class Needs(NamedTuple):
    """Shares of a thread's time alone, in [0, 1]."""

    #: In which it is on a core.
    cpu: float = 0.0
    #: In which it holds the lock.
    held: float = 0.0
    #: In which it uses the GPU.
    gpu: float = 0.0


@dataclass(slots=True, eq=False)
class _Thread:
    """Work in a thread."""

    process: Hashable
    #: Nanoseconds that it would still take alone.
    left: float
    needs: Needs
    done: Callable[[], object]
    #: How fast it is, as a share of how fast it would be alone.
    speed: float = 1.0


class Processor:
    """The threads of a host, which run side by side as far as there are cores, locks and GPUs for them.

    Each thread holds its process's lock for some share of its time. While all shares together are at most 1, all run as
    fast as alone; beyond, the lock is shared max-min fairly, as by Python's switching every 5 ms: two threads of pure
    Python are half as fast each. Of a worker's GPU there is one, and of a host's cores there are so many, shared in the
    same way. That a thread which comes back from waiting gets the lock only after such an interval is left out.

    Parameters
    ----------
    cores
        How many threads can be on a core at once.
    """

    def __init__(self, clock: EventHeap, cores: float = inf) -> None:
        self._clock, self._cores = clock, cores
        self._threads: list[_Thread] = []
        self._at = clock.now
        self._plans = 0
        #: Cores that the threads use, and nanoseconds of a core that others took from them since the last change.
        self._used = self._taken = 0.0

    def __len__(self) -> int:
        """How many threads work."""
        return len(self._threads)

    def run(self, process: Hashable, ns: int, needs: Needs, done: Callable[[], object]) -> None:
        """Let a thread begin.

        Parameters
        ----------
        process
            Whose lock and GPU it is.
        ns
            What it takes alone.
        done
            Called at its end.
        """
        if not needs.held and not needs.gpu and (self._cores == inf or needs.cpu < MIN_CPU):
            self._clock.at(self._clock.now + ns, done)
            return
        self._go_on()
        self._threads.append(_Thread(process, float(ns), needs, done))
        self._plan()

    def give_way(self, ns: int) -> None:
        """Something short goes first on a core for so long: the threads lose what that leaves too few cores for."""
        short = self._used + 1.0 - self._cores
        if short > 0 and self._threads:
            self._taken += ns * min(short, 1.0)

    def _go_on(self) -> None:
        """Do what was done since the last change."""
        elapsed, self._at = self._clock.now - self._at, self._clock.now
        lost = min(self._taken / (self._used * elapsed), 1.0) if self._taken and elapsed and self._used else 0.0
        self._taken -= lost * self._used * elapsed
        for thread in self._threads:
            thread.left -= elapsed * thread.speed * (1.0 - lost if thread.needs.cpu else 1.0)

    def _plan(self) -> None:
        """Wake up when the next thread ends, if nothing changes before."""
        threads = self._threads
        if not threads:
            self._used = self._taken = 0.0
            return
        processes: dict[Hashable, list[_Thread]] = {}
        for thread in threads:
            thread.speed = 1.0
            processes.setdefault(thread.process, []).append(thread)
        for own in processes.values():
            # One alone gets all that it needs.
            if len(own) > 1:
                _share(own, [thread.needs.gpu for thread in own])
                _share(own, [thread.needs.held for thread in own])
        if self._cores < inf:
            _share(threads, [thread.needs.cpu for thread in threads], self._cores)
            self._used = sum(thread.speed * thread.needs.cpu for thread in threads)
        self._plans += 1
        first = min(thread.left / thread.speed for thread in threads)
        self._clock.at(self._clock.now + max(round(first), 0), self._wake, self._plans)

    def _wake(self, plan: int) -> None:
        if plan != self._plans:
            return
        self._go_on()
        ended = [thread for thread in self._threads if thread.left / thread.speed < _NONE + 1e-6]
        self._threads = [thread for thread in self._threads if thread not in ended]
        self._plan()
        for thread in ended:
            thread.done()


def _share(threads: Sequence[_Thread], needs: Sequence[float], capacity: float = 1.0) -> None:
    """Slow threads down as far as what they need together is more than there is."""
    demands = [thread.speed * need for thread, need in zip(threads, needs, strict=True)]
    if sum(demands) <= capacity:
        return
    for thread, given, demand in zip(threads, fair_shares(demands, capacity), demands, strict=True):
        if demand:
            thread.speed *= given / demand


#: Cores that a process of Dask uses beside its tasks, for its profiler, heartbeats and monitors: in runs of single
#: workers with 18 to 34 tasks a second, CPU grew by 2.3 ms a task from this on.
BACKGROUND = 0.05

#: Of a host's cores, what is left for tasks however much goes on in the background.
MIN_LEFT = 0.1

#: Nanoseconds of one piece of what processes do in the background (profiler, heartbeats, garbage collection), and how
#: far back it still matters when what is in the foreground needs a core.
_PIECE, _RECENT = 500_000, 5_000_000


class HostCores(Protocol):
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
