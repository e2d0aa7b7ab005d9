"""HostSensors: one reading of all sensors of a host; the cores, memory and disks are read here."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from dask_efficiency.accounts.sensors import Rates
from dask_efficiency.plugin.worker.sensors.files import MAX_BYTES, KeptFiles, words_of
from dask_efficiency.plugin.worker.sensors.network import NetworkSensors, PauseFrames, Pauses, RdmaSensors
from dask_efficiency.plugin.worker.thread_clocks import HeldReader


def stalled_seconds(proc: KeptFiles, resource: str) -> float | None:
    """Seconds since the start in which some thread waited for ``cpu``, ``memory`` or ``io``; None if not counted."""
    line = proc.read(f"pressure/{resource}").partition(b"\n")[0]
    kind, _, total = line.partition(b" ")[0], *line.rpartition(b"total=")[1:]
    return int(total) / 1e6 if kind == b"some" and total.isdigit() else None


#: Cores whose clock is read, evenly spread: reading one may interrupt it.
MAX_CORES = 8

#: In ``/proc/stat``: user, nice, system, idle, iowait, irq, softirq, steal.
_TIMES = 8
#: Columns of times without computing.
_IDLE, _IOWAIT, _STEAL = 3, 4, 7

_CPU = "devices/system/cpu"


class CoreSensors:
    """Reads ``/proc/stat``, ``loadavg`` and ``pressure``, and the clocks below ``/sys``."""

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
        stalled = stalled_seconds(self._proc, "cpu")
        if stalled is not None:
            counters["cpu_pressure"] = stalled
        for path in self._throttles:
            count = self._sys.number(path)
            if count is not None:
                counters[path] = count
        rates = self._rates.take(counters, at=at)
        found = self._now()
        everything = rates.get("all", 0)
        if everything > 0:
            for sensor, part in (("host_cpu", "computing"), ("steal", "stolen")):
                if part in rates:
                    found[sensor] = rates[part] / everything
        if "cpu_pressure" in rates:
            found["cpu_pressure"] = rates["cpu_pressure"]
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
    """Reads ``/proc/meminfo``, ``vmstat`` and ``pressure``."""

    def __init__(self, proc: KeptFiles) -> None:
        self._proc = proc
        self._rates: Rates[str] = Rates()
        self._page = os.sysconf("SC_PAGE_SIZE")

    def read(self, at: float) -> dict[str, float]:
        """The sensors by name; see :mod:`dask_efficiency.accounts.sensors`."""
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


#: Whole disks: partitions, and devices made of disks, would count the same requests again.
_DISK = re.compile(rb"(?:sd[a-z]+|vd[a-z]+|xvd[a-z]+|hd[a-z]+|dasd[a-z]+|nvme\d+n\d+|mmcblk\d+)\Z")

#: Disks that are read; of more, the first. A guess, to bound the cost.
MAX_DISKS = 64

#: Columns of ``/proc/diskstats``: name; reads and their milliseconds; writes and their milliseconds; milliseconds with
#: any request under way. The milliseconds have 32 bits and wrap.
_NAME, _READS, _READ_MS, _WRITES, _WRITE_MS, _BUSY_MS = 2, 3, 6, 7, 10, 12


class DiskSensors:
    """Reads ``/proc/diskstats`` and ``pressure``."""

    def __init__(self, proc: KeptFiles) -> None:
        self._proc = proc
        self._rates: Rates[tuple[bytes, int]] = Rates()
        self._stalled: Rates[str] = Rates()

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


class _Source(Protocol):
    def read(self, at: float) -> dict[str, float]: ...


class HostSensors:
    """Reads all sensors of a host.

    Parameters
    ----------
    proc, sys
        Folders of the kernel, or copies for tests.
    pauses
        Counts the pause frames of an interface; by default from its driver.

    Raises
    ------
    OSError, AttributeError, TypeError
        If the system has no such files or functions.
    """

    def __init__(self, proc: str = "/proc", sys: str = "/sys", pauses: Pauses | None = None) -> None:
        self._closes: list[Callable[[], None]] = []
        reader = HeldReader(MAX_BYTES)
        self._closes.append(reader.close)
        if pauses is None:
            pauses = frames = PauseFrames()
            self._closes.append(frames.close)
        files, drivers = KeptFiles(Path(proc), reader), KeptFiles(Path(sys))
        self._closes += (files.close, drivers.close)
        self._sources: tuple[_Source, ...] = (
            CoreSensors(files, drivers),
            MemorySensors(files),
            DiskSensors(files),
            NetworkSensors(files, drivers, pauses),
            RdmaSensors(drivers),
        )

    def read(self, at: float) -> dict[str, float]:
        """Values now of the :data:`~dask_efficiency.accounts.sensors.HOST_SENSORS` that the host has.

        Parameters
        ----------
        at
            Seconds of a clock that is never set. Rates are since the reading before.
        """
        found: dict[str, float] = {}
        for source in self._sources:
            found |= source.read(at)
        return found

    def close(self) -> None:
        """Give the descriptors back; safe to call twice."""
        for close in self._closes:
            close()
