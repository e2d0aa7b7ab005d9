"""Cores of a host, Python's lock (GIL) and GPUs, which event loops and the threads of tasks share."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapreplace
from math import ceil, inf
from typing import NamedTuple

from dask_efficiency.simulation.model.events import EventHeap
from dask_efficiency.straggler.peers import MIN_SHARE

#: Nanoseconds of work that count as none, as rounding leaves them.
_NO_WORK = 0.5


def fair_shares(demands: Sequence[float], capacity: float = 1.0) -> list[float]:
    """Share a capacity max-min fairly, in the order of the demands: nobody gets more than demanded."""
    if sum(demands) <= capacity:
        return list(demands)
    shares, left = [0.0] * len(demands), capacity
    order = sorted(range(len(demands)), key=demands.__getitem__)
    for place, i in enumerate(order):
        shares[i] = min(demands[i], left / (len(order) - place))
        left -= shares[i]
    return shares


#: Rounds in which the queue for a lock is found: shares are then within 1 %.
_ROUNDS = 8


@lru_cache(maxsize=10_000)
def lock_speeds(held: tuple[float, ...]) -> tuple[float, ...]:
    """Speeds of threads that each hold a lock for a share of their time alone, as shares of their speed alone.

    Threads that hold the lock at random queue for it long before it is always held: of two that hold it for half of
    their time, each waits for a fifth of its time, and of two that always do for half. Each finds the others at the
    lock for the shares of their time that these are there (approximate mean value analysis, one thread a class).

    References
    ----------
    Bard, Some Extensions to Multiclass Queueing Network Analysis, Performance of Computer Systems 1979; Schweitzer,
    Approximate Analysis of Multiclass Closed Networks of Queues, 1979.
    """
    there, speeds = held, (1.0,) * len(held)
    for _ in range(_ROUNDS):
        whole = sum(there)
        speeds = tuple(1.0 / (1.0 + share * (whole - own)) for share, own in zip(held, there, strict=True))
        there = tuple(
            speed * share * (1.0 + whole - own) for speed, share, own in zip(speeds, held, there, strict=True)
        )
    return speeds


class Needs(NamedTuple):
    """Needs of a thread, as shares of its time alone, in [0, 1]: of a core, the lock and the GPU."""

    cpu: float = 0.0
    held: float = 0.0
    gpu: float = 0.0


@dataclass(slots=True, eq=False)
class _Thread:
    """Work in a thread: nanoseconds left alone, and its speed as a share of that alone."""

    process: Hashable
    left: float
    needs: Needs
    done: Callable[[], object]
    speed: float = 1.0


class Processor:
    """Computing threads of a host, which share its cores, and in each process a lock and a GPU.

    Each thread holds its process's lock for a share of its time, and queues for it (:func:`lock_speeds`): two threads
    of pure Python run at half speed each. A process's GPU and the host's cores are shared max-min fairly: while the
    shares add up to no more than there is, all run at full speed.
    """

    def __init__(self, clock: EventHeap, cores: float = inf) -> None:
        self._clock, self._cores = clock, cores
        self._threads: list[_Thread] = []
        self._at = clock.now
        self._plans = 0
        #: Cores that the threads use; nanoseconds of a core that short computations took from them since then.
        self._used = self._taken = 0.0

    def __len__(self) -> int:
        """Number of threads."""
        return len(self._threads)

    def run(self, process: Hashable, ns: int, needs: Needs, done: Callable[[], object]) -> None:
        """Start a thread of a process, which owns the lock and the GPU; ``ns`` is its time alone."""
        if not needs.held and not needs.gpu and (self._cores == inf or needs.cpu < MIN_SHARE):
            self._clock.at(self._clock.now + ns, done)
            return
        self._go_on()
        self._threads.append(_Thread(process, float(ns), needs, done))
        self._plan()

    def give_way(self, ns: int) -> None:
        """Let a short computation go first: the threads lose its time where it leaves too few cores."""
        short = self._used + 1.0 - self._cores
        if short > 0 and self._threads:
            self._taken += ns * min(short, 1.0)

    def _go_on(self) -> None:
        """Account the work since the last change."""
        elapsed, self._at = self._clock.now - self._at, self._clock.now
        lost = min(self._taken / (self._used * elapsed), 1.0) if self._taken and elapsed and self._used else 0.0
        self._taken -= lost * self._used * elapsed
        for thread in self._threads:
            thread.left -= elapsed * thread.speed * (1.0 - lost if thread.needs.cpu else 1.0)

    def _plan(self) -> None:
        """Schedule the end of the next thread, if nothing changes before."""
        threads = self._threads
        if not threads:
            self._used = self._taken = 0.0
            return
        processes: dict[Hashable, list[_Thread]] = {}
        for thread in threads:
            thread.speed = 1.0
            processes.setdefault(thread.process, []).append(thread)
        for own in processes.values():
            # A single thread gets all that it needs.
            if len(own) > 1:
                _share(own, [thread.needs.gpu for thread in own])
                for thread, speed in zip(own, lock_speeds(tuple(round(one.needs.held, 2) for one in own)), strict=True):
                    thread.speed *= speed
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
        ended = [thread for thread in self._threads if thread.left / thread.speed < _NO_WORK + 1e-6]
        self._threads = [thread for thread in self._threads if thread not in ended]
        self._plan()
        for thread in ended:
            thread.done()


def _share(threads: Sequence[_Thread], needs: Sequence[float], capacity: float = 1.0) -> None:
    """Slow threads down to the capacity."""
    demands = [thread.speed * need for thread, need in zip(threads, needs, strict=True)]
    if sum(demands) <= capacity:
        return
    for thread, given, demand in zip(threads, fair_shares(demands, capacity), demands, strict=True):
        if demand:
            thread.speed *= given / demand


#: Cores that a process of Dask uses for its profiler, heartbeats and monitors: the intercept of CPU over tasks, in runs
#: of single workers with 18 to 34 tasks a second, which took 2.3 ms of CPU each.
BACKGROUND = 0.05
#: Smallest share of a host's cores that the background leaves to tasks: a guess that keeps them running.
MIN_LEFT = 0.1
#: Nanoseconds of one piece of background work (profiler, heartbeats, garbage collection), and the past in which it can
#: still delay other work: guesses.
_PIECE, _RECENT = 500_000, 5_000_000


class HostCores:
    """Cores of a host: short computations wait in turn for the first free one, on infinitely many for none.

    They go before computing tasks, which share the rest, as an operating system favours threads that have slept. The
    background takes cores in small pieces at random times, by a seed of its own for each host.
    """

    def __init__(self, clock: EventHeap, count: float = inf, background: float = 0.0, seed: object = 0) -> None:
        self._clock, self._background = clock, background
        self._free = [clock.now] * ceil(count) if count < inf else []
        # The seed is a text, so that no other generator draws the same.
        self._random = random.Random(f"cores {seed}")
        self._last, self._owed = clock.now, 0.0
        #: The tasks that compute.
        self.threads = Processor(clock, max(count - background, MIN_LEFT * count))

    def take(self, ns: int) -> int:
        """Run a short computation as soon as a core is free; returns the instant at which it ends."""
        now = self._clock.now
        if not self._free:
            return now + ns
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
