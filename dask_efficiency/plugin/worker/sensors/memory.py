"""Memory: what the host has left of it, and what it reads and writes for lack of it."""

from __future__ import annotations

import os

from dask_efficiency.accounts.sensors.rates import Rates
from dask_efficiency.plugin.worker.sensors.files import KeptFiles, words_of
from dask_efficiency.plugin.worker.sensors.pressure import stalled_seconds

#: The rows of ``/proc/vmstat`` that count pages, by sensor.
_SWAP = {b"pswpin": "swap_in", b"pswpout": "swap_out"}

#: Bytes of the beginning of ``/proc/meminfo`` in which what is available stands.
_HEAD = 256


class Memory:
    """Reads ``/proc/meminfo``, ``vmstat`` and ``pressure``."""

    def __init__(self, proc: KeptFiles) -> None:
        self._proc = proc
        self._rates: Rates[str] = Rates()
        self._page = os.sysconf("SC_PAGE_SIZE")

    def read(self, at: float) -> dict[str, float]:
        """The sensors by name; see :mod:`dask_efficiency.accounts.sensors.names`."""
        counters: dict[str, float] = {}
        for name, pages in self._swapped():
            counters[name] = pages * self._page
        stalled = stalled_seconds(self._proc, "memory")
        if stalled is not None:
            counters["memory_pressure"] = stalled
        found = self._rates.take(counters, at=at)
        for words in words_of(self._proc.read("meminfo", _HEAD)):
            if words[0] == b"MemAvailable:":
                found["memory_available"] = 1024.0 * int(words[1])
        return found

    def _swapped(self) -> list[tuple[str, int]]:
        content = self._proc.read("vmstat")
        found = []
        for row, sensor in _SWAP.items():
            begin = content.find(b"\n" + row + b" ")
            if begin >= 0:
                found.append((sensor, int(content[begin + 2 + len(row) :].partition(b"\n")[0])))
        return found
