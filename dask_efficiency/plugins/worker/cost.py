"""HookCost: the CPU time of a worker's hooks, from a sample of them timed after each heartbeat."""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time_ns
from typing import Any

#: Tasks whose hooks are timed after each heartbeat. Timing one takes as long as the hook itself does, so all of them
#: are not.
SAMPLE = 4


class HookCost:
    """Times the hooks of the first few tasks of each interval; of how many tasks there were, upstream keeps count."""

    def __init__(self) -> None:
        self._tasks = 0
        self._timed = 0
        self._timed_ns = 0
        self._mean_ns = 0.0
        #: Nanoseconds of all calls so far, an estimate that only grows.
        self.spent = 0

    @property
    def enough(self) -> bool:
        """Whether this interval's sample is complete."""
        return self._timed >= SAMPLE

    def timed(self, hook: Callable[[Any, str, str], object], key: Any, start: str, finish: str) -> None:
        """Call the hook for a transition and time it, less what reading the clock takes."""
        before = thread_time_ns()
        began = thread_time_ns()
        hook(key, start, finish)
        self._timed_ns += thread_time_ns() - began - (began - before)
        self._timed += start == "executing"

    def next_interval(self, tasks: int) -> None:
        """Add the interval that ends; ``tasks`` is how many the worker has executed since it began."""
        if self._timed:
            self._mean_ns = max(0.0, self._timed_ns / self._timed)
        self.spent += round((tasks - self._tasks) * self._mean_ns)
        self._tasks = tasks
        self._timed = self._timed_ns = 0
