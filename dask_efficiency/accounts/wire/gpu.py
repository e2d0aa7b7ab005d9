"""GPU accounts as plain data, checked when they are read: whole in files, as changes in heartbeats."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.checks import (
    MAX_NAMES,
    RefusedPayload,
    counts,
    listed,
    mapping,
    shared_texts,
    short,
    text,
    whole,
    wholes,
)
from dask_efficiency.accounts.gpu import DEVICE_NUMBERS, MAX_KERNELS, NUMBERS, DeviceTotals, GpuTotals, KernelTotals
from dask_efficiency.accounts.intake import fitting
from dask_efficiency.accounts.wire.tables import TableWriter, WireTable, column_sums, read_table

# -- whole -----------------------------------------------------------------------------------------


def encode_gpu(totals: GpuTotals) -> dict[str, Any]:
    """Totals as plain data for msgpack and JSON, a fresh object each time, with texts cut to what is accepted."""
    return {
        "meter": fitting(totals.meter),
        "description": fitting(totals.description),
        "devices": [{**asdict(device), "name": fitting(device.name)} for device in totals.devices],
        "kernels": [[k.prefix, fitting(k.name), k.launches, k.ns] for k in totals.kernels[:MAX_NAMES]],
        "hidden": dict(totals.hidden),
        "bounds": dict(totals.bounds),
        **{name: getattr(totals, name) for name in NUMBERS},
        "readings": {uuid: dict(row) for uuid, row in totals.readings.items()},
    }


def decode_gpu(payload: object, name: str = "gpu") -> GpuTotals:
    """Check and read what :func:`encode_gpu` made; ``name`` is that of the payload in error messages."""
    given = mapping(name, payload)
    totals = GpuTotals(
        meter=text(f"{name}.meter", given.get("meter")),
        description=text(f"{name}.description", given.get("description")),
        devices=tuple(_device(f"{name}.devices", d) for d in listed(f"{name}.devices", given.get("devices"))),
        kernels=tuple(_kernel(f"{name}.kernels", k) for k in listed(f"{name}.kernels", given.get("kernels"))),
        hidden=counts(f"{name}.hidden", given.get("hidden")),
        bounds=counts(f"{name}.bounds", given.get("bounds")),
        readings={
            text(f"{name}.readings", uuid): _reading(f"{name}.readings[{short(uuid)}]", row)
            for uuid, row in mapping(f"{name}.readings", given.get("readings")).items()
        },
        **{field: whole(f"{name}.{field}", given.get(field)) for field in NUMBERS},
    )
    _check_uuids(name, [device.uuid for device in totals.devices])
    _check_attributed(name, totals.attributed_ns, totals.kernel_ns)
    return totals


def _check_uuids(name: str, uuids: Sequence[str]) -> None:
    if len(set(uuids)) < len(uuids):
        raise RefusedPayload(f"{name}.devices has uuids {short(uuids)}; expected each once")


def _check_attributed(name: str, attributed: int, kernels: int) -> None:
    if attributed > kernels:
        raise RefusedPayload(f"{name}.attributed_ns is {attributed}; expected at most kernel_ns = {kernels}")


def _checked(name: str, device: DeviceTotals, shares: int) -> DeviceTotals:
    """The device itself, if its times and this sum of shares add up."""
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
        **{field: whole(f"{name}.{field}", given.get(field)) for field in DEVICE_NUMBERS},
    )
    return _checked(name, device, sum(device.shares.values()))


def _kernel(name: str, value: object) -> KernelTotals:
    entry = listed(name, value)
    if len(entry) != 4:
        raise RefusedPayload(f"{name} has {short(entry)}; expected prefix, name, launches and nanoseconds")
    prefix, kernel, launches, ns = entry
    return KernelTotals(text(name, prefix), text(name, kernel), whole(f"{name}.launches", launches), whole(name, ns))


def _reading(name: str, value: object) -> dict[str, float]:
    row: Mapping[Any, Any] = mapping(name, value)
    for key, number in row.items():
        if type(number) not in (int, float) or not math.isfinite(number):
            raise RefusedPayload(f"{name}[{short(key)}] is {short(number)}; expected a finite number")
    return {text(name, key): float(number) for key, number in row.items()}


# -- changes, on the worker ------------------------------------------------------------------------

#: Nanoseconds by prefix, in one table: hidden ones, bounds, and from here on the shares of each device.
_HIDDEN, _BOUNDS, _SHARES = range(3)

Where = tuple[int, str]
Kernel = tuple[str, str]


class GpuWriter:
    """GPU accounts as heartbeats carry them; see :class:`~dask_efficiency.accounts.wire.tables.TableWriter`."""

    def __init__(self) -> None:
        self._by_prefix: TableWriter[Where] = TableWriter(1)
        self._kernels: TableWriter[Kernel] = TableWriter(2)
        self._rows: dict[Kernel, tuple[int, int]] = {}
        #: Values that rarely change, and the state of their last change.
        self._kept: tuple[Any, ...] = ()
        self._kept_at = -1

    def write(self, gpu: GpuTotals, seq: int, since: int) -> dict[str, Any]:
        """Note a state, and give the changes after another; -1 for everything."""
        kept = (
            fitting(gpu.meter),
            fitting(gpu.description),
            tuple((device.uuid, fitting(device.name)) for device in gpu.devices),
            tuple((uuid, *row) for uuid, row in gpu.readings.items()),
        )
        if kept != self._kept:
            self._kept, self._kept_at = kept, seq
        numbers = [getattr(gpu, name) for name in NUMBERS]
        for device in gpu.devices:
            numbers += [getattr(device, name) for name in DEVICE_NUMBERS]
        rows: dict[Where, tuple[int]] = {}
        for at, shares in enumerate((gpu.hidden, gpu.bounds, *(device.shares for device in gpu.devices))):
            for prefix, ns in shares.items():
                rows[at, prefix] = (ns,)
        self._by_prefix.take(seq, rows)
        self._take_kernels(gpu.kernels, seq)
        readings = [number for row in gpu.readings.values() for number in row.values()]
        found: dict[str, Any] = {"a": numbers, "r": readings}
        found["b"], found["p"] = self._by_prefix.write(since)
        found["c"], found["n"] = self._kernels.write(since)
        if self._kept_at > since:
            found["k"] = self._kept
        return found

    def _take_kernels(self, kernels: Sequence[KernelTotals], seq: int) -> None:
        now: dict[Kernel, tuple[int, int]] = {}
        for prefix, name, launches, ns in kernels:
            key = prefix, fitting(name)
            before = now.get(key, (0, 0))
            now[key] = before[0] + launches, before[1] + ns
        if len(self._rows) <= 2 * MAX_KERNELS:  # names that may come back among those that took most time
            now = {**dict.fromkeys(self._rows, (0, 0)), **now}
        self._rows = now
        self._kernels.take(seq, now)


# -- changes, on the scheduler ---------------------------------------------------------------------


class _Kept(NamedTuple):
    """Values that rarely change: the devices' uuids and names, and the devices' and sensors' names of readings."""

    meter: str = ""
    description: str = ""
    devices: tuple[tuple[str, str], ...] = ()
    sensors: tuple[tuple[str, ...], ...] = ()


class GpuAccount(NamedTuple):
    """GPU accounts without kernels and sensors, which are most of them."""

    kept: _Kept
    #: The :data:`NUMBERS`, then the :data:`DEVICE_NUMBERS` of each device.
    numbers: Sequence[int]
    by_prefix: WireTable[Where]

    @property
    def devices(self) -> tuple[DeviceTotals, ...]:
        """The devices, without shares."""
        width, found = len(DEVICE_NUMBERS), []
        for i, (uuid, name) in enumerate(self.kept.devices):
            row = self.numbers[len(NUMBERS) + i * width :]
            found.append(DeviceTotals(uuid, name, shares={}, **dict(zip(DEVICE_NUMBERS, row, strict=False))))
        return tuple(found)

    @property
    def totals(self) -> GpuTotals:
        """The accounts as a value."""
        groups: list[dict[str, int]] = [{} for _ in range(_SHARES + len(self.kept.devices))]
        for (group, prefix), (ns,) in self.by_prefix.by_name.items():
            groups[group][prefix] = ns
        numbers: dict[str, Any] = dict(zip(NUMBERS, self.numbers, strict=False))
        return GpuTotals(
            meter=self.kept.meter,
            description=self.kept.description,
            devices=tuple(
                replace(device, shares=row) for device, row in zip(self.devices, groups[_SHARES:], strict=True)
            ),
            hidden=groups[_HIDDEN],
            bounds=groups[_BOUNDS],
            **numbers,
        )


@dataclass(frozen=True, eq=False)
class HeldGpu:
    """GPU accounts as the scheduler has them."""

    account: GpuAccount
    numbers: Mapping[str, int]
    devices: tuple[DeviceTotals, ...]
    readings: Mapping[str, Mapping[str, float]]
    where: NDArray[np.int64]
    kernels: WireTable[Kernel]

    @cached_property
    def totals(self) -> GpuTotals:
        """The accounts as a value, made when somebody looks: heartbeats are many."""
        kernels = [KernelTotals(*name, *row) for name, row in self.kernels.by_name.items() if any(row)]
        # The sum of the others, whose name and prefix are the same, comes last.
        kernels.sort(key=lambda kernel: (kernel.prefix == kernel.name, -kernel.ns, kernel.prefix, kernel.name))
        return replace(self.account.totals, kernels=tuple(kernels), readings=self.readings)


def read_gpu(payload: object, last: HeldGpu | None = None) -> HeldGpu:
    """GPU accounts after a payload; ``last`` as they were, None where the payload has all of them."""
    given = mapping("gpu", payload)
    before = None if last is None else last.account
    kept = _kept(given["k"]) if "k" in given else before.kept if before is not None else _kept(None)
    shares, kernels = (None, None) if last is None else (last.account.by_prefix, last.kernels)
    by_prefix = read_table("gpu.shares", shares, given.get("b"), given.get("p"), columns=1, check=_wheres).table
    kernels = read_table("gpu.kernels", kernels, given.get("c"), given.get("n"), columns=2, check=_kernels).table
    if last is not None and by_prefix.names is last.account.by_prefix.names:
        where = last.where
    else:
        where = np.array([-1 if name is None else name[0] for name in by_prefix.names], np.int64)
    if len(where) and where.max() >= _SHARES + len(kept.devices):
        raise RefusedPayload(f"gpu.shares are of device {where.max() - _SHARES}; expected one of {len(kept.devices)}")
    account = GpuAccount(
        kept, _numbers(given.get("a"), len(NUMBERS) + len(DEVICE_NUMBERS) * len(kept.devices)), by_prefix
    )
    numbers, devices = dict(zip(NUMBERS, account.numbers, strict=False)), account.devices
    for i, device in enumerate(devices):
        _checked("gpu.devices", device, column_sums(by_prefix.rows[where == _SHARES + i])[0])
    _check_attributed("gpu", numbers["attributed_ns"], numbers["kernel_ns"])
    return HeldGpu(account, numbers, devices, _readings(given.get("r"), kept.sensors), where, kernels)


def check_grown(now: HeldGpu | None, then: HeldGpu) -> None:
    """Refuse accounts that shrank."""
    if now is None:
        raise RefusedPayload("gpu is missing; expected GPU accounts, as before")
    if now.numbers["kernel_ns"] < then.numbers["kernel_ns"]:
        raise RefusedPayload(f"gpu.kernel_ns shrank from {then.numbers['kernel_ns']} to {now.numbers['kernel_ns']}")
    devices = {device.uuid: device for device in now.devices}
    for before in then.devices:
        after = devices.get(before.uuid, DeviceTotals(before.uuid))
        for name in ("kernels", "copies", "idle", "elapsed"):
            if getattr(after, name) < getattr(before, name):
                raise RefusedPayload(
                    f"gpu.devices[{before.uuid!r:.80}].{name} shrank "
                    f"from {getattr(before, name)} to {getattr(after, name)}"
                )


def _kept(value: object) -> _Kept:
    entries = listed("gpu.k", value)
    if len(entries) != 4:
        raise RefusedPayload(f"gpu.k is {short(value)}; expected a meter, its description, devices and readings")
    meter, description, devices, readings = entries
    uuids, names = _pairs("gpu.devices", listed("gpu.devices", devices), "a uuid and a name")
    known = [(text("gpu.devices.uuid", u), text("gpu.devices.name", n)) for u, n in zip(uuids, names, strict=True)]
    _check_uuids("gpu", uuids)
    sensors = [
        tuple(text("gpu.readings", name) for name in listed("gpu.readings", entry))
        for entry in listed("gpu.readings", readings)
    ]
    if not all(sensors):
        raise RefusedPayload("gpu.readings are of no device")
    return _Kept(text("gpu.meter", meter), text("gpu.description", description), tuple(known), tuple(sensors))


def _numbers(value: object, length: int) -> Sequence[int]:
    numbers = listed("gpu.a", value)
    if len(numbers) != length:
        raise RefusedPayload(f"gpu.a has {len(numbers)} numbers; expected {length}")
    wholes("gpu.a", numbers)
    return numbers


def _readings(value: object, sensors: tuple[tuple[str, ...], ...]) -> dict[str, dict[str, float]]:
    numbers = listed("gpu.readings", value)
    expected = sum(map(len, sensors)) - len(sensors)
    if len(numbers) != expected:
        raise RefusedPayload(f"gpu.readings has {len(numbers)} numbers; expected {expected}")
    if not {*map(type, numbers)} <= {int, float} or not all(map(math.isfinite, numbers)):
        raise RefusedPayload(f"gpu.readings has {short(numbers)}; expected finite numbers")
    found: dict[str, dict[str, float]] = {}
    begin = 0
    for uuid, *names in sensors:
        found[uuid] = dict(zip(names, map(float, numbers[begin:]), strict=False))
        begin += len(names)
    return found


def _wheres(name: str, values: Sequence[Any]) -> list[Where]:
    whose, prefixes = _pairs(name, values, "whose nanoseconds they are and a prefix")
    wholes(name, whose)
    return [*zip(whose, shared_texts(name, prefixes), strict=True)]


def _kernels(name: str, values: Sequence[Any]) -> list[Kernel]:
    prefixes, kernels = _pairs(name, values, "a prefix and a kernel")
    return [*zip(shared_texts(name, prefixes), shared_texts(name, kernels), strict=True)]


def _pairs(name: str, values: Sequence[Any], expected: str) -> tuple[list[Any], list[Any]]:
    for value in values:
        if not isinstance(value, (list, tuple)) or len(value) != 2:
            raise RefusedPayload(f"{name} has {short(value)}; expected {expected}")
    return [first for first, _ in values], [second for _, second in values]
