"""Sums of GpuTotals: of one worker's meters one after another, and of one device's workers side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace

from dask_efficiency.accounts.gpu.totals import DeviceTotals, GpuTotals, KernelTotals

#: Kernels that a sum lists separately: those that took most time.
MAX_KERNELS = 100

#: Devices that a sum lists separately. In a cloud, each worker that departed may have had another device.
MAX_DEVICES = 200

OTHER = "(other)"


def add_totals(former: GpuTotals, latter: GpuTotals) -> GpuTotals:
    """Both together. The meter and its description are those of the latter, unless only the former measured anything.

    A device that only one of them saw is taken from there: its ``elapsed`` is the time for which it was watched.
    """
    shown = latter if latter.meter != "none" or former.meter == "none" else former
    return replace(
        shown,
        devices=_devices((*former.devices, *latter.devices)),
        kernels=_kernels((*former.kernels, *latter.kernels)),
        hidden=_counts(former.hidden, latter.hidden),
        bounds=_counts(former.bounds, latter.bounds),
        readings={**former.readings, **latter.readings},
        **{name: getattr(former, name) + getattr(latter, name) for name in _NUMBERS},
    )


_NUMBERS = ("kernel_ns", "attributed_ns", "dropped", "gaps", "cost", "unknown_tasks")

#: The fields of a device that add up.
_DEVICE_NUMBERS = tuple(f.name for f in fields(DeviceTotals) if f.name not in ("uuid", "name", "shares"))


def _devices(devices: Iterable[DeviceTotals]) -> tuple[DeviceTotals, ...]:
    found: dict[str, DeviceTotals] = {}
    for device in devices:
        if device.uuid not in found and len(found) >= MAX_DEVICES:
            device = replace(device, uuid=OTHER, name="")
        known = found.get(device.uuid)
        found[device.uuid] = device if known is None else add_devices(known, device)
    return tuple(found.values())


def add_devices(one: DeviceTotals, other: DeviceTotals) -> DeviceTotals:
    """Two totals of one device together. The parts of the result add up if those of both do."""
    return replace(
        other,
        shares=_counts(one.shares, other.shares),
        **{name: getattr(one, name) + getattr(other, name) for name in _DEVICE_NUMBERS},
    )


def _kernels(kernels: Iterable[KernelTotals]) -> tuple[KernelTotals, ...]:
    found: dict[tuple[str, str], KernelTotals] = {}
    for kernel in kernels:
        _add_kernel(found, kernel)
    ranked = sorted(found.values(), key=lambda kernel: (kernel.name == OTHER, -kernel.ns))
    kept = {(kernel.prefix, kernel.name): kernel for kernel in ranked[:MAX_KERNELS]}
    for kernel in ranked[MAX_KERNELS:]:
        _add_kernel(kept, KernelTotals("", OTHER, kernel.launches, kernel.ns))
    return tuple(kept.values())


def _add_kernel(found: dict[tuple[str, str], KernelTotals], kernel: KernelTotals) -> None:
    key = kernel.prefix, kernel.name
    known = found.get(key)
    found[key] = kernel if known is None else KernelTotals(*key, known.launches + kernel.launches, known.ns + kernel.ns)


def _counts(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}
