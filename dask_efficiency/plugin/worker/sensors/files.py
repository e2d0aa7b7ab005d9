"""KeptFiles: files of the kernel that are opened once and read again and again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from dask_efficiency.plugin.thread_clocks import HeldReader

#: Bytes read of a file at most: ``/proc/diskstats`` of hundreds of disks.
MAX_BYTES = 1 << 16
#: Bytes below which an answer is the last: the kernel fills at least half a page, as lines are shorter than that.
_MIN_OF_PAGE = 2048


#: Devices of a kind, such as disks, that are read; of more, the first. A guess, to bound the cost.
MAX_DEVICES = 64
#: Counts so far by sensor and device, which is "" where there is only one; they become rates.
Counters = dict[tuple[str, str], float]


class KeptFiles:
    """Reads files below a folder that is ``/proc``, ``/sys``, or looks like it; a missing file stays missing.

    With a reader, the GIL is held: after a release, a thread waits up to 5 ms to get it back while tasks compute. None
    for files on which the kernel may sleep, such as those that ask the firmware of a network card.
    """

    def __init__(self, root: Path, reader: HeldReader | None = None) -> None:
        self.root, self._reader = root, reader
        self._kept: dict[str, int] = {}

    def read(self, path: str, nbytes: int = MAX_BYTES) -> bytes:
        """Content of a file; empty if it is missing, or cannot be read now."""
        descriptor = self._kept.get(path)
        if descriptor is None:
            descriptor = -1
            with suppress(OSError):
                descriptor = os.open(self.root / path, os.O_RDONLY | os.O_CLOEXEC)
            self._kept[path] = descriptor
        if descriptor < 0:
            return b""
        content = more = self._once(descriptor, nbytes, 0)
        # The kernel answers a page of whole lines at a time, however much is asked for.
        while len(more) > _MIN_OF_PAGE and len(content) < nbytes:
            more = self._once(descriptor, nbytes - len(content), len(content))
            content += more
        return content

    def _once(self, descriptor: int, nbytes: int, offset: int) -> bytes:
        if self._reader is not None:
            return self._reader.read(descriptor, offset, nbytes)
        with suppress(OSError):
            return os.pread(descriptor, nbytes, offset)
        return b""

    def number(self, path: str) -> float | None:
        """Number in a file; None if there is none."""
        try:
            return float(self.read(path, 64))
        except ValueError:
            return None

    def names(self, folder: str) -> list[str]:
        """Sorted names in a folder; empty if it is missing."""
        with suppress(OSError):
            return sorted(os.listdir(self.root / folder))
        return []

    def close(self) -> None:
        """Give the descriptors back; safe to call twice."""
        kept, self._kept = self._kept, {}
        for descriptor in kept.values():
            if descriptor >= 0:
                os.close(descriptor)


def words_of(content: bytes) -> Iterator[list[bytes]]:
    """Words of each line that has any, without a line that was cut off."""
    for line in content.split(b"\n")[:-1]:
        words = line.split()
        if words:
            yield words
