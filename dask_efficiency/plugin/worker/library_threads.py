"""LibraryThreads: how long threads that are not Python's waited for a core."""

from __future__ import annotations

import os
from collections.abc import Collection

from dask_efficiency.plugin.worker.thread_clocks import HeldReader

_TASKS = "/proc/self/task"

#: Threads that are read; of more, so many stand for all.
MAX_THREADS = 32

#: Nanoseconds between two times that they are looked for.
FIND_NS = 1_000_000_000

#: Nanoseconds after which a reading says nothing of the time since the last look.
MAX_AGE_NS = 2_000_000_000


class LibraryThreads:
    """Reads for how long threads that are not Python's were ready to run and waited for a core.

    Arrow's, BLAS's and OpenMP's are: a task that waits for them waits for a core as long as they do.

    Parameters
    ----------
    reader
        Reads their files.
    """

    def __init__(self, reader: HeldReader) -> None:
        self._reader = reader
        #: Descriptors by native id, and what was read last.
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
        """Look for them, unless that was done just now; ``python`` are native ids of the threads that are not meant."""
        if self._found_at is not None and at - self._found_at < FIND_NS:
            return
        self._found_at = at
        found = {int(name) for name in os.listdir(_TASKS)} - set(python)
        self._count = len(found)
        for native_id in [native_id for native_id in self._kept if native_id not in found]:
            os.close(self._kept.pop(native_id))
        for native_id in sorted(found - self._kept.keys())[: MAX_THREADS - len(self._kept)]:
            try:
                descriptor = os.open(f"{_TASKS}/{native_id}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:  # it has just ended
                continue
            self._kept[native_id] = descriptor

    def core_wait(self, at: int) -> int:
        """Nanoseconds that all of them together have waited for a core since the last call; 0 if that is long ago."""
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
