"""HostSensors: one reading of all sensors of a host; the cores, memory and disks are read here."""

from __future__ import annotations

import os
import re
from contextlib import ExitStack, closing
from pathlib import Path

from dask_efficiency.accounts.sensors import Rates
from dask_efficiency.plugin.worker.sensors.files import MAX_BYTES, KeptFiles, words_of
from dask_efficiency.plugin.worker.sensors.network import NetworkSensors, PauseFrames, Pauses, RdmaSensors
from dask_efficiency.plugin.worker.thread_clocks import HeldReader

#: Files of ``/proc/pressure`` by sensor.
_PRESSURES = {"cpu_pressure": "cpu", "memory_pressure": "memory", "disk_pressure": "io"}


class PressureSensors:
    """Reads ``/proc/pressure``: shares of time in which some thread waited."""

    def __init__(self, proc: KeptFiles) -> None:
        self._proc = proc
        self._rates: Rates[str] = Rates()

    def read(self, at: float) -> dict[str, float]:
        """The sensors by name; see :mod:`dask_efficiency.accounts.sensors`."""
        seconds: dict[str, float] = {}
        for sensor, resource in _PRESSURES.items():
            line = self._proc.read(f"pressure/{resource}").partition(b"\n")[0]
            total = line.rpartition(b"total=")[2]
            if line.startswith(b"some ") and total.isdigit():
                seconds[sensor] = int(total) / 1e6
        return self._rates.take(seconds, at=at)


#: Cores whose clock is read, evenly spread: reading one may interrupt it.
MAX_CORES = 8

#: In ``/proc/stat``: user, nice, system, idle, iowait, irq, softirq, steal.
_TIMES = 8
#: Columns of times without computing.
_IDLE, _IOWAIT, _STEAL = 3, 4, 7

_CPU = "devices/system/cpu"


class CoreSensors:
    """Reads ``/proc/stat`` and ``loadavg``, and the clocks below ``/sys``."""

    def __init__(self, proc: KeptFiles, sys: KeptFiles) -> None:
        self._proc, self._sys = proc, sys
        self._rates: Rates[str] = Rates()
        cores = [name for name in sys.names(_CPU) if name.startswith("cpu") and name[3:].isdigit()]
        self._count = len(cores) or os.cpu_count() or 1
        some = cores[:: max(1, -(-len(cores) // MAX_CORES))]
        self._clocks = [f"{_CPU}/{core}/cpufreq/scaling_cur_freq" for core in some]
        self._throttles = [f"{_CPU}/{core}/thermal_throttle/core_throttle_count" for core in some]

    def read(self, at: float) -> dict[str, float]:
        """The sensors by name; see :mod:`dask_efficiency.accounts.sensors`."""
        counters: dict[str, float] = {}
        head = self._proc.read("stat", 256).partition(b"\n")[0].split()
        if len(head) > _TIMES and head[0] == b"cpu":
            times = [int(word) for word in head[1 : 1 + _TIMES]]
            counters["all"] = sum(times)
            counters["computing"] = counters["all"] - times[_IDLE] - times[_IOWAIT] - times[_STEAL]
            counters["stolen"] = times[_STEAL]
        for path in self._throttles:
            if (count := self._sys.number(path)) is not None:
                counters[path] = count
        rates = self._rates.take(counters, at=at)
        found = self._now()
        everything = rates.get("all", 0)
        if everything > 0:
            for sensor, part in (("host_cpu", "computing"), ("steal", "stolen")):
                if part in rates:
                    found[sensor] = rates[part] / everything
        throttles = [rates[path] for path in self._throttles if path in rates]
        if throttles:
            found["cpu_throttles"] = sum(throttles)
        return found

    def _now(self) -> dict[str, float]:
        found = {}
        load = self._proc.read("loadavg").split()
        if len(load) > 3:
            running = load[3].partition(b"/")[0]
            # The reading thread runs too.
            found["run_queue"] = max(int(running) - 1, 0) / self._count
        clocks = [clock for path in self._clocks if (clock := self._sys.number(path)) is not None]
        if clocks:
            found["cpu_clock"] = 1e3 * sum(clocks) / len(clocks)
        return found


#: The rows of ``/proc/vmstat`` that count pages, by sensor.
_SWAP = {b"pswpin": "swap_in", b"pswpout": "swap_out"}

#: Bytes of ``/proc/meminfo`` up to the available memory.
_HEAD = 256


class MemorySensors:
    """Reads ``/proc/meminfo`` and ``vmstat``."""

    def __init__(self, proc: KeptFiles) -> None:
        self._proc = proc
        self._rates: Rates[str] = Rates()
        self._page = os.sysconf("SC_PAGE_SIZE")

    def read(self, at: float) -> dict[str, float]:
        """The sensors by name; see :mod:`dask_efficiency.accounts.sensors`."""
        content, swapped = self._proc.read("vmstat"), {}
        for row, sensor in _SWAP.items():
            begin = content.find(b"\n" + row + b" ")
            if begin >= 0:
                pages = content[begin + 2 + len(row) :].partition(b"\n")[0]
                swapped[sensor] = float(int(pages) * self._page)
        found = self._rates.take(swapped, at=at)
        for words in words_of(self._proc.read("meminfo", _HEAD)):
            if words[0] == b"MemAvailable:":
                found["memory_available"] = 1024.0 * int(words[1])
        return found


#: Whole disks: partitions, and devices made of disks, would count the same requests again.
_DISK = re.compile(rb"(?:sd[a-z]+|vd[a-z]+|xvd[a-z]+|hd[a-z]+|dasd[a-z]+|nvme\d+n\d+|mmcblk\d+)\Z")

#: Disks that are read; of more, the first. A guess, to bound the cost.
MAX_DISKS = 64

#: Columns of ``/proc/diskstats``: name; reads and their milliseconds; writes and their milliseconds; milliseconds with
#: any request under way. The milliseconds have 32 bits and wrap.
_NAME, _READS, _READ_MS, _WRITES, _WRITE_MS, _BUSY_MS = 2, 3, 6, 7, 10, 12


class DiskSensors:
    """Reads ``/proc/diskstats``."""

    def __init__(self, proc: KeptFiles) -> None:
        self._proc = proc
        self._rates: Rates[tuple[bytes, int]] = Rates()

    def read(self, at: float) -> dict[str, float]:
        """The sensors by name; see :mod:`dask_efficiency.accounts.sensors`."""
        counters: dict[tuple[bytes, int], float] = {}
        disks: list[bytes] = []
        for words in words_of(self._proc.read("diskstats")):
            if len(words) > _BUSY_MS and _DISK.match(words[_NAME]) and len(disks) < MAX_DISKS:
                disks.append(words[_NAME])
                for column in (_READS, _READ_MS, _WRITES, _WRITE_MS, _BUSY_MS):
                    counters[words[_NAME], column] = int(words[column])
        rates = self._rates.take(counters, at=at)
        found = {}
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


class HostSensors:
    """Reads all sensors of a host; OSError, AttributeError or TypeError if it has no such files or functions.

    ``pauses`` counts the pause frames of an interface; by default from its driver.
    """

    def __init__(self, proc: str = "/proc", sys: str = "/sys", pauses: Pauses | None = None) -> None:
        self._opened = ExitStack()
        reader = self._opened.enter_context(closing(HeldReader(MAX_BYTES)))
        if pauses is None:
            pauses = self._opened.enter_context(closing(PauseFrames()))
        files = self._opened.enter_context(closing(KeptFiles(Path(proc), reader)))
        drivers = self._opened.enter_context(closing(KeptFiles(Path(sys))))
        self._sources = (
            *(CoreSensors(files, drivers), MemorySensors(files), DiskSensors(files), PressureSensors(files)),
            *(NetworkSensors(files, drivers, pauses), RdmaSensors(drivers)),
        )

    def read(self, at: float) -> dict[str, float]:
        """Values now, in seconds of a clock that is never set, of the HOST_SENSORS that the host has.

        Rates are since the reading before.
        """
        found: dict[str, float] = {}
        for source in self._sources:
            found |= source.read(at)
        return found

    def close(self) -> None:
        """Give the descriptors back; safe to call twice."""
        self._opened.close()
