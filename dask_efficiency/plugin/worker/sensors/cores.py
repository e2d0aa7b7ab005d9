"""Cores: how much the cores of the host compute, are stolen, slowed down, and waited for."""

from __future__ import annotations

import os

from dask_efficiency.accounts.sensors.rates import Rates
from dask_efficiency.plugin.worker.sensors.files import KeptFiles
from dask_efficiency.plugin.worker.sensors.pressure import stalled_seconds

#: Cores whose clock is read; of more, so many are taken evenly. Reading one may interrupt it.
MAX_CORES = 8

#: In ``/proc/stat``: user, nice, system, idle, iowait, irq, softirq, steal.
_TIMES = 8
_IDLE, _IOWAIT, _STEAL = 3, 4, 7

_CPU = "devices/system/cpu"


class Cores:
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
        """The sensors by name; see :mod:`dask_efficiency.accounts.sensors.names`."""
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
            # The thread that reads this runs, too.
            found["run_queue"] = max(int(running) - 1, 0) / self._count
        clocks = [clock for path in self._clocks if (clock := self._sys.number(path)) is not None]
        if clocks:
            found["cpu_clock"] = 1e3 * sum(clocks) / len(clocks)
        return found
