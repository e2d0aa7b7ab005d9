"""HostSensors: one reading of all sensors of a host; the cores, memory and disks are read here."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

from dask_efficiency.accounts.sensors import HOST_SENSORS, Rates
from dask_efficiency.plugin.thread_clocks import HeldReader
from dask_efficiency.plugin.worker.sensors.files import MAX_BYTES, MAX_DEVICES, Counters, KeptFiles, words_of
from dask_efficiency.plugin.worker.sensors.network import NetworkSensors, PauseFrames, Pauses, RdmaSensors

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
        cores = [name for name in sys.names(_CPU) if name.startswith("cpu") and name[3:].isdigit()]
        self._count = len(cores) or os.cpu_count() or 1
        some = cores[:: max(1, -(-len(cores) // MAX_CORES))]
        self._clocks = [f"{_CPU}/{core}/cpufreq/scaling_cur_freq" for core in some]
        self._throttles = [f"{_CPU}/{core}/thermal_throttle/core_throttle_count" for core in some]

    def read(self, counters: Counters) -> dict[str, float]:
        """Add to the counters, and return the sensors that are not made of counters."""
        head = self._proc.read("stat", 256).partition(b"\n")[0].split()
        if len(head) > _TIMES and head[0] == b"cpu":
            times = [int(word) for word in head[1 : 1 + _TIMES]]
            counters["cpu_all", ""] = everything = sum(times)
            counters["cpu_computing", ""] = everything - times[_IDLE] - times[_IOWAIT] - times[_STEAL]
            counters["cpu_stolen", ""] = times[_STEAL]
        for path in self._throttles:
            if (count := self._sys.number(path)) is not None:
                counters["cpu_throttles", path] = count
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


def _cpu_shares(rates: Mapping[tuple[str, str], float]) -> dict[str, float]:
    everything = rates.get(("cpu_all", ""), 0)
    shares = (("host_cpu", ("cpu_computing", "")), ("steal", ("cpu_stolen", "")))
    return {sensor: rates[part] / everything for sensor, part in shares if everything > 0 and part in rates}


#: The rows of ``/proc/vmstat`` that count pages, by sensor.
_SWAP = {b"pswpin": "swap_in", b"pswpout": "swap_out"}
#: Bytes of ``/proc/meminfo`` up to the available memory.
_HEAD = 256


def _read_memory(proc: KeptFiles, counters: Counters) -> dict[str, float]:
    content, page = proc.read("vmstat"), os.sysconf("SC_PAGE_SIZE")
    for row, sensor in _SWAP.items():
        begin = content.find(b"\n" + row + b" ")
        if begin >= 0:
            counters[sensor, ""] = page * int(content[begin + 2 + len(row) :].partition(b"\n")[0])
    available = [words[1] for words in words_of(proc.read("meminfo", _HEAD)) if words[0] == b"MemAvailable:"]
    return {"memory_available": 1024.0 * int(available[0])} if available else {}


#: Files of ``/proc/pressure`` by sensor: seconds since the start in which some thread waited.
_PRESSURES = {"cpu_pressure": "cpu", "memory_pressure": "memory", "disk_pressure": "io"}


def _read_pressures(proc: KeptFiles, counters: Counters) -> dict[str, float]:
    for sensor, resource in _PRESSURES.items():
        line = proc.read(f"pressure/{resource}").partition(b"\n")[0]
        total = line.rpartition(b"total=")[2]
        if line.startswith(b"some ") and total.isdigit():
            counters[sensor, ""] = int(total) / 1e6
    return {}


#: Whole disks: partitions, and devices made of disks, would count the same requests again.
_DISK = re.compile(rb"(?:sd[a-z]+|vd[a-z]+|xvd[a-z]+|hd[a-z]+|dasd[a-z]+|nvme\d+n\d+|mmcblk\d+)\Z")
#: Columns of ``/proc/diskstats``: the name; and those that are counted: reads and their milliseconds; writes and their
#: milliseconds; milliseconds with any request under way. The milliseconds have 32 bits and wrap.
_NAME = 2
_DISK_COLUMNS = {"reads": 3, "read_ms": 6, "writes": 7, "write_ms": 10, "busy_ms": 12}


def _read_disks(proc: KeptFiles, counters: Counters) -> dict[str, float]:
    rows = [words for words in words_of(proc.read("diskstats")) if len(words) > max(_DISK_COLUMNS.values())]
    for words in [words for words in rows if _DISK.match(words[_NAME])][:MAX_DEVICES]:
        for name, column in _DISK_COLUMNS.items():
            counters[name, words[_NAME].decode()] = int(words[column])
    return {}


def _disk_sensors(rates: Mapping[tuple[str, str], float]) -> dict[str, float]:
    found = {}
    busy = [rate / 1e3 for (name, _), rate in rates.items() if name == "busy_ms"]
    if busy:
        found["disk_busy"] = min(max(busy), 1.0)
    requests = took = 0.0
    for (name, disk), rate in rates.items():
        milliseconds = rates.get(({"reads": "read_ms", "writes": "write_ms"}.get(name, ""), disk))
        if milliseconds is not None:
            requests += rate
            took += milliseconds / 1e3
    if requests > 0:
        found["disk_wait"] = took / requests
    return found


class HostSensors:
    """Reads all sensors of a host; OSError, AttributeError or TypeError if it has no such files or functions."""

    def __init__(self, proc: str = "/proc", sys: str = "/sys", pauses: Pauses | None = None) -> None:
        self._opened = ExitStack()
        reader = self._opened.enter_context(closing(HeldReader(MAX_BYTES)))
        if pauses is None:
            pauses = self._opened.enter_context(closing(PauseFrames()))
        files = self._opened.enter_context(closing(KeptFiles(Path(proc), reader)))
        drivers = self._opened.enter_context(closing(KeptFiles(Path(sys))))
        self._rates: Rates[tuple[str, str]] = Rates()
        #: Each adds to the counters, and returns the sensors that are not made of counters.
        self._sources: tuple[Callable[[Counters], dict[str, float]], ...] = (
            CoreSensors(files, drivers).read,
            *(partial(read, files) for read in (_read_memory, _read_disks, _read_pressures)),
            NetworkSensors(files, drivers, pauses).read,
            RdmaSensors(drivers).read,
        )

    def read(self, at: float) -> dict[str, float]:
        """Values at a monotonic instant of the HOST_SENSORS that the host has; rates are since the last call."""
        counters: Counters = {}
        found: dict[str, float] = {}
        for read in self._sources:
            found |= read(counters)
        rates = self._rates.take(counters, at=at)
        for (sensor, _), rate in rates.items():
            if sensor in HOST_SENSORS:
                found[sensor] = found.get(sensor, 0.0) + rate
        return found | _cpu_shares(rates) | _disk_sensors(rates)

    def close(self) -> None:
        """Give the descriptors back; safe to call twice."""
        self._opened.close()
