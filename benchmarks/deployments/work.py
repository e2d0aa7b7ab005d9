"""Work with known totals: tasks that measure their own time and tell it, also where they fail."""

from __future__ import annotations

import time
from dataclasses import dataclass

from distributed import Client, Future, wait

#: Seconds that a task is given, by its kind.
BURN, REST = 0.1, 0.2

#: Seconds of CPU of the task's thread and of wall time, by its own clocks.
Told = tuple[float, float]


class Stopwatch:
    """CPU time of this thread and wall time, since it was made."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._cpu = time.thread_time()

    def read(self) -> Told:
        """Seconds of both."""
        return time.thread_time() - self._cpu, time.monotonic() - self._start


def burn(seconds: float) -> Told:
    """Compute for so many seconds of CPU time."""
    watch = Stopwatch()
    while watch.read()[0] < seconds:
        pass
    return watch.read()


def rest(seconds: float) -> Told:
    """Wait without computing."""
    watch = Stopwatch()
    time.sleep(seconds)
    return watch.read()


def burn_and_fail(seconds: float) -> None:
    """Compute and fail; the error carries what was used."""
    raise ArithmeticError(*burn(seconds))


@dataclass(frozen=True, slots=True)
class Known:
    """What the cluster did, by the tasks' own clocks; seconds are sums over the tasks."""

    succeeded: int
    failed: int
    #: Of the tasks that succeeded.
    cpu_seconds: float
    wall_seconds: float
    #: Of those that failed.
    failed_seconds: float

    def __add__(self, other: Known) -> Known:
        return Known(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Submitted:
    """Tasks on their way."""

    good: list[Future]
    bad: list[Future]

    def known(self, *, timeout: float = 120) -> Known:
        """Wait until all have ended; nothing of them stays in the cluster's memory."""
        wait([*self.good, *self.bad], timeout=timeout)
        told = [future.result() for future in self.good]
        failures = [future.exception() for future in self.bad]
        for future in (*self.good, *self.bad):
            future.release()
        if not all(isinstance(error, ArithmeticError) for error in failures):
            raise RuntimeError(f"a task failed otherwise than planned: {failures}")
        return Known(
            succeeded=len(told),
            failed=len(failures),
            cpu_seconds=sum(cpu for cpu, _ in told),
            wall_seconds=sum(wall for _, wall in told),
            failed_seconds=sum(error.args[1] for error in failures),
        )


def submit(client: Client, *, burning: int = 12, resting: int = 6, failing: int = 3) -> Submitted:
    """Give a cluster so many tasks of each kind."""
    good = client.map(burn, [BURN] * burning, pure=False) + client.map(rest, [REST] * resting, pure=False)
    return Submitted(good, client.map(burn_and_fail, [BURN] * failing, pure=False))
