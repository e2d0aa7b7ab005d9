"""Memory of a simulated worker: Dask's spill buffer on a disk that takes virtual time, and its memory monitor."""

from __future__ import annotations

from collections import UserDict
from collections.abc import MutableMapping
from typing import Any

import dask
import zict

from dask_efficiency.simulation.model.disk import Disk

#: Dask's names of the thresholds that are shares of a worker's memory limit.
_THRESHOLDS = ("target", "spill", "pause", "terminate")


class Result:
    """Result of a task, with a size and no content."""

    __slots__ = ("__weakref__", "nbytes")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes

    def __sizeof__(self) -> int:
        return self.nbytes


class _Files(UserDict[Any, Any]):
    """Spilled results by size; counts the time of writing and reading them."""

    def __init__(self, disk: Disk) -> None:
        super().__init__()
        self._disk, self.nbytes = disk, 0
        #: Nanoseconds that no event loop has waited for yet.
        self.writing = self.reading = 0

    def __setitem__(self, key: Any, result: Result) -> None:
        self.data[key] = result.nbytes
        self.nbytes += result.nbytes
        self.writing += self._disk.writing(result.nbytes)

    def __getitem__(self, key: Any) -> Result:
        nbytes = self.data[key]
        self.reading += self._disk.reading(nbytes)
        # A result that is read back is another object than the one that was written.
        return Result(nbytes)

    def __delitem__(self, key: Any) -> None:
        self.nbytes -= self.data.pop(key)


class WorkerMemory:
    """Results of a worker, in memory and on disk; those of all tasks take at most ``most`` bytes."""

    def __init__(self, limit: int, unmanaged: int, disk: Disk | None, *, most: float = float("inf")) -> None:
        self._shares = {name: dask.config.get(f"distributed.worker.memory.{name}") for name in _THRESHOLDS}
        self._above = {name: share * limit if share and limit else float("inf") for name, share in self._shares.items()}
        self._unmanaged = unmanaged
        #: Most bytes of all its results, in memory and on disk.
        self.peak = 0
        self._files = _Files(disk or Disk())
        self._buffer: zict.Buffer[Any, Result] | None = None
        #: True if memory can get so full that something happens.
        self.limited = disk is not None and min(self._above["spill"], self._above["pause"]) < unmanaged + most
        if disk is not None and self._above["target"] < most:
            slow = zict.Cache(self._files, zict.WeakValueMapping())
            self._buffer = zict.Buffer({}, slow, n=self._above["target"], weight=lambda key, result: result.nbytes)
        #: Mapping in which Dask's worker keeps results.
        self.data: MutableMapping[Any, Result] = {} if self._buffer is None else self._buffer

    @property
    def spilled(self) -> int:
        """Bytes on disk."""
        return self._files.nbytes

    @property
    def needed(self) -> int:
        """Memory limit with which it would neither have spilled nor paused."""
        process = self._unmanaged + self.peak
        peaks = {"target": self.peak, "spill": process, "pause": process}
        return round(
            max((nbytes / self._shares[name] for name, nbytes in peaks.items() if self._shares[name]), default=0)
        )

    def process(self, managed: int) -> int:
        """Compute the bytes of the process from those of all its results."""
        return self._unmanaged + managed - self._files.nbytes

    def exceeds(self, threshold: str, managed: int) -> bool:
        """True if the process uses more than one of Dask's thresholds."""
        return self.process(managed) > self._above[threshold]

    def waited(self) -> tuple[int, int]:
        """Nanoseconds of writing and of reading since the last call."""
        files = self._files
        times = files.writing, files.reading
        files.writing = files.reading = 0
        return times

    def full(self, managed: int) -> bool:
        """True if the memory monitor would spill or pause."""
        return self.process(managed) > min(self._above["spill"], self._above["pause"])

    def evict(self, managed: int) -> None:
        """Spill the least recently used results if too much memory is used, as the memory monitor does."""
        if self._buffer is not None and self.exceeds("spill", managed):
            while self._buffer.fast and self.exceeds("target", managed):
                self._buffer.fast.evict()
