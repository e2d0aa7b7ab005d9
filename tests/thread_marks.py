"""Clocks of a thread between two instants, by the kernel."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mark:
    """The start and stop of a task on its thread, and the kernel's clocks between; nanoseconds."""

    start: int
    stop: int
    cpu: int
    core_wait: int


class Marking:
    """The clocks of this thread since it was made."""

    def __init__(self) -> None:
        self.core_wait = _core_wait()
        self.cpu, self.start = time.thread_time_ns(), time.monotonic_ns()

    def read(self) -> Mark:
        """A mark from then until now."""
        stop, cpu = time.monotonic_ns(), time.thread_time_ns()
        return Mark(self.start, stop, cpu - self.cpu, _core_wait() - self.core_wait)


def _core_wait() -> int:
    """Nanoseconds for which this thread has waited for a core; exact for one that runs."""
    with open(f"/proc/self/task/{threading.get_native_id()}/schedstat") as file:
        return int(file.read().split()[1])
