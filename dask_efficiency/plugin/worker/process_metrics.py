"""ProcessMetrics and ProcessThreads: what a worker's process waited for and moved, outside its tasks."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

from distributed import Scheduler, Worker
from distributed.worker_state_machine import TaskState

from dask_efficiency.accounts.intake import fitting, whole_number
from dask_efficiency.accounts.metered import (
    BYTES,
    COUNT,
    RECEIVED,
    SECONDS,
    SENT,
    SPILL_LABELS,
    TRANSFERS,
    Metered,
)
from dask_efficiency.accounts.rows import MAX_APART
from dask_efficiency.accounts.wire.snapshots import CORE_WAIT, OTHER_CORE_WAIT, OTHER_CPU
from dask_efficiency.accounts.worker.log import prefix_of
from dask_efficiency.plugin.worker.fine_metrics import Digests
from dask_efficiency.plugin.worker.threads import TaskThreads
from dask_efficiency.straggler.task_rates import MAX_RUNNING, RunningTask, TaskRateCounter, TaskRateWriter

_THREADS = "/proc/self/task"
#: Threads whose wait is read at each heartbeat; each takes 10 us.
MAX_THREADS = 100


class ProcessThreads:
    """Time of the threads of a worker's process, besides what each task measures in its own.

    Waits for a core count from now on, with threads that have ended as far as they were read. ``counted`` gives CPU
    nanoseconds of this process that are counted elsewhere, besides the tasks and the event loop.
    """

    def __init__(self, threads: TaskThreads, counted: Callable[[], int] = lambda: 0) -> None:
        self._task_threads, self._counted = threads, counted
        self._loop = threading.get_native_id()
        self._began = _clocks()
        self._other_cpu = 0
        self._waited = _waited()
        #: Nanoseconds for which all threads waited for a core; None if the system does not count.
        self.core_wait: int | None = 0 if _is_counted() else None
        #: The same of threads that run tasks, and of the others, without the event loop's.
        self._core_wait_of_tasks = self._core_wait_of_others = 0

    def read(self) -> None:
        """Bring it up to now; called on the worker's event loop."""
        if self.core_wait is not None:
            self.core_wait += self._read_core_wait()
        if len(Worker._instances) > 1 or Scheduler._instances or threading.get_native_id() != self._loop:
            return  # others share the time of this process
        process, loop = (now - then for now, then in zip(_clocks(), self._began, strict=True))
        tasks = self._task_threads.cpu()
        if tasks is not None:
            self._other_cpu = max(self._other_cpu, process - loop - tasks - self._counted())

    def _read_core_wait(self) -> int:
        before, self._waited = self._waited, _waited()
        more = {thread: max(0, waited - before.get(thread, 0)) for thread, waited in self._waited.items()}
        tasks = self._task_threads.native_ids()
        self._core_wait_of_tasks += sum(ns for thread, ns in more.items() if thread in tasks)
        self._core_wait_of_others += sum(ns for thread, ns in more.items() if thread not in tasks | {self._loop})
        return sum(more.values())

    @property
    def details(self) -> dict[str, int]:
        """Explained nanoseconds within ``thread-noncpu``."""
        return {CORE_WAIT: self._core_wait_of_tasks} if self._core_wait_of_tasks else {}

    @property
    def outside(self) -> dict[str, int]:
        """Nanoseconds outside the slots, of threads that are neither a task's nor the event loop's."""
        if not self._other_cpu:  # the process is shared, or nothing was used
            return {}
        return {OTHER_CPU: self._other_cpu, OTHER_CORE_WAIT: self._core_wait_of_others}


def _clocks() -> tuple[int, int]:
    return time.process_time_ns(), time.thread_time_ns()


def _waited() -> dict[int, int]:
    """Nanoseconds that each thread of this process has waited for a core since its start."""
    found: dict[int, int] = {}
    try:
        threads = os.listdir(_THREADS)[:MAX_THREADS]
    except OSError:
        return found
    for thread in threads:
        try:
            file = os.open(f"{_THREADS}/{thread}/schedstat", os.O_RDONLY)
            try:
                found[int(thread)] = int(os.read(file, 100).split()[1])  # unbuffered takes half the time
            finally:
                os.close(file)
        except (OSError, IndexError, ValueError):  # it has just ended
            continue
    return found


def _is_counted() -> bool:
    """True if the system counts; in some sandboxes the file has only zeros."""
    try:
        with open(f"{_THREADS}/{os.getpid()}/schedstat", "rb") as file:
            return int(file.read().split()[0]) > 0
    except (OSError, IndexError, ValueError):
        return False


#: Labels of spilling that are time at the disk; the rest is (de)serialising and (de)compressing.
_DISK_LABELS = frozenset(label for label in SPILL_LABELS if label.startswith("disk-"))


class _DiskMetrics(Digests[str]):
    """Time and bytes at the disk, by unit."""

    def _name_of(self, key: tuple[Any, ...]) -> str | None:
        return key[-1] if key[-2] in _DISK_LABELS and key[-1] in (SECONDS, BYTES) else None


#: Multiple of its prefix's usual duration from which a running task is reported.
LONG = 2.0
#: Inputs that are read to estimate the size of all inputs of a task.
MAX_INPUTS = 64


class ProcessMetrics:
    """Reads a worker's task rates and transfers from Dask and the system, for each heartbeat."""

    def __init__(self, worker: Worker) -> None:
        self.counter = TaskRateCounter()
        self.writer = TaskRateWriter()
        self._worker = worker
        self._last_transfer: Any = next(reversed(worker.transfer_incoming_log), None)
        self.disk = _DiskMetrics(worker.digests_total)
        #: Bytes and messages so far by sender's address; further senders count as one.
        self._received: dict[str, list[int]] = {}

    def encode(self, used: dict[object, tuple[int, int]], *, cpu: int, core_wait: int | None = None) -> dict[str, Any]:
        """Task rates of a heartbeat, with nanoseconds: (CPU, wall) of running tasks, CPU of all, waits for a core."""
        self._read_transfers()
        waited = -1.0 if core_wait is None else core_wait / 1e9
        disk = self.disk.total(SECONDS), self.disk.total(BYTES)
        totals = (*disk, waited, time.process_time(), cpu / 1e9)
        longest = sorted(self._worker.state.executing, key=lambda ts: -used.get(ts.key, (0, 0))[1])
        running = [
            RunningTask(prefix_of(ts.prefix), used[ts.key][1] / 1e9, input_bytes(ts))
            for ts in longest[:MAX_RUNNING]
            if ts.key in used and used[ts.key][1] > LONG * 1e9 * self.counter.usual(prefix_of(ts.prefix))
        ]
        return self.writer.heartbeat(self.counter, totals, running)

    def transfers(self) -> dict[Metered, int]:
        """Bytes and messages of results so far: received from each worker, and sent to workers and clients."""
        self._read_transfers()
        worker, found = self._worker, {}
        for sender, amount in self._received.items():
            for unit, value in zip((BYTES, COUNT), amount, strict=True):
                found[Metered(TRANSFERS, "", sender, RECEIVED, unit)] = whole_number(value)
        found[Metered(TRANSFERS, "", "", SENT, BYTES)] = whole_number(worker.transfer_outgoing_bytes_total)
        found[Metered(TRANSFERS, "", "", SENT, COUNT)] = whole_number(worker.transfer_outgoing_count_total)
        return found

    def _read_transfers(self) -> None:
        """Count the transfers that were logged since the last call; the log is bounded."""
        new = []
        for entry in reversed(self._worker.transfer_incoming_log):
            if entry is self._last_transfer:
                break
            new.append(entry)
        for entry in reversed(new):
            sender, nbytes = fitting(entry["who"]), whole_number(entry["total"])
            self.counter.transfer(sender, seconds=float(entry["duration"]), nbytes=nbytes)
            if sender not in self._received and len(self._received) >= MAX_APART // 4:
                sender = ""
            received = self._received.setdefault(sender, [0, 0])
            received[0] += nbytes
            received[1] += 1
        if new:
            self._last_transfer = new[0]


def input_bytes(ts: TaskState) -> float:
    """Bytes of a task's inputs; an estimate if there are many."""
    count = len(ts.dependencies)
    looked_at = ts.dependencies if count <= MAX_INPUTS else islice(ts.dependencies, MAX_INPUTS)
    sizes: list[Any] = [dependency.nbytes for dependency in looked_at]
    if {*map(type, sizes)} != {int} or min(sizes) < 0:
        sizes = [*map(whole_number, sizes)]
    return max(1.0, count / MAX_INPUTS) * float(sum(sizes))
