"""Processor: the threads of a worker's process, which share Python's interpreter lock (GIL) and a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dask_efficiency.simulation.events import EventHeap

#: Nanoseconds of work that count as none: what is left by rounding.
_NONE = 0.5


def fair_shares(demands: Sequence[float]) -> list[float]:
    """What each gets of one unit that all share max-min fairly: none gets more than it demands.

    Parameters
    ----------
    demands
        At least 0.

    Returns
    -------
    list of float
        In the order of the demands; their sum is at most 1.
    """
    if sum(demands) <= 1.0:
        return list(demands)
    shares, left = [0.0] * len(demands), 1.0
    order = sorted(range(len(demands)), key=demands.__getitem__)
    for place, i in enumerate(order):
        shares[i] = min(demands[i], left / (len(order) - place))
        left -= shares[i]
    return shares


def _speeds(speeds: list[float], shares: list[float]) -> list[float]:
    """How fast each can be, if so much of it needs what all share, and it is not faster than this."""
    demands = [speed * share for speed, share in zip(speeds, shares, strict=True)]
    return [
        speed * given / demand if demand else speed
        for speed, given, demand in zip(speeds, fair_shares(demands), demands, strict=True)
    ]


@dataclass(slots=True, eq=False)
class _Thread:
    """Work in a thread."""

    #: Nanoseconds that it would still take alone.
    left: float
    #: Shares of its time alone in which it holds the lock, and in which it uses the GPU.
    held: float
    gpu: float
    done: Callable[[], object]
    #: How fast it is, as a share of how fast it would be alone.
    speed: float = 1.0


class Processor:
    """Threads that run side by side, but only one of them at a time while it holds the lock.

    Each thread holds the lock for some share of its time. While all shares together are at most 1, all run as fast as
    alone; beyond, the lock is shared max-min fairly, as by Python's switching every 5 ms: two threads of pure Python
    are half as fast each. Of a worker's GPU there is one, shared in the same way. That a thread which comes back from
    waiting gets the lock only after such an interval is left out.
    """

    def __init__(self, clock: EventHeap) -> None:
        self._clock = clock
        self._threads: list[_Thread] = []
        self._at = clock.now
        self._plans = 0

    def __len__(self) -> int:
        """How many threads work."""
        return len(self._threads)

    def run(self, ns: int, held: float, gpu: float, done: Callable[[], object]) -> None:
        """Let a thread begin.

        Parameters
        ----------
        ns
            What it takes alone.
        held, gpu
            Shares of that in which it holds the lock, and in which it uses the GPU, in [0, 1].
        done
            Called at its end.
        """
        if not held and not gpu:
            self._clock.at(self._clock.now + ns, done)
            return
        self._go_on()
        self._threads.append(_Thread(float(ns), held, gpu, done))
        self._plan()

    def _go_on(self) -> None:
        """Do what was done since the last change."""
        elapsed, self._at = self._clock.now - self._at, self._clock.now
        for thread in self._threads:
            thread.left -= elapsed * thread.speed

    def _plan(self) -> None:
        """Wake up when the next thread ends, if nothing changes before."""
        if not self._threads:
            return
        speeds = _speeds([1.0] * len(self._threads), [thread.gpu for thread in self._threads])
        speeds = _speeds(speeds, [thread.held for thread in self._threads])
        for thread, speed in zip(self._threads, speeds, strict=True):
            thread.speed = speed
        self._plans += 1
        first = min(thread.left / thread.speed for thread in self._threads)
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
