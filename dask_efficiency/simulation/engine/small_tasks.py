"""Tasks whose results are there do without what is empty or not looked at again: of 100,000 tasks it takes 150 MB."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distributed import WorkerPlugin
from distributed.worker_state_machine import TaskState


class NoTasks(frozenset[Any]):
    """A set of tasks that stays empty: Dask takes from it, whatever is in it, but may not add to it."""

    __slots__ = ()

    def clear(self) -> None:
        """Nothing is in it."""

    def discard(self, task: object) -> None:
        """It was not in it."""


NO_TASKS: Any = NoTasks()

#: Sets of a worker's task that Dask adds nothing to while its result is in memory.
_SETS = ("dependencies", "waiting_for_data", "waiters")

#: What Dask replaces and never changes, and what it adds to only when the task runs again.
_DICTS = ("annotations", "metadata", "resource_restrictions")
_NO_FACTS: Any = {}
_NO_TIMES: Any = ()


class SmallTasks(WorkerPlugin):
    """Takes from tasks of a worker what they do not need, and gives it back before Dask adds to it.

    Parameters
    ----------
    tasks
        All tasks of the worker, by key.
    """

    name = "small-tasks"

    def __init__(self, tasks: Mapping[Any, TaskState]) -> None:
        self._tasks = tasks

    def transition(self, key: Any, start: str, finish: str, **_kwargs: Any) -> None:
        """A task changed state on the worker."""
        if finish == "memory":
            _make_small(self._tasks[key])
        elif start == "memory" and (left := self._tasks.get(key)) is not None:
            _make_whole(left)


def _make_small(task: TaskState) -> None:
    for name in _SETS:
        if not getattr(task, name):
            setattr(task, name, NO_TASKS)
    for name in _DICTS:
        if not getattr(task, name):
            setattr(task, name, _NO_FACTS)
    # The message that reports the result has the times; what is to be run comes anew if it is to run again.
    task.startstops, task.run_spec = _NO_TIMES, None


def _make_whole(task: TaskState) -> None:
    for name in _SETS:
        if getattr(task, name) is NO_TASKS:
            setattr(task, name, set())
    if task.startstops is _NO_TIMES:
        task.startstops = []
