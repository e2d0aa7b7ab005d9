"""ProcessThreads: what the threads of a worker's process did beside what each task measures in its own."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from distributed import Scheduler, Worker

from dask_efficiency.accounts.wire.wire import CORE_WAIT, OTHER_CORE_WAIT, OTHER_CPU

if TYPE_CHECKING:
    from dask_efficiency.plugin.worker.threads import TaskThreads

_THREADS = "/proc/self/task"

#: Threads whose wait is read at each heartbeat: each takes 10 microseconds.
MAX_THREADS = 100


class CoreWait:
    """Adds up how long threads of this process were ready to run and waited for a core, in nanoseconds.

    From now on, threads that ended included as far as they were read; None where the system does not say.
    """

    def __init__(self) -> None:
        #: Of all threads; of those that run tasks; and of those that are neither these nor the event loop's.
        self.all: int | None = 0 if _is_told() else None
        self.tasks = 0
        self.others = 0
        self._loop = threading.get_native_id()
        self._threads = _waited()

    def read(self, task_threads: Collection[int]) -> None:
        """Bring the sums up to now; ``task_threads`` are native ids."""
        if self.all is None:
            return
        now = _waited()
        for thread, waited in now.items():
            more = max(0, waited - self._threads.get(thread, 0))
            self.all += more
            if thread in task_threads:
                self.tasks += more
            elif thread != self._loop:
                self.others += more
        self._threads = now


class ProcessThreads:
    """What the threads of a worker's process did beside what each task measures in its own.

    Parameters
    ----------
    threads
        The worker's task threads.
    counted
        Gives CPU nanoseconds of this process that are counted elsewhere, beside the tasks and the event loop.
    """

    def __init__(self, threads: TaskThreads, counted: Callable[[], int] = lambda: 0) -> None:
        self._task_threads = threads
        self._counted = counted
        self.core_wait = CoreWait()
        self._loop = threading.get_native_id()
        self._began = time.process_time_ns(), time.thread_time_ns()
        self._other_cpu = 0

    def read(self) -> None:
        """Bring it up to now; called on the worker's event loop."""
        self.core_wait.read(self._task_threads.native_ids())
        if len(Worker._instances) > 1 or Scheduler._instances or threading.get_native_id() != self._loop:
            return  # the process's time is not this worker's alone
        process, loop = (now - then for now, then in zip(_clocks(), self._began, strict=True))
        self._other_cpu = max(self._other_cpu, process - loop - self._task_threads.cpu() - self._counted())

    @property
    def details(self) -> dict[str, int]:
        """Nanoseconds within ``thread-noncpu`` that are explained."""
        return {CORE_WAIT: self.core_wait.tasks} if self.core_wait.tasks else {}

    @property
    def outside(self) -> dict[str, int]:
        """Nanoseconds outside the thread slots, of threads that are neither a task's nor the event loop's."""
        if not self._other_cpu:  # the process is shared, or nothing was used
            return {}
        return {OTHER_CPU: self._other_cpu, OTHER_CORE_WAIT: self.core_wait.others}


def _clocks() -> tuple[int, int]:
    return time.process_time_ns(), time.thread_time_ns()


def _waited() -> dict[int, int]:
    """Nanoseconds that each thread of this process has waited for a core since it began."""
    found: dict[int, int] = {}
    try:
        threads = os.listdir(_THREADS)[:MAX_THREADS]
    except OSError:
        return found
    for thread in threads:
        try:
            file = os.open(f"{_THREADS}/{thread}/schedstat", os.O_RDONLY)
            try:
                found[int(thread)] = int(os.read(file, 100).split()[1])  # without buffers, in half the time
            finally:
                os.close(file)
        except (OSError, IndexError, ValueError):  # it has just ended
            continue
    return found


def _is_told() -> bool:
    """Whether the system counts: in some sandboxes the file is there, and all zeros."""
    try:
        with open(f"{_THREADS}/{os.getpid()}/schedstat", "rb") as file:
            return int(file.read().split()[0]) > 0
    except (OSError, IndexError, ValueError):
        return False
