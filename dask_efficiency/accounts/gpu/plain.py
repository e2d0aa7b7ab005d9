"""GpuTotals as plain data, for heartbeats and files, checked when it is read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from dask_efficiency.accounts.checks import (
    MAX_NAME_LENGTH,
    MAX_NAMES,
    RefusedPayload,
    counts,
    listed,
    mapping,
    short,
    text,
    whole,
)
from dask_efficiency.accounts.gpu.totals import DeviceTotals, GpuTotals, KernelTotals

#: Fields of the totals, and of each device, that are whole numbers.
COUNTS = ("kernel_ns", "attributed_ns", "dropped", "gaps", "cost", "unknown_tasks")
DEVICE_COUNTS = ("elapsed", "kernels", "copies", "idle", "unattributed", "tail", "late")


def encode_gpu(totals: GpuTotals) -> dict[str, Any]:
    """Totals as plain data for msgpack and JSON, a fresh object each time, with texts cut to what is accepted."""
    return {
        "meter": totals.meter[:MAX_NAME_LENGTH],
        "description": totals.description[:MAX_NAME_LENGTH],
        "devices": [_encode_device(device) for device in totals.devices],
        "kernels": [[k.prefix, k.name[:MAX_NAME_LENGTH], k.launches, k.ns] for k in totals.kernels[:MAX_NAMES]],
        "hidden": dict(totals.hidden),
        "bounds": dict(totals.bounds),
        **{name: getattr(totals, name) for name in COUNTS},
        "readings": {uuid: dict(row) for uuid, row in totals.readings.items()},
    }


def _encode_device(device: DeviceTotals) -> dict[str, Any]:
    plain = {field.name: getattr(device, field.name) for field in fields(DeviceTotals)}
    return {**plain, "name": device.name[:MAX_NAME_LENGTH], "shares": dict(device.shares)}


def decode_gpu(payload: object, name: str = "gpu") -> GpuTotals:
    """Check plain data and read it.

    Parameters
    ----------
    payload
        What :func:`encode_gpu` returned.
    name
        How error messages refer to it.

    Raises
    ------
    RefusedPayload
        If a field is missing or has a wrong type, a number is negative, fractional or absurdly large, a reading is
        not finite, names are too many or too long, a device is there twice, the kernels, copies and idle time of a
        device do not add up to elapsed, its shares and unattributed time do not add up to kernels + copies, or
        more kernel time is attributed than there is.
    """
    given = mapping(name, payload)
    totals = GpuTotals(
        meter=text(f"{name}.meter", given.get("meter")),
        description=text(f"{name}.description", given.get("description")),
        devices=tuple(_device(f"{name}.devices", d) for d in listed(f"{name}.devices", given.get("devices"))),
        kernels=tuple(_kernel(f"{name}.kernels", k) for k in listed(f"{name}.kernels", given.get("kernels"))),
        hidden=counts(f"{name}.hidden", given.get("hidden")),
        bounds=counts(f"{name}.bounds", given.get("bounds")),
        readings=_readings(f"{name}.readings", given.get("readings")),
        **{field: whole(f"{name}.{field}", given.get(field)) for field in COUNTS},
    )
    check_uuids(name, [device.uuid for device in totals.devices])
    check_attributed(name, totals)
    return totals


def check_uuids(name: str, uuids: Sequence[str]) -> None:
    """Raise RefusedPayload where a device is there twice."""
    if len(set(uuids)) < len(uuids):
        raise RefusedPayload(f"{name}.devices has uuids {short(uuids)}; expected each once")


def check_attributed(name: str, totals: GpuTotals) -> None:
    """Raise RefusedPayload where tasks have more kernel time than there is."""
    if totals.attributed_ns > totals.kernel_ns:
        raise RefusedPayload(
            f"{name}.attributed_ns is {totals.attributed_ns}; expected at most kernel_ns = {totals.kernel_ns}"
        )


def checked(name: str, device: DeviceTotals, shares: int) -> DeviceTotals:
    """The device, whose shares have this sum; raises RefusedPayload where its times do not add up."""
    counted = device.kernels + device.copies + device.idle
    if counted != device.elapsed:
        raise RefusedPayload(
            f"{name}: {short(device.uuid)} has {counted} ns of kernels, copies and idle time; "
            f"expected elapsed = {device.elapsed} ns"
        )
    shared = shares + device.unattributed
    if shared != device.kernels + device.copies:
        raise RefusedPayload(
            f"{name}: {short(device.uuid)} has {shared} ns of shares and unattributed; "
            f"expected kernels + copies = {device.kernels + device.copies} ns"
        )
    return device


def _device(name: str, value: object) -> DeviceTotals:
    given = mapping(name, value)
    device = DeviceTotals(
        uuid=text(f"{name}.uuid", given.get("uuid")),
        name=text(f"{name}.name", given.get("name")),
        shares=counts(f"{name}.shares", given.get("shares")),
        **{field: whole(f"{name}.{field}", given.get(field)) for field in DEVICE_COUNTS},
    )
    return checked(name, device, sum(device.shares.values()))


def _kernel(name: str, value: object) -> KernelTotals:
    entry = listed(name, value)
    if len(entry) != 4:
        raise RefusedPayload(f"{name} has {short(entry)}; expected prefix, name, launches and nanoseconds")
    prefix, kernel, launches, ns = entry
    return KernelTotals(text(name, prefix), text(name, kernel), whole(f"{name}.launches", launches), whole(name, ns))


def _readings(name: str, value: object) -> dict[str, dict[str, float]]:
    return {text(name, uuid): _reading(f"{name}[{short(uuid)}]", row) for uuid, row in mapping(name, value).items()}


def _reading(name: str, value: object) -> dict[str, float]:
    row: Mapping[Any, Any] = mapping(name, value)
    for key, number in row.items():
        if type(number) not in (int, float) or not math.isfinite(number):
            raise RefusedPayload(f"{name}[{short(key)}] is {short(number)}; expected a finite number")
    return {text(name, key): float(number) for key, number in row.items()}
