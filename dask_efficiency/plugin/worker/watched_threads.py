"""WatchedThreads and LibraryThreads: the threads of a worker's process, and what each used since the last look."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from distributed import Scheduler, Worker

from dask_efficiency.accounts.lines import Stack
from dask_efficiency.accounts.worker.waiting import Key
from dask_efficiency.plugin.thread_clocks import HeldReader, ThreadClocks, ThreadFiles, cpu_clock
from dask_efficiency.plugin.worker.wait_states import RUNNING

#: Threads of Python that are looked at; further ones count as a library's while tasks are sampled. A guess, to bound
#: the cost of a look.
MAX_THREADS = 256
#: Threads that neither Dask nor Python started, whose stacks are looked at as holders of locks. A guess, as above.
MAX_FOREIGN = 16
#: Prefixes of the names of threads that Dask, Python and this package start for themselves.
DASK_NAMES = ("MainThread", "IO loop", "Profile", "Dask", "TCP-Executor", "AsyncProcess", "asyncio_", "dask-efficiency")


class Watched:
    """Thread that runs tasks, with the nanoseconds of its present task that have no witness yet."""

    def __init__(self, files: ThreadFiles, clocks: ThreadClocks, at: int) -> None:
        self.files = files
        #: Last reading, and its instant.
        self.clocks, self.at = clocks, at
        #: Start of its present task, and its span and prefix; -1 and None between tasks.
        self.start = -1
        self.key: Key | None = None
        #: Last state, and stack then; None once the state may have changed.
        self.state: str | None = None
        self.stack: Stack = ()
        #: True if it was in Python code there, and in no function of C.
        self.interprets = False
        #: True if it waits at a lock that is polled, and so for no thread of a library.
        self.polls = False
        #: First content of its ``syscall`` file in this look; empty if it was not read.
        self.glimpse = b""
        #: Its CPU clock just before its clocks were read: unchanged while the thread sleeps.
        self.slept_since = -1
        #: Last look that saw it run a task.
        self.looked = -1
        self.cpu = 0
        #: Neither on a CPU nor ready to run; negative if a reading came late.
        self.rest = 0
        #: Likewise since the last look of the sampler's thread, with or without a witness.
        self.recent = 0

    def read(self, clocks: ThreadClocks, at: int) -> int:
        """Add the use since the last reading to its present task; returns its wait for a core."""
        before = self.clocks
        core = max(0, clocks.core - before.core)
        cpu = max(0, clocks.cpu - before.cpu)
        rest = at - self.at - cpu - core
        self.cpu += cpu
        self.rest += rest
        self.recent += rest
        if clocks is not before and clocks.turns != before.turns:
            self.state = None
        self.clocks, self.at = clocks, at
        return core

    def begin(self, start: int, key: Key | None) -> None:
        """Begin another task."""
        self.start, self.key = start, key
        self.cpu = self.rest = self.recent = 0
        self.state = None


class WatchedThreads:
    """Finds the threads of this process, and keeps open files of each that runs tasks on one of the executors."""

    def __init__(self, reader: HeldReader, executors: Mapping[str, Any]) -> None:
        self._reader, self._executors = reader, executors
        self._found: list[threading.Thread] = []
        #: Native ids of threads that were there before any task.
        self._first = {thread.native_id for thread in threading.enumerate()}
        self._watched: dict[int, Watched] = {}
        self._others: dict[int, ThreadFiles] = {}
        self.python: dict[int, threading.Thread] = {}
        #: Idents of those that belong to no library.
        self._known: set[int] = set()
        #: CPU nanoseconds of each of Python's threads by ident, now and at the look before.
        self._cpu: dict[int, int] = {}
        self._cpu_before: dict[int, int] = {}
        self._process = time.process_time_ns()
        self._debt = 0
        self.look()

    def close(self) -> None:
        """Give all descriptors back."""
        for files in (*(watched.files for watched in self._watched.values()), *self._others.values()):
            files.close()
        self._watched.clear()
        self._others.clear()

    def look(self) -> None:
        """Find the present threads of Python."""
        # Without threads that are just starting: they have no ids yet.
        found = [thread for thread in threading.enumerate() if thread.native_id is not None]
        if found != self._found:
            self._found = found
            self._sort()

    def _sort(self) -> None:
        self.python = {thread.ident: thread for thread in self._found[:MAX_THREADS] if thread.ident is not None}
        pools = (getattr(executor, "_threads", ()) for executor in self._executors.values())
        ours = {thread.native_id for pool in pools for thread in list(pool)} | self._first
        named = ((ident, thread.native_id, thread.name) for ident, thread in self.python.items())
        self._known = {ident for ident, native_id, name in named if native_id in ours or name.startswith(DASK_NAMES)}
        for ident in self._watched.keys() - self.python.keys():
            self._watched.pop(ident).files.close()
        for ident in self._others.keys() - self.python.keys():
            self._others.pop(ident).close()

    def task_thread(self, ident: int, at: int) -> tuple[Watched, ThreadClocks] | None:
        """Thread that runs a task, and its clocks now; None if it has just ended, or beyond :data:`MAX_THREADS`."""
        watched = self._watched.get(ident)
        if watched is not None:
            cpu = cpu_clock(watched.files.native_id)
            if watched.slept_since == cpu and watched.state not in (None, RUNNING):
                return watched, watched.clocks  # it has not run since
            clocks = watched.files.clocks()
            if clocks is not None:
                watched.slept_since = cpu
                return watched, clocks
            self._watched.pop(ident).files.close()  # its ident was reused
        files = self._open(ident)
        clocks = files.clocks() if files is not None else None
        if files is None or clocks is None:
            return None
        watched = self._watched[ident] = Watched(files, clocks, at)
        return watched, clocks

    def glimpse(self) -> None:
        """Read the calls of threads with tasks before a look, in which those that had just waited wait for the GIL."""
        for watched in self._watched.values():
            watched.glimpse = watched.files.syscall()

    def other(self, ident: int) -> ThreadFiles | None:
        """Files of a thread of Python that runs no task."""
        files = self._others.get(ident)
        if files is not None and files.native_id != self.python[ident].native_id:
            self._others.pop(ident).close()
            files = None
        if files is None and (files := self._open(ident)) is not None:
            self._others[ident] = files
        return files

    def _open(self, ident: int) -> ThreadFiles | None:
        thread = self.python.get(ident)
        if thread is None or thread.native_id is None:
            return None
        try:
            return ThreadFiles(self._reader, thread.native_id)
        except OSError:
            return None

    @property
    def foreign(self) -> list[int]:
        """Idents of threads that others started, at most :data:`MAX_FOREIGN`."""
        return list(self.python.keys() - self._known)[:MAX_FOREIGN]

    @property
    def native_ids(self) -> set[int]:
        """Native ids of the threads of Python."""
        return {thread.native_id for thread in self._found if thread.native_id is not None}

    def read_cpu(self) -> int:
        """Read the CPU time of all threads of Python, and return the nanoseconds that threads of libraries computed.

        Since the last call: time of the process, less that of Dask's threads, of threads that run tasks, and of ours. 0
        if the process has several workers or a scheduler.
        """
        process = time.process_time_ns()
        before = self._cpu_before = self._cpu
        now = self._cpu = {
            ident: cpu_clock(thread.native_id) for ident, thread in self.python.items() if thread.native_id is not None
        }
        more, self._process = process - self._process, process
        if len(Worker._instances) > 1 or Scheduler._instances or not before:
            return 0
        known = self._known
        ours = sum([max(0, cpu - before.get(ident, 0)) for ident, cpu in now.items() if ident in known])
        # The clock of the process lags, by up to a tick of the kernel for each running thread: that evens out.
        computed = more - ours + self._debt
        self._debt = max(min(0, computed), -more)
        return max(0, computed)

    def cpu_of(self, ident: int) -> int:
        """CPU nanoseconds of a thread between the last two readings."""
        return max(0, self._cpu.get(ident, 0) - self._cpu_before.get(ident, 0))


_TASKS = "/proc/self/task"
#: Threads of libraries that are read; of more, these stand for all.
MAX_LIBRARY_THREADS = 32
#: Nanoseconds between two searches for them.
FIND_NS = 1_000_000_000
#: Nanoseconds after which a reading is too old for the time since the last look.
MAX_AGE_NS = 2_000_000_000


class LibraryThreads:
    """Reads the waits for a core of threads that are not Python's.

    Such are threads of Arrow, BLAS and OpenMP: a task that waits for them waits for a core as long as they do.
    """

    def __init__(self, reader: HeldReader) -> None:
        self._reader = reader
        #: Descriptors by native id, and last readings.
        self._kept: dict[int, int] = {}
        self._waited: dict[int, int] = {}
        self._count = 0
        self._found_at: int | None = None
        self._read_at = 0

    def close(self) -> None:
        """Give all descriptors back."""
        for descriptor in self._kept.values():
            os.close(descriptor)
        self._kept.clear()

    def find(self, python: Collection[int], at: int) -> None:
        """Search for them, unless that was done just now; ``python`` has native ids of Python's threads."""
        if self._found_at is not None and at - self._found_at < FIND_NS:
            return
        self._found_at = at
        found = {int(name) for name in os.listdir(_TASKS)} - set(python)
        self._count = len(found)
        for native_id in [native_id for native_id in self._kept if native_id not in found]:
            os.close(self._kept.pop(native_id))
        for native_id in sorted(found - self._kept.keys())[: MAX_LIBRARY_THREADS - len(self._kept)]:
            with suppress(OSError):  # it has just ended
                self._kept[native_id] = os.open(f"{_TASKS}/{native_id}/schedstat", os.O_RDONLY | os.O_CLOEXEC)

    def core_wait(self, at: int) -> int:
        """Nanoseconds that all of them have waited for a core since the last call; 0 if that was long ago."""
        more = 0
        for native_id, descriptor in self._kept.items():
            words = self._reader.read(descriptor).split()
            if len(words) == 3:
                waited = int(words[1])
                more += max(0, waited - self._waited.get(native_id, waited))
                self._waited[native_id] = waited
        age, self._read_at = at - self._read_at, at
        if age > MAX_AGE_NS or not self._kept:
            return 0
        return more * max(self._count, len(self._kept)) // len(self._kept)
