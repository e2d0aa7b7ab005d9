"""Devices of CUDA's driver, once a framework has loaded it. No context is ever made."""

from __future__ import annotations

import ctypes
import os
import uuid
from contextlib import suppress
from typing import NamedTuple

#: ``CU_CTX_SCHED_MASK`` and ``CU_CTX_SCHED_BLOCKING_SYNC``: every other way to wait for a device burns CPU.
_SCHEDULE, _BLOCKS = 0x7, 0x4


class CudaDevice(NamedTuple):
    """Device that this process may use, with the driver's number."""

    number: int
    #: As NVML and ``nvidia-smi -L`` write it.
    uuid: str
    name: str
    #: True if this process uses it: it has a primary context.
    active: bool
    #: True if a thread that waits for it burns CPU.
    spins: bool


#: Cached: opening the library takes ten times as long as a call.
_driver: ctypes.CDLL | None = None


def loaded_driver() -> ctypes.CDLL | None:
    """Driver's library if this process has loaded it already, else None."""
    global _driver
    if _driver is None:
        # Not loaded, or a system without RTLD_NOLOAD.
        with suppress(OSError, AttributeError):
            _driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    return _driver


def in_use(driver: ctypes.CDLL) -> bool:
    """True if this process has a primary context on any device."""
    return any(device.active for device in devices(driver))


def devices(driver: ctypes.CDLL) -> list[CudaDevice]:
    """Devices that this process may use; empty before CUDA is initialised."""
    count, usable = ctypes.c_int(), []
    if driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    for number in range(count.value):
        handle, flags, active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
        if driver.cuDeviceGet(ctypes.byref(handle), number) != 0:
            continue
        device, name = handle.value, ctypes.create_string_buffer(256)
        if driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active)) != 0:
            flags.value = active.value = 0
        known = name.value.decode(errors="replace") if driver.cuDeviceGetName(name, 256, device) == 0 else ""
        spins = flags.value & _SCHEDULE != _BLOCKS
        usable.append(CudaDevice(number, _uuid(driver, device), known, bool(active.value), spins))
    return usable


def driver_major(driver: ctypes.CDLL) -> int | None:
    """Newest major version of CUDA that the driver can run; None if unknown."""
    version = ctypes.c_int()
    return version.value // 1000 if driver.cuDriverGetVersion(ctypes.byref(version)) == 0 else None


def _uuid(driver: ctypes.CDLL, device: int) -> str:
    content = (ctypes.c_uint8 * 16)()
    # The second version of the function gives a MIG instance a UUID of its own.
    get = getattr(driver, "cuDeviceGetUuid_v2", None) or driver.cuDeviceGetUuid
    if get(content, device) != 0:
        return f"unknown-{device}"
    # A process that may use a MIG instance sees nothing else, and only this variable tells.
    kind = "MIG" if os.environ.get("CUDA_VISIBLE_DEVICES", "").startswith("MIG") else "GPU"
    return f"{kind}-{uuid.UUID(bytes=bytes(content))}"
