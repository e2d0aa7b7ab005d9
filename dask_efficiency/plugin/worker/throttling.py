"""Throttling: how long the control group's CPU limit has stopped its threads."""

from __future__ import annotations

import os
from pathlib import Path

from dask_efficiency.plugin.processors import own_cpu_limit_group

#: The file's size; the first lines are the ones that are read.
_MAX_BYTES = 2_048


class Throttling:
    """Reads how long threads were stopped because the CPU limit was used up.

    It sums over the CPUs on which the control group was stopped, for all processes in it: what one thread waited can
    only be estimated. Where there is no limit, nothing is read.
    """

    def __init__(self, group: Path | None) -> None:
        self._last = 0
        self._descriptor = -1
        if group is not None:
            try:
                self._descriptor = os.open(group / "cpu.stat", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:  # a limit, and no statistics
                self._descriptor = -1
        self._last = self._read()

    @classmethod
    def own(cls) -> Throttling:
        """Of the control group that limits this process most."""
        return cls(own_cpu_limit_group())

    @property
    def limited(self) -> bool:
        """Whether there is a limit, and it is told what it does."""
        return self._descriptor >= 0

    def more(self) -> int:
        """Nanoseconds since the last call. It may take a kernel some time to add up, in which the GIL is free."""
        now = self._read()
        more, self._last = max(0, now - self._last), now
        return more

    def close(self) -> None:
        """Read nothing any more."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _read(self) -> int:
        if self._descriptor < 0:
            return 0
        try:
            text = os.pread(self._descriptor, _MAX_BYTES, 0).decode(errors="replace")
        except OSError:
            return self._last
        words = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
        if "throttled_usec" in words:  # version 2
            return int(words["throttled_usec"]) * 1_000
        return int(words.get("throttled_time", 0))  # version 1: nanoseconds
