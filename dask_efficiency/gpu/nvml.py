"""Nvml: readings of GPU sensors through nvidia-ml-py: clocks, temperature, power, errors, links, memory.

Names, meanings and units are in :data:`dask_efficiency.accounts.sensors.READINGS`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from dask_efficiency.accounts.sensors import Rates

#: Thermal reasons for a lower clock, software and hardware, in ``nvmlClocksEventReasons``.
THERMAL = 0x20 | 0x40
#: Power cap of the software, and power brake of the hardware.
POWER = 0x04 | 0x80
#: Devices up to which PCIe throughput is read: NVML watches each link for 20 ms.
MAX_PCIE_DEVICES = 2
#: Selects all NVLinks of a device together; of NVML's header.
_ALL_LINKS = 0xFFFFFFFF
#: Unit of NVLink counters, bytes.
_NVLINK_BYTES = 1024

#: Readings of one device by name, from the module and the device's handle.
_Reader = Callable[[Any, Any], Mapping[str, float]]


class Nvml:
    """Reads the sensors of devices; ImportError without nvidia-ml-py, RuntimeError where NVML does not start."""

    def __init__(self, uuids: Collection[str]) -> None:
        import pynvml

        self._nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise RuntimeError(f"NVML does not start: {error}") from error
        self._handles: dict[str, Any] = {}
        for uuid in uuids:
            with suppress(pynvml.NVMLError):
                self._handles[uuid] = pynvml.nvmlDeviceGetHandleByUUID(uuid.encode())
        many = len(self._handles) > MAX_PCIE_DEVICES
        #: By device, the readers that it does not support: they are not called again.
        self._lacking: dict[str, set[_Reader]] = {uuid: {_pcie_throughput} if many else set() for uuid in self._handles}
        self._moved: dict[str, Rates[str]] = {uuid: Rates() for uuid in self._handles}

    def read(self) -> dict[str, dict[str, float]]:
        """Readings by UUID and name; readings that a device lacks, or cannot give now, are left out."""
        return {uuid: self._read(uuid, handle) for uuid, handle in self._handles.items()}

    def close(self) -> None:
        """Shut NVML down; it counts its users."""
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def _read(self, uuid: str, handle: Any) -> dict[str, float]:
        readings: dict[str, float] = {}
        lacking = self._lacking[uuid]
        for reader in _READERS:
            if reader in lacking:
                continue
            try:
                readings.update(reader(self._nvml, handle))
            except (self._nvml.NVMLError_NotSupported, self._nvml.NVMLError_FunctionNotFound, AttributeError):
                lacking.add(reader)
            except self._nvml.NVMLError:  # a device that has just failed, or will answer next time
                continue
        moved = {name: readings.pop(name) for name in _COUNTED if name in readings}
        return readings | self._moved[uuid].take(moved, at=time.monotonic())


def _memory(nvml: Any, gpu: Any) -> Mapping[str, float]:
    memory = nvml.nvmlDeviceGetMemoryInfo(gpu)
    return {"memory_used_bytes": memory.used, "memory_total_bytes": memory.total}


def _ecc(nvml: Any, gpu: Any, kind: int) -> float:
    return float(nvml.nvmlDeviceGetTotalEccErrors(gpu, kind, nvml.NVML_VOLATILE_ECC))


def _nvlink(nvml: Any, gpu: Any) -> Mapping[str, float]:
    """Errors of all links that are up; left out if there are none."""
    errors = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            if nvml.nvmlDeviceGetNvLinkState(gpu, link) != nvml.NVML_FEATURE_ENABLED:
                continue
        except nvml.NVMLError_InvalidArgument:  # beyond the last link
            break
        for counter in range(nvml.NVML_NVLINK_ERROR_COUNT):
            with suppress(nvml.NVMLError_NotSupported):  # generations of links count different errors
                errors.append(nvml.nvmlDeviceGetNvLinkErrorCounter(gpu, link, counter))
    return {"nvlink_errors_total": sum(errors)} if errors else {}


def _throttle(nvml: Any, gpu: Any) -> Mapping[str, float]:
    current = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    reasons = (current or nvml.nvmlDeviceGetCurrentClocksThrottleReasons)(gpu)
    thermal, power = int(bool(reasons & THERMAL)), int(bool(reasons & POWER))
    return {"throttle_reasons": reasons, "throttled_thermal": thermal, "throttled_power": power}


def _pcie_throughput(nvml: Any, gpu: Any) -> Mapping[str, float]:
    received, sent = (
        nvml.nvmlDeviceGetPcieThroughput(gpu, counter) * 1e3
        for counter in (nvml.NVML_PCIE_UTIL_RX_BYTES, nvml.NVML_PCIE_UTIL_TX_BYTES)
    )
    return {"pcie_received_bytes_per_second": received, "pcie_sent_bytes_per_second": sent}


#: Readings that are rates of counters.
_COUNTED = ("nvlink_received_bytes_per_second", "nvlink_sent_bytes_per_second")


def _nvlink_moved(nvml: Any, gpu: Any) -> Mapping[str, float]:
    """Bytes so far, under the names of their rates; left out if no link counts them."""
    fields = (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX)
    values = nvml.nvmlDeviceGetFieldValues(gpu, [(field, _ALL_LINKS) for field in fields])
    return {
        name: value.value.ullVal * _NVLINK_BYTES
        for name, value in zip(_COUNTED, values, strict=True)
        if value.nvmlReturn == nvml.NVML_SUCCESS and value.valueType == nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
    }


_READERS: tuple[_Reader, ...] = (
    lambda nvml, gpu: {"sm_clock_hertz": nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM) * 1e6},
    lambda nvml, gpu: {"sm_clock_max_hertz": nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM) * 1e6},
    lambda nvml, gpu: {"temperature_celsius": nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)},
    lambda nvml, gpu: {"power_watts": nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3},
    lambda nvml, gpu: {"power_limit_watts": nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1e3},
    _memory,
    lambda nvml, gpu: {"utilisation_ratio": nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100},
    lambda nvml, gpu: {"ecc_corrected_errors_total": _ecc(nvml, gpu, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED)},
    lambda nvml, gpu: {"ecc_uncorrected_errors_total": _ecc(nvml, gpu, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)},
    lambda nvml, gpu: {"pcie_link_generation": nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu)},
    lambda nvml, gpu: {"pcie_link_generation_max": nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu)},
    lambda nvml, gpu: {"pcie_link_width": nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu)},
    lambda nvml, gpu: {"pcie_link_width_max": nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu)},
    lambda nvml, gpu: {"pcie_replays_total": nvml.nvmlDeviceGetPcieReplayCounter(gpu)},
    _nvlink,
    _throttle,
    _pcie_throughput,
    _nvlink_moved,
)
