"""HookCost: the CPU time of a worker's hooks, from a sample of them timed after each heartbeat."""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time_ns
from typing import Any
from weakref import ReferenceType

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

    def timed(self, hook: Callable[..., object], *args: Any, ends: bool) -> None:
        """Call a hook and time it, less what reading the clock takes; ``ends`` where it is the last of a task."""
        before = thread_time_ns()
        began = thread_time_ns()
        hook(*args)
        self._timed_ns += thread_time_ns() - began - (began - before)
        self._timed += ends

    def next_interval(self, tasks: int) -> None:
        """Add the interval that ends; ``tasks`` is how many the worker has executed since it began."""
        if self._timed:
            self._mean_ns = max(0.0, self._timed_ns / self._timed)
        self.spent += round((tasks - self._tasks) * self._mean_ns)
        self._tasks = tasks
        self._timed = self._timed_ns = 0


class TimedHook:
    """Stands in for a plugin's hook and times it, until there are enough.

    Parameters
    ----------
    hook
        What is timed.
    cost
        Where that is counted.
    plugin
        Whose hook it is, and who has this.
    """

    def __init__(self, hook: Callable[..., object], cost: HookCost, plugin: ReferenceType[Any]) -> None:
        self._hook = hook
        self._cost = cost
        self._plugin = plugin

    def __call__(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        """As of the hook."""
        self._cost.timed(self._hook, key, start, finish, ends=start == "executing")
        plugin = self._plugin()
        if self._cost.enough and plugin is not None and plugin.transition is self:
            plugin.transition = self._hook
