"""Disks: how busy they are, and how long a request takes."""

from __future__ import annotations

import re

from dask_efficiency.accounts.sensors.rates import Rates
from dask_efficiency.plugin.worker.sensors.files import KeptFiles, words_of
from dask_efficiency.plugin.worker.sensors.pressure import stalled_seconds

#: Whole disks. Partitions, and what is made of several disks, would count the same requests once more.
_DISK = re.compile(rb"(?:sd[a-z]+|vd[a-z]+|xvd[a-z]+|hd[a-z]+|dasd[a-z]+|nvme\d+n\d+|mmcblk\d+)\Z")

#: Disks that are read; of more, the first.
MAX_DISKS = 64

#: In ``/proc/diskstats``: the name; reads and milliseconds of them, writes and milliseconds of them; milliseconds in
#: which any request was on its way. The milliseconds are of 32 bits, and begin anew.
_NAME, _READS, _READ_MS, _WRITES, _WRITE_MS, _BUSY_MS = 2, 3, 6, 7, 10, 12


class Disks:
    """Reads ``/proc/diskstats`` and ``pressure``."""

    def __init__(self, proc: KeptFiles) -> None:
        self._proc = proc
        self._rates: Rates[tuple[bytes, int]] = Rates()
        self._stalled: Rates[str] = Rates()

    def read(self, at: float) -> dict[str, float]:
        """The sensors by name; see :mod:`dask_efficiency.accounts.sensors.names`."""
        counters: dict[tuple[bytes, int], float] = {}
        disks: list[bytes] = []
        for words in words_of(self._proc.read("diskstats")):
            if len(words) > _BUSY_MS and _DISK.match(words[_NAME]) and len(disks) < MAX_DISKS:
                disks.append(words[_NAME])
                for column in (_READS, _READ_MS, _WRITES, _WRITE_MS, _BUSY_MS):
                    counters[words[_NAME], column] = int(words[column])
        rates = self._rates.take(counters, at=at)
        stalled = stalled_seconds(self._proc, "io")
        found = self._stalled.take({} if stalled is None else {"disk_pressure": stalled}, at=at)
        busy = [rates[disk, _BUSY_MS] / 1e3 for disk in disks if (disk, _BUSY_MS) in rates]
        if busy:
            found["disk_busy"] = min(max(busy), 1.0)
        requests = took = 0.0
        for disk in disks:
            for count, spent in ((_READS, _READ_MS), (_WRITES, _WRITE_MS)):
                if (disk, count) in rates and (disk, spent) in rates:
                    requests += rates[disk, count]
                    took += rates[disk, spent] / 1e3
        if requests > 0:
            found["disk_wait"] = took / requests
        return found
