"""TaskTable: the task of each thread at each instant, and the GPU accounts of the tasks that used one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.gpu import GpuUse
from dask_efficiency.gpu.intervals import Int64, ranked
from dask_efficiency.gpu.meter import TaskId, TaskWindow

#: Stands for no task where a task's number is expected.
NOBODY = -1
#: End of a task that has not ended.
FOREVER = (1 << 62) - 1
#: CUPTI records the low 32 bits of a thread's ident.
_LOW = 0xFFFFFFFF


@dataclass(slots=True)
class Task:
    """A task and its use of the devices. Arrays refer to it by its number."""

    id: TaskId
    number: int
    prefix: str
    stop: int = FOREVER
    #: True once its own thread has called the driver.
    calls: bool = False
    #: Its use so far; complete once ``known`` is true.
    use: GpuUse = field(default_factory=GpuUse)
    known: bool = False
    bound: int | None = None
    #: End of the last known call of its thread, and of the last one that is in ``use``.
    last_call: int = 0
    used_until: int = 0
    #: Nanoseconds in which its own work ran on a device before its end, and the part of them that is in ``use``.
    busy: int = 0
    busy_in_use: int = 0


@dataclass(slots=True)
class _Thread:
    """Tasks of one thread in order of start; ``tasks`` has the accounts that were opened."""

    starts: list[int] = field(default_factory=list)
    stops: list[int] = field(default_factory=list)
    windows: list[TaskWindow] = field(default_factory=list)
    tasks: list[Task | None] = field(default_factory=list)

    def see(self, window: TaskWindow, forgotten: int) -> None:
        start, stop = window.task.start, window.stop
        starts, row = self.starts, len(self.starts)
        if row and start <= starts[-1]:
            row = bisect_left(starts, start)
            if starts[row] == start:
                if stop >= 0 and self.stops[row] == FOREVER:
                    self.stops[row] = max(stop, start)
                    if task := self.tasks[row]:
                        task.stop = self.stops[row]
                return
        if 0 <= stop < forgotten:
            return
        starts.insert(row, start)
        self.stops.insert(row, FOREVER if stop < 0 else max(stop, start))
        self.windows.insert(row, window)
        self.tasks.insert(row, None)

    def forget(self, before: int) -> None:
        keep = [row for row, stop in enumerate(self.stops) if stop >= before]
        if len(keep) < len(self.stops):
            columns: tuple[list[Any], ...] = (self.starts, self.stops, self.windows, self.tasks)
            for column in columns:
                column[:] = [column[row] for row in keep]


class TaskTable:
    """Tasks of one process: the windows of each thread, and an account of each task that used a GPU.

    Windows come for every task, but most tasks never call the driver: an account is opened when a task is looked up.
    """

    def __init__(self, prefix_of: Callable[[Any], str]) -> None:
        self._prefix_of = prefix_of
        self._next = 0
        self._by_number: dict[int, Task] = {}
        self._threads: dict[int, _Thread] = {}
        self._forgotten = -1
        #: Tasks whose accounts were opened since this list was last cleared.
        self.opened: list[Task] = []

    def numbered(self, number: int) -> Task | None:
        """Task of this number; None if it is forgotten."""
        return self._by_number.get(number)

    def see(self, windows: Iterable[TaskWindow]) -> None:
        """Take in windows of tasks that run (``stop`` is -1) or have ended, in any order and repeatedly."""
        threads = self._threads
        for window in windows:
            ident = window.task.thread & _LOW
            thread = threads.get(ident)
            if thread is None:
                if 0 <= window.stop < self._forgotten:
                    continue
                thread = threads[ident] = _Thread()
            thread.see(window, self._forgotten)

    def find(self, task: TaskId) -> Task | None:
        """Task of this id; None if it has not been seen or is forgotten."""
        thread = self._threads.get(task.thread & _LOW)
        if thread is None:
            return None
        row = bisect_left(thread.starts, task.start)
        is_known = row < len(thread.windows) and thread.windows[row].task == task
        return self._open(thread, row) if is_known else None

    def forget(self, task: Task) -> None:
        """Forget an ended task."""
        del self._by_number[task.number]

    def forget_windows(self, before: int) -> None:
        """Forget windows that ended before an instant; no earlier call is looked up any more."""
        self._forgotten = before
        for ident, thread in list(self._threads.items()):
            thread.forget(before)
            if not thread.starts:
                del self._threads[ident]

    def at_work(self, threads: NDArray[np.uint32], at: Int64) -> tuple[Int64, NDArray[np.bool_]]:
        """Number of the task of each thread at an instant, or NOBODY; and True for threads that run tasks."""
        numbers = np.full(len(at), NOBODY, np.int64)
        of_tasks = np.zeros(len(at), np.bool_)
        for ident, thread in self._threads.items():
            rows = np.flatnonzero(threads == ident)
            if not len(rows):
                continue
            of_tasks[rows] = True
            latest = np.searchsorted(np.array(thread.starts, np.int64), at[rows], side="right") - 1
            inside = (latest >= 0) & (at[rows] <= np.array(thread.stops, np.int64)[latest])
            distinct, which = ranked(latest[inside])
            opened = np.array([self._open(thread, row).number for row in distinct.tolist()], np.int64)
            numbers[rows[inside]] = opened[which]
        return numbers, of_tasks

    def only_one(self, at: Int64) -> Int64:
        """Only task that used a GPU at each instant, else the only task at work, else NOBODY."""
        alone, any_using = self._alone(at, using=True)
        if any_using.all():
            return alone
        at_work, _ = self._alone(at, using=False)
        return np.where(any_using, alone, at_work)

    def asking_since(self, at: int) -> int:
        """Earliest start of a call that may still be under way at an instant; that instant where no task is at work.

        Neither a call nor what it launches is known before it returns.
        """
        since = at
        for thread in self._threads.values():
            for row in reversed(range(len(thread.starts))):
                if thread.stops[row] <= at:
                    break
                if thread.starts[row] < at:
                    task = thread.tasks[row]
                    since = min(since, max(thread.starts[row], task.last_call if task else 0))
        return since

    def _open(self, thread: _Thread, row: int) -> Task:
        task = thread.tasks[row]
        if task is None:
            identity, _, key = thread.windows[row]
            task = Task(identity, self._next, self._prefix_of(key), thread.stops[row])
            thread.tasks[row] = self._by_number[self._next] = task
            self._next += 1
            self.opened.append(task)
        return task

    def _alone(self, at: Int64, *, using: bool) -> tuple[Int64, NDArray[np.bool_]]:
        """Number of the task where exactly one was at work, else NOBODY; and True where any was."""
        rows = [
            (thread, row)
            for thread in self._threads.values()
            for row, task in enumerate(thread.tasks)
            if not using or (task is not None and task.calls)
        ]
        starts = np.array([thread.starts[row] for thread, row in rows], np.int64)
        stops = np.array([thread.stops[row] for thread, row in rows], np.int64)
        order = np.arange(len(rows))
        begun, sum_begun = _up_to(starts, order, at)
        # A task is still at work at the instant at which it ends.
        ended, sum_ended = _up_to(stops, order, at - 1)
        # Where exactly one is left, the difference of the sums of indices is its index.
        single = begun - ended == 1
        numbers = np.full(len(at), NOBODY, np.int64)
        distinct, which = ranked((sum_begun - sum_ended)[single])
        numbers[single] = np.array([self._open(*rows[place]).number for place in distinct.tolist()], np.int64)[which]
        return numbers, begun > ended


def _up_to(when: Int64, numbers: Int64, at: Int64) -> tuple[Int64, Int64]:
    """Count of the instants ``when`` that are not after each ``at``, and the sum of their numbers."""
    order = np.argsort(when, kind="stable")
    count = np.searchsorted(when[order], at, side="right")
    return count, np.concatenate([[0], np.cumsum(numbers[order])])[count]
