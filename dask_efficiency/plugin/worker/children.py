"""Children: CPU time of the processes that tasks started and wait for."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from contextlib import suppress

#: Nanoseconds between two readings: they open files, at some twenty microseconds each.
READ_NS = 1_000_000_000
#: Nanoseconds after a reading from which it is too old: what was used since is of nobody's waiting now.
OLD_NS = 3 * READ_NS
#: Processes that are read. A guess, to bound the cost: of more, the rest counts as it ends.
MAX_CHILDREN = 32
#: Nanoseconds of a tick of the kernel's clock, in which a process's CPU time is given.
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0


def has_children() -> bool:
    """True if this process has started others by ``multiprocessing``, as pools of processes do."""
    return bool(getattr(sys.modules.get("multiprocessing.process"), "_children", ()))


class Children:
    """Reads what processes used that threads of this one started: those that live, and all that have ended.

    A process that ends is counted by the kernel with all that ended before it, once it has been waited for.
    """

    def __init__(self) -> None:
        self._living: dict[int, int] = {}
        self._ended = _ended()
        self._read_at = 0
        #: Seconds since the machine started, as of the last reading: processes that are younger are counted as a whole.
        self._booted_for = _since_boot()

    def used(self, threads: Iterable[int], at: int) -> int:
        """CPU nanoseconds since the last reading, of the children of threads by native id.

        0 if that was just now, or long ago: then it begins anew.
        """
        elapsed = at - self._read_at
        if elapsed < READ_NS:
            return 0
        self._read_at, last, self._booted_for = at, self._booted_for, _since_boot()
        known = {pid for native_id in threads for pid in _started_by(native_id)} | self._living.keys()
        read = {pid: found for pid in sorted(known)[:MAX_CHILDREN] if (found := _read(pid)) is not None}
        before = sum(self._living.get(pid, 0 if started >= last else ns) for pid, (ns, started) in read.items())
        before += sum(ns for pid, ns in self._living.items() if pid not in read)
        ended = _ended()
        more = ended - self._ended + sum(ns for ns, _ in read.values()) - before
        self._living, self._ended = {pid: ns for pid, (ns, _) in read.items()}, ended
        return 0 if elapsed > OLD_NS else min(max(0, more), elapsed * (os.cpu_count() or 1))


def _ended() -> int:
    """CPU nanoseconds of all children that have ended."""
    import resource  # not on Windows, where no thread is sampled

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round((used.ru_utime + used.ru_stime) * 1e9)


def _started_by(native_id: int) -> list[int]:
    with suppress(OSError, ValueError), open(f"/proc/self/task/{native_id}/children", "rb") as file:
        return [int(pid) for pid in file.read().split()]
    return []  # the kernel does not list them, or the thread has ended


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else 0.0


def _read(pid: int) -> tuple[int, float] | None:
    """CPU nanoseconds of a living process and of its children that ended, and the latest it started, since boot.

    None if there is no such process.
    """
    with suppress(OSError, ValueError):
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b") ")[2].split()
        return sum(map(int, words[11:15])) * _TICK_NS, (int(words[19]) + 1) * _TICK_NS / 1e9
    return None
