"""TaskTable: which task each thread worked for at which time, and what is known of each task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.gpu.intervals import Int64
from dask_efficiency.gpu.records import TaskId, TaskWindow
from dask_efficiency.gpu.totals import GpuUse

#: Stands for no task, where a task's number is expected.
NOBODY = -1
#: The end of a task that has not ended.
FOREVER = (1 << 62) - 1

_LOW = 0xFFFFFFFF


@dataclass(slots=True)
class Task:
    """A task and its use of the devices. Arrays refer to it by its number."""

    id: TaskId
    number: int
    stop: int = FOREVER
    prefix: str | None = None
    #: Whether its own thread has called the driver.
    calls: bool = False
    #: What is known of it so far, and complete once ``known`` is true.
    use: GpuUse = field(default_factory=GpuUse)
    known: bool = False
    closed: bool = False
    bound: int | None = None
    #: When the last known call of its thread ended, and the last one that is in ``use``.
    last_call: int = 0
    used_until: int = 0
    #: Nanoseconds in which work of its own ran on a device before it ended, and the part of them that is in ``use``.
    busy: int = 0
    busy_in_use: int = 0


@dataclass(slots=True)
class _Thread:
    """One thread's tasks, in the order in which they began."""

    starts: list[int] = field(default_factory=list)
    stops: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def put(self, task: Task) -> None:
        self.starts.append(task.id.start)
        self.stops.append(task.stop)
        self.numbers.append(task.number)
        if len(self.starts) > 1 and self.starts[-2] > self.starts[-1]:
            order = sorted(range(len(self.starts)), key=self.starts.__getitem__)
            for column in (self.starts, self.stops, self.numbers):
                column[:] = [column[index] for index in order]

    def forget(self, before: int) -> None:
        keep = [index for index, stop in enumerate(self.stops) if stop >= before]
        if len(keep) < len(self.stops):
            for column in (self.starts, self.stops, self.numbers):
                column[:] = [column[index] for index in keep]


class TaskTable:
    """The tasks of one process. Tasks that ended stay until :meth:`forget` is called."""

    def __init__(self) -> None:
        self._next = 0
        self._by_id: dict[TaskId, Task] = {}
        self._by_number: dict[int, Task] = {}
        self._threads: dict[int, _Thread] = {}

    def __iter__(self) -> Iterator[Task]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, task: TaskId) -> Task | None:
        """The task, or None if it has not been seen or is forgotten."""
        return self._by_id.get(task)

    def numbered(self, number: int) -> Task | None:
        """The task of this number, or None if it is forgotten."""
        return self._by_number.get(number)

    def see(self, windows: Iterable[TaskWindow]) -> list[Task]:
        """Take in tasks that run (``stop`` is -1) or have ended, in any order and repeatedly; returns the new ones."""
        new = []
        for window in windows:
            task = self._by_id.get(window.task)
            if task is None:
                task = self._by_id[window.task] = Task(window.task, self._next)
                self._by_number[self._next] = task
                self._next += 1
                new.append(task)
                self._threads.setdefault(window.task.thread & _LOW, _Thread()).put(task)
            if window.stop >= 0 and task.stop == FOREVER:
                task.stop = max(window.stop, task.id.start)
                thread = self._threads[window.task.thread & _LOW]
                thread.stops[thread.numbers.index(task.number)] = task.stop
        return new

    def forget(self, task: Task) -> None:
        """Forget an ended task."""
        del self._by_id[task.id], self._by_number[task.number]

    def forget_windows(self, before: int) -> None:
        """Forget when threads worked for which task before an instant; no earlier call is looked up any more."""
        for ident, thread in list(self._threads.items()):
            thread.forget(before)
            if not thread.starts:
                del self._threads[ident]

    def at_work(self, threads: NDArray[np.uint32], at: Int64) -> tuple[Int64, NDArray[np.bool_]]:
        """The number of the task that each thread worked for at an instant, or NOBODY; and whether it runs tasks."""
        numbers = np.full(len(at), NOBODY, np.int64)
        of_tasks = np.zeros(len(at), np.bool_)
        for ident, thread in self._threads.items():
            rows = np.flatnonzero(threads == ident)
            if not len(rows):
                continue
            of_tasks[rows] = True
            latest = np.searchsorted(np.array(thread.starts, np.int64), at[rows], side="right") - 1
            inside = (latest >= 0) & (at[rows] <= np.array(thread.stops, np.int64)[latest])
            numbers[rows[inside]] = np.array(thread.numbers, np.int64)[latest[inside]]
        return numbers, of_tasks

    def only_one(self, at: Int64) -> Int64:
        """The only task that used a GPU at each instant, else the only one at work at all, else NOBODY."""
        alone, any_using = self._alone(at, using=True)
        if any_using.all():
            return alone
        at_work, _ = self._alone(at, using=False)
        return np.where(any_using, alone, at_work)

    def _alone(self, at: Int64, *, using: bool) -> tuple[Int64, NDArray[np.bool_]]:
        """Where exactly one task was at work, its number, else NOBODY; and where any was."""
        rows = [
            row
            for thread in self._threads.values()
            for row in zip(thread.starts, thread.stops, thread.numbers, strict=True)
            if not using or self._uses(row[2])
        ]
        table = np.array(rows, np.int64).reshape(-1, 3)
        begun, sum_begun = _up_to(table[:, 0], table[:, 2], at)
        # A task is still at work at the instant at which it ends.
        ended, sum_ended = _up_to(table[:, 1], table[:, 2], at - 1)
        # Where exactly one is left, the sum of the numbers is its number.
        return np.where(begun - ended == 1, sum_begun - sum_ended, NOBODY), begun > ended

    def _uses(self, number: int) -> bool:
        task = self._by_number.get(number)
        return task is not None and task.calls


def _up_to(when: Int64, numbers: Int64, at: Int64) -> tuple[Int64, Int64]:
    """How many of the instants ``when`` are not after each ``at``, and the sum of their numbers."""
    order = np.argsort(when, kind="stable")
    count = np.searchsorted(when[order], at, side="right")
    return count, np.concatenate([[0], np.cumsum(numbers[order])])[count]
