"""ProcessMemory: memory of this process and its peaks, by the kernel, for the workers and tasks in it.

Theory of operation
===================

Linux keeps the most memory that a process ever had (``VmHWM``), and lets the process set that back to what it has now:
``5`` written to ``/proc/self/clear_refs``. So each reading here tells the peak since the reading before, and no peak
falls between two. A reading takes some 15 us; there is one

- at the beginning and at the end of each task of :data:`MIN_TASK_NS` and more. How long a task will take is not known
  when it begins: it is read there if the task before was as long, or ended as long ago; a task whose beginning was not
  read, or that was shorter, is not measured;
- at each heartbeat, and where a window opens or closes.

What a task took is the highest peak of the readings since its beginning, less what there was at that, both without the
results that are held. It includes the result that it makes, until that is stored, and data that arrive meanwhile. Where
other tasks ran beside it, all of them together took that, and it counts with an equal share.

Where the system does not allow the reset, a peak is known only if it is higher than any before, and else that of the
reading stands for it. Off Linux nothing is measured.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic_ns
from typing import NamedTuple

from dask_efficiency.accounts.memory import Worked

#: Nanoseconds from which a task is measured: readings are 0.3 % of it. By judgement.
MIN_TASK_NS = 10_000_000
#: Peaks that are kept for running tasks, of which a later and higher one replaces those before. A guess.
MAX_PEAKS = 1_000
_STATUS, _CLEAR_REFS = "/proc/self/status", "/proc/self/clear_refs"
#: Bytes that are read of the status, which has some 1,500.
_MAX_STATUS = 8_192


class MemoryReading(NamedTuple):
    """Memory of the process at an instant, in bytes."""

    at: int
    resident: int
    #: The most since the last reading.
    peak: int
    #: Results in memory of all workers of the process.
    held: int


class Begun(NamedTuple):
    """The beginning of a task: its instant, memory beyond results, and how many ran beside it."""

    at: int
    beyond: int
    others: int


class ProcessMemory:
    """Reads the memory of this process, for all its workers; called in any thread."""

    def __init__(self) -> None:
        self._status = self._reset = -1
        self._begin()

    def _begin(self) -> None:
        #: Held while workers hear of a reading; a failure in what hears of it ends the readings.
        self.lock = threading.RLock()
        #: The most that the kernel told last.
        self._most = 0
        #: By worker: its results in memory now, and what hears of each reading.
        self._workers: dict[object, tuple[Callable[[], int], Callable[[MemoryReading], object]]] = {}
        #: Results in memory at the last reading.
        self._held = 0
        #: Instants and peaks beyond results, the highest first.
        self._peaks: deque[tuple[int, int]] = deque(maxlen=MAX_PEAKS)
        #: End of the last task, and the earliest start of the next one that is measured; set by whoever runs tasks.
        self.ended = self.measures_from = 0

    def join(self, worker: object, held: Callable[[], int], heard: Callable[[MemoryReading], object]) -> None:
        """Begin to read for a worker, which has its results measured by ``held``; it is ``heard`` of each reading."""
        with self.lock:
            self._workers[worker] = held, heard
            if self._status < 0 and sys.platform == "linux":
                self._open()

    def leave(self, worker: object) -> None:
        """Read no more for a worker."""
        with self.lock:
            self._workers.pop(worker, None)
            if not self._workers:
                self._close()

    def forked(self) -> None:
        """Begin anew in a child, without the parent's workers, files and lock."""
        with suppress(OSError):  # another thread was closing them
            self._close()
        self._status = self._reset = -1
        self._begin()

    def _close(self) -> None:
        for descriptor in (self._status, self._reset):
            if descriptor >= 0:
                os.close(descriptor)
        self._status = self._reset = -1

    def _open(self) -> None:
        try:
            self._status = os.open(_STATUS, os.O_RDONLY | os.O_CLOEXEC)
            _, self._most = self._figures()
        except (OSError, ValueError):  # no such file, or without these lines
            self._close()
            return
        try:
            self._reset = os.open(_CLEAR_REFS, os.O_WRONLY | os.O_CLOEXEC)
            os.write(self._reset, b"5")
        except OSError:  # a sandbox
            self._reset = -1

    def _figures(self) -> tuple[int, int]:
        """Bytes of the process now, and the most by the kernel."""
        text = os.pread(self._status, _MAX_STATUS, 0)
        return _bytes_of(text, b"VmRSS:"), _bytes_of(text, b"VmHWM:")

    def read(self) -> MemoryReading | None:
        """Memory now, and its peak since the last call; None if it is not measured."""
        with self.lock:
            if self._status < 0:
                return None
            try:
                resident, most = self._figures()
                if self._reset >= 0:
                    os.write(self._reset, b"5")
            except (OSError, ValueError):
                self._close()
                return None
            peak = most if self._reset >= 0 or most > self._most else resident
            self._most = most
            before, self._held = self._held, sum(held() for held, _ in list(self._workers.values()))
            reading = MemoryReading(monotonic_ns(), resident, max(peak, resident), self._held)
            beyond, peaks = reading.peak - max(before, self._held), self._peaks
            while peaks and peaks[-1][1] <= beyond:
                peaks.pop()
            peaks.append((reading.at, beyond))
            for _, heard in list(self._workers.values()):
                heard(reading)
            return reading

    def begin(self, others: int) -> Begun | None:
        """Measure from here on, as a task begins beside others; None if it is not measured."""
        reading = self.read()
        return None if reading is None else Begun(reading.at, reading.resident - reading.held, others)

    def end(self, begun: Begun, others: int) -> Worked | None:
        """Memory of a task that ends beside others, before it is noted that it :attr:`ended`; None if unknown."""
        if (reading := self.read()) is None:
            return None
        with self.lock:
            most = max(0, next((beyond for at, beyond in self._peaks if at > begun.at), 0) - begun.beyond)
        others = max(others, begun.others)
        alone = not others and self.ended < begun.at and len(self._workers) == 1
        return Worked(most // (others + 1), begun.beyond, reading.resident - reading.held - begun.beyond, alone)


def _bytes_of(status: bytes, name: bytes) -> int:
    """A figure of the status, which has kibibytes."""
    begin = status.index(name) + len(name)
    return int(status[begin : status.index(b"kB", begin)]) << 10


#: The process of this module's workers.
PROCESS_MEMORY = ProcessMemory()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=PROCESS_MEMORY.forked)
