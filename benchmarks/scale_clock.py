"""Clock of ``benchmarks/scale.py``: time passes by the CPU of the event loop's thread, and waiting is skipped."""

from __future__ import annotations

import asyncio
import selectors
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_RealSelector = selectors.DefaultSelector


class Clock:
    """Time that passes by this thread's CPU, less what is left out, and by what the event loop would wait.

    A minute of a cluster takes as long as the work in it, another process on the machine makes nothing slower, and
    a loop that lags does so by the work that holds it up.
    """

    def __init__(self) -> None:
        self._cpu = time.pthread_getcpuclockid(threading.get_ident())
        self._wall, self._base = time.time_ns(), time.monotonic_ns()
        self._began = time.clock_gettime_ns(self._cpu)
        self._skipped = self._left_out = 0

    @property
    def cpu_ns(self) -> int:
        """CPU nanoseconds of the event loop's thread, less those left out."""
        return time.clock_gettime_ns(self._cpu) - self._began - self._left_out

    def monotonic_ns(self) -> int:
        return self._base + self._skipped + self.cpu_ns

    def skip(self, seconds: float) -> None:
        self._skipped += round(seconds * 1e9)

    @contextmanager
    def left_out(self) -> Iterator[None]:
        """Let the block take no time, as other processes would do its work."""
        before = time.clock_gettime_ns(self._cpu)
        try:
            yield
        finally:
            self._left_out += time.clock_gettime_ns(self._cpu) - before

    def install(self) -> None:
        """Have all modules read this clock that are imported from now on, or read ``time.time()`` by that name."""
        replaced: Any = time
        replaced.monotonic_ns = self.monotonic_ns
        replaced.perf_counter_ns = self.monotonic_ns
        replaced.monotonic = replaced.perf_counter = lambda: self.monotonic_ns() / 1e9
        replaced.time_ns = lambda: self._wall + self.monotonic_ns() - self._base
        replaced.time = lambda: (self._wall + self.monotonic_ns() - self._base) / 1e9


class _SkippingSelector(_RealSelector):
    """Waits for nothing but sockets that are ready: the time until the next timer is skipped."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            return super().select()
        self._clock.skip(max(0.0, timeout))
        return super().select(0)


def event_loop(clock: Clock) -> asyncio.AbstractEventLoop:
    """An event loop in this clock's time, which must be installed."""
    return asyncio.SelectorEventLoop(_SkippingSelector(clock))
