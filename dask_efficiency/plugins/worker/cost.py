"""HookCost: the CPU time of a worker's hooks, from a sample of them timed after each heartbeat."""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time_ns
from typing import Any

#: Hooks timed after each heartbeat: some three tasks' worth. Timing one takes as long as the hook
#: itself does, so all of them are not.
SAMPLE = 16


class HookCost:
    """Counts a hook's calls by upstream's own counter, and times the first few of each interval.

    Parameters
    ----------
    hook
        The hook, called for each transition of a task.
    """

    def __init__(self, hook: Callable[..., None]) -> None:
        self._hook = hook
        self._calls = 0
        self._timed = 0
        self._timed_ns = 0
        self._mean_ns = 0.0
        #: Nanoseconds of all calls so far, an estimate that only grows.
        self.spent = 0

    @property
    def enough(self) -> bool:
        """Whether this interval's sample is complete."""
        return self._timed >= SAMPLE

    def timed(self, *args: Any, **kwargs: Any) -> None:
        """Call the hook and time it, less what reading the clock takes."""
        before = thread_time_ns()
        began = thread_time_ns()
        self._hook(*args, **kwargs)
        self._timed_ns += thread_time_ns() - began - (began - before)
        self._timed += 1

    def next_interval(self, calls: int) -> None:
        """Add the interval that ends; ``calls`` is how often the hook was called since the worker began."""
        if self._timed:
            self._mean_ns = max(0.0, self._timed_ns / self._timed)
        self.spent += round((calls - self._calls) * self._mean_ns)
        self._calls = calls
        self._timed = self._timed_ns = 0
