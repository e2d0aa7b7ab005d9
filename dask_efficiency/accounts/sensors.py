"""Sensors of a worker's host and GPUs: their names, how counters become rates, and how they travel."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.checks import RefusedPayload, short

#: Sensors of a worker's host and their meaning, in their order on the wire. Shares are of the time since the last
#: reading, in [0, 1]; rates are of counters over that time. A sensor that the host lacks is absent, not zero.
HOST_SENSORS: dict[str, str] = {
    "host_cpu": "Share of all cores' time in which they computed",
    "steal": "Share of all cores' time that the hypervisor gave to others",
    "run_queue": "Threads that run or wait for a core, by core",
    "cpu_clock": "Hertz, the mean over some of the cores",
    "cpu_throttles": "How often a second a core was slowed down for heat",
    "cpu_pressure": "Share of time in which some thread waited for a core",
    "memory_available": "Bytes that can be had without swapping",
    "swap_in": "Bytes a second read back from swap",
    "swap_out": "Bytes a second written to swap",
    "memory_pressure": "Share of time in which some thread waited for memory",
    "disk_busy": "Share of time in which the busiest disk worked",
    "disk_wait": "Seconds that a request to a disk took, the mean",
    "disk_pressure": "Share of time in which some thread waited for reads or writes",
    "net_errors": "Packets a second that were received or sent with an error",
    "net_drops": "Packets a second that were dropped",
    "retransmits": "TCP segments a second that were sent again",
    "rdma_read": "Bytes a second that RDMA received",
    "rdma_write": "Bytes a second that RDMA sent",
    "rdma_ecn": "RDMA packets a second that came with a mark of congestion (ECN)",
    "rdma_cnp": "Notices of congestion (CNP) a second, sent and received",
    "pfc_sent": "Pause frames (PFC) a second that were sent",
    "pfc_received": "Pause frames (PFC) a second that were received",
}

#: Sensors of a worker's GPUs, and how several GPUs are combined.
GPU_SENSORS: dict[str, str] = {
    "gpu_utilisation": "Share of time in which a kernel of any process ran, the mean over the GPUs",
    "gpu_memory": "Bytes that are taken, by whatever process, of all GPUs",
    "gpu_clock": "Hertz of the slowest GPU's multiprocessors",
    "gpu_temperature": "Degrees Celsius of the hottest GPU",
    "gpu_power": "Watts of all GPUs",
    "gpu_throttled": "Share of the GPUs whose clock is lower for heat",
    "gpu_pcie": "Bytes a second over PCIe, to and from all GPUs",
    "gpu_nvlink": "Bytes a second over NVLink, to and from all GPUs",
}

SENSORS = (*HOST_SENSORS, *GPU_SENSORS)

#: The meaning of each name, which ends in its unit. A reading that a device does not have is left out.
#: Those that end in ``_total`` only grow, until the driver is loaded again.
READINGS: dict[str, str] = {
    "sm_clock_hertz": "Clock of the streaming multiprocessors",
    "sm_clock_max_hertz": "The fastest that this clock can be",
    "temperature_celsius": "Temperature of the chip",
    "power_watts": "Power that the board draws",
    "power_limit_watts": "Power that the board may draw",
    "memory_used_bytes": "Memory of the device that is taken, by whatever process",
    "memory_total_bytes": "Memory of the device",
    "utilisation_ratio": "Share of the last sample period in which a kernel of any process ran",
    "ecc_corrected_errors_total": "Memory errors that were corrected since the driver was loaded",
    "ecc_uncorrected_errors_total": "Memory errors that could not be corrected since the driver was loaded",
    "pcie_link_generation": "Generation of the PCIe link now",
    "pcie_link_generation_max": "Generation that the device and its slot can have",
    "pcie_link_width": "Lanes of the PCIe link now",
    "pcie_link_width_max": "Lanes that the device and its slot can have",
    "pcie_replays_total": "Packets that had to be sent again over PCIe",
    "nvlink_errors_total": "Errors of all NVLinks of the device",
    "pcie_received_bytes_per_second": "What the device received over PCIe, in the last 20 ms",
    "pcie_sent_bytes_per_second": "What the device sent over PCIe, in the last 20 ms",
    "nvlink_received_bytes_per_second": "What the device received over all NVLinks since the reading before",
    "nvlink_sent_bytes_per_second": "What the device sent over all NVLinks since the reading before",
    "throttle_reasons": "Why the clock is lower than it could be, a bit mask as NVML has it",
    "throttled_thermal": "1 if the clock is lower for heat",
    "throttled_power": "1 if the clock is lower for power",
}

#: By sensor, the readings that are summed, and how several GPUs are combined: a fault of one of them must show.
_OF_READINGS: dict[str, tuple[tuple[str, ...], Callable[[Iterable[float]], float]]] = {
    "gpu_utilisation": (("utilisation_ratio",), fmean),
    "gpu_memory": (("memory_used_bytes",), sum),
    "gpu_clock": (("sm_clock_hertz",), min),
    "gpu_temperature": (("temperature_celsius",), max),
    "gpu_power": (("power_watts",), sum),
    "gpu_throttled": (("throttled_thermal",), fmean),
    "gpu_pcie": (("pcie_received_bytes_per_second", "pcie_sent_bytes_per_second"), sum),
    "gpu_nvlink": (("nvlink_received_bytes_per_second", "nvlink_sent_bytes_per_second"), sum),
}


def gpu_sensors(readings: Mapping[str, Mapping[str, float]] | None) -> Sequence[float]:
    """The :data:`GPU_SENSORS`, in order, of :data:`READINGS` by GPU; NaN where no GPU has one."""
    if not readings:
        return _NO_GPU
    found = []
    for names, together in _OF_READINGS.values():
        each = [sum([row[name] for name in names]) for row in readings.values() if names[0] in row and names[-1] in row]
        found.append(together(each) if each else math.nan)
    return found


_NO_GPU = (math.nan,) * len(GPU_SENSORS)

Name = TypeVar("Name", bound=Hashable)
#: Range of a counter of 32 bits.
WRAP = 1 << 32
#: A counter that fell from the last sixteenth of that range to the first has wrapped; else it was reset. A guess.
_NEAR = WRAP // 16


class Rates(Generic[Name]):
    """Growth rates of counters between two readings; one that is new, was reset, or was missing last time has none."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._last: Mapping[Name, float] = {}

    def take(self, counters: Mapping[Name, float], *, at: float) -> dict[Name, float]:
        """Growth of each counter since it was read last, in units a second; ``at`` is of a clock that is never set."""
        last, self._last = self._last, counters
        before, self._at = self._at, at
        if before is None or at <= before:
            return {}
        seconds = at - before
        grown = ((name, _grown(last[name], now)) for name, now in counters.items() if name in last)
        return {name: more / seconds for name, more in grown if more is not None}


def _grown(then: float, now: float) -> float | None:
    """By how much a counter grew; None where it was reset."""
    if now >= then:
        return now - then
    if WRAP - _NEAR <= then < WRAP and now < _NEAR:
        return now + WRAP - then
    return None


#: Largest number that float32 holds.
_MAX_FLOAT32 = float(np.finfo(np.float32).max)


def encode_sensors(readings: Mapping[str, float]) -> list[float | None]:
    """Encode a reading for a heartbeat: by sensor, None where it is absent or not from 0 to 3.4e38."""
    values = map(readings.get, HOST_SENSORS)
    return [value if value is not None and 0 <= value <= _MAX_FLOAT32 else None for value in values]


def decode_sensors(payload: object) -> NDArray[np.float32]:
    """Check and read what :func:`encode_sensors` made, by :data:`HOST_SENSORS`; NaN for what the host does not have."""
    if not isinstance(payload, (list, tuple)) or len(payload) != len(HOST_SENSORS):
        raise RefusedPayload(f"sensors are {short(payload)}; expected {len(HOST_SENSORS)} numbers")
    for name, value in zip(HOST_SENSORS, payload, strict=True):
        if value is not None and not (type(value) in (int, float) and 0 <= value <= _MAX_FLOAT32):
            raise RefusedPayload(f"sensors[{name!r}] is {short(value)}; expected a number from 0 to {_MAX_FLOAT32:.2g}")
    return np.array([math.nan if value is None else value for value in payload], np.float32)
