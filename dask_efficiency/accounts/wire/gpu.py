"""GPU accounts as plain data, checked when they are read: whole in files, as changes in heartbeats."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.checks import (
    MAX_NAME_LENGTH,
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
from dask_efficiency.accounts.gpu import DeviceTotals, GpuTotals, KernelTotals
from dask_efficiency.accounts.wire.tables import TableWriter, WireTable, column_sums, read_table

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
    """Check and read what :func:`encode_gpu` made; ``name`` is that of the payload in error messages."""
    given = mapping(name, payload)
    totals = GpuTotals(
        meter=text(f"{name}.meter", given.get("meter")),
        description=text(f"{name}.description", given.get("description")),
        devices=tuple(_device(f"{name}.devices", d) for d in listed(f"{name}.devices", given.get("devices"))),
        kernels=tuple(_kernel(f"{name}.kernels", k) for k in listed(f"{name}.kernels", given.get("kernels"))),
        hidden=counts(f"{name}.hidden", given.get("hidden")),
        bounds=counts(f"{name}.bounds", given.get("bounds")),
        readings=_readings_by_device(f"{name}.readings", given.get("readings")),
        **{field: whole(f"{name}.{field}", given.get(field)) for field in COUNTS},
    )
    check_uuids(name, [device.uuid for device in totals.devices])
    check_attributed(name, totals)
    return totals


def check_uuids(name: str, uuids: Sequence[str]) -> None:
    """Raise RefusedPayload if a device occurs twice."""
    if len(set(uuids)) < len(uuids):
        raise RefusedPayload(f"{name}.devices has uuids {short(uuids)}; expected each once")


def check_attributed(name: str, totals: GpuTotals) -> None:
    """Raise RefusedPayload if tasks have more kernel time than there is."""
    if totals.attributed_ns > totals.kernel_ns:
        raise RefusedPayload(
            f"{name}.attributed_ns is {totals.attributed_ns}; expected at most kernel_ns = {totals.kernel_ns}"
        )


def checked(name: str, device: DeviceTotals, shares: int) -> DeviceTotals:
    """The device itself; raises RefusedPayload if its times, with this sum of shares, do not add up."""
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


def _readings_by_device(name: str, value: object) -> dict[str, dict[str, float]]:
    return {text(name, uuid): _reading(f"{name}[{short(uuid)}]", row) for uuid, row in mapping(name, value).items()}


def _reading(name: str, value: object) -> dict[str, float]:
    row: Mapping[Any, Any] = mapping(name, value)
    for key, number in row.items():
        if type(number) not in (int, float) or not math.isfinite(number):
            raise RefusedPayload(f"{name}[{short(key)}] is {short(number)}; expected a finite number")
    return {text(name, key): float(number) for key, number in row.items()}


#: Kernels whose names both sides remember, in case they come back among those that took most time. A guess.
MAX_KERNELS = 200

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
        self._kept: list[Any] | None = None
        self._kept_at = -1
        self._numbers: list[int] = []
        self._readings: list[float] = []

    def take(self, gpu: GpuTotals, seq: int) -> None:
        """Note a state."""
        kept = [
            gpu.meter[:MAX_NAME_LENGTH],
            gpu.description[:MAX_NAME_LENGTH],
            [[device.uuid, device.name[:MAX_NAME_LENGTH]] for device in gpu.devices],
            [[uuid, *row] for uuid, row in gpu.readings.items()],
        ]
        if kept != self._kept:
            self._kept, self._kept_at = kept, seq
        self._numbers = [getattr(gpu, name) for name in COUNTS]
        for device in gpu.devices:
            self._numbers += [getattr(device, name) for name in DEVICE_COUNTS]
        self._readings = [number for row in gpu.readings.values() for number in row.values()]
        rows: dict[Where, tuple[int]] = {}
        for at, shares in enumerate((gpu.hidden, gpu.bounds, *(device.shares for device in gpu.devices))):
            for prefix, ns in shares.items():
                rows[at, prefix] = (ns,)
        self._by_prefix.take(seq, rows)
        self._take_kernels(gpu.kernels, seq)

    def _take_kernels(self, kernels: Sequence[KernelTotals], seq: int) -> None:
        now: dict[Kernel, tuple[int, int]] = {}
        for prefix, name, launches, ns in kernels:
            key = prefix, name[:MAX_NAME_LENGTH]
            before = now.get(key)
            now[key] = (launches, ns) if before is None else (before[0] + launches, before[1] + ns)
        if len(self._rows) <= MAX_KERNELS:
            now = {**dict.fromkeys(self._rows, (0, 0)), **now}
        self._rows = now
        self._kernels.take(seq, now)

    def write(self, since: int) -> dict[str, Any]:
        """Changes after a state; -1 for everything."""
        shares, places = self._by_prefix.write(since)
        kernels, names = self._kernels.write(since)
        found: dict[str, Any] = {"a": list(self._numbers), "r": list(self._readings), "b": shares, "c": kernels}
        if self._kept_at > since:
            found["k"] = _copied(self._kept)
        found["p"] = [list(each) if isinstance(each, tuple) else each for each in places]
        found["n"] = [list(each) if isinstance(each, tuple) else each for each in names]
        return found


def _copied(plain: Any) -> Any:
    return [_copied(each) for each in plain] if isinstance(plain, list) else plain


@dataclass(frozen=True, slots=True, eq=False)
class HeldGpu:
    """GPU accounts as the scheduler has them."""

    totals: GpuTotals
    by_prefix: WireTable[Where]
    #: Group of nanoseconds of each place.
    where: NDArray[np.int64]
    kernels: WireTable[Kernel]
    kept: tuple[str, str, tuple[tuple[str, str], ...], tuple[tuple[str, ...], ...]]


def read_gpu(payload: object, last: HeldGpu | None = None) -> HeldGpu:
    """GPU accounts after a payload; ``last`` as they were, None where the payload has all of them."""
    given = mapping("gpu", payload)
    kept = _kept(given["k"]) if "k" in given else last.kept if last is not None else _kept(None)
    by_prefix = read_table(
        "gpu.shares",
        last.by_prefix if last is not None else None,
        given.get("b"),
        given.get("p"),
        columns=1,
        check=_wheres,
    ).table
    kernels = read_table(
        "gpu.kernels",
        last.kernels if last is not None else None,
        given.get("c"),
        given.get("n"),
        columns=2,
        check=_kernels,
    ).table
    if last is not None and by_prefix.names is last.by_prefix.names:
        where = last.where
    else:
        where = np.array([-1 if name is None else name[0] for name in by_prefix.names], np.int64)
    meter, description, known, sensors = kept
    numbers = _numbers(given.get("a"), len(COUNTS) + len(DEVICE_COUNTS) * len(known))
    if len(where) and where.max() >= _SHARES + len(known):
        raise RefusedPayload(f"gpu.shares are of device {where.max() - _SHARES}; expected one of {len(known)}")
    devices = []
    for i, (uuid, name) in enumerate(known):
        begin = len(COUNTS) + len(DEVICE_COUNTS) * i
        counts = dict(zip(DEVICE_COUNTS, numbers[begin : begin + len(DEVICE_COUNTS)], strict=True))
        shares = _ByPrefix(by_prefix, where, _SHARES + i)
        devices.append(checked("gpu.devices", DeviceTotals(uuid, name, shares=shares, **counts), shares.sum))
    totals = GpuTotals(
        meter=meter,
        description=description,
        devices=tuple(devices),
        kernels=_Kernels(kernels),
        hidden=_ByPrefix(by_prefix, where, _HIDDEN),
        bounds=_ByPrefix(by_prefix, where, _BOUNDS),
        readings=_readings(given.get("r"), sensors),
        **dict(zip(COUNTS, numbers, strict=False)),
    )
    check_attributed("gpu", totals)
    return HeldGpu(totals, by_prefix, where, kernels, kept)


class _ByPrefix(Mapping[str, int]):
    """One group of the table of nanoseconds by prefix, built on first access."""

    __slots__ = ("_found", "_of", "_table", "_where")

    def __init__(self, table: WireTable[Where], where: NDArray[np.int64], of: int) -> None:
        self._table, self._where, self._of = table, where, of
        self._found: dict[str, int] | None = None

    @property
    def sum(self) -> int:
        rows = self._table.rows[self._where == self._of]
        return column_sums(rows)[0]

    @property
    def _rows(self) -> dict[str, int]:
        if self._found is None:
            names, rows = self._table.names, self._table.rows[:, 0].tolist()
            self._found = {
                name[1]: ns for name, ns in zip(names, rows, strict=True) if name is not None and name[0] == self._of
            }
        return self._found

    def __getitem__(self, prefix: str) -> int:
        return self._rows[prefix]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


class _Kernels(Sequence[KernelTotals]):
    """Kernels, the longest first, built on first access."""

    __slots__ = ("_found", "_table")

    def __init__(self, table: WireTable[Kernel]) -> None:
        self._table = table
        self._found: tuple[KernelTotals, ...] | None = None

    @property
    def _rows(self) -> tuple[KernelTotals, ...]:
        if self._found is None:
            pairs = zip(self._table.names, self._table.rows.tolist(), strict=True)
            found = [KernelTotals(*name, *row) for name, row in pairs if name is not None and any(row)]
            # The sum of the others, whose name and prefix are the same, comes last.
            found.sort(key=lambda kernel: (kernel.prefix == kernel.name, -kernel.ns, kernel.prefix, kernel.name))
            self._found = tuple(found)
        return self._found

    @overload
    def __getitem__(self, i: int) -> KernelTotals: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[KernelTotals]: ...
    def __getitem__(self, i: int | slice) -> KernelTotals | Sequence[KernelTotals]:
        return self._rows[i]

    def __len__(self) -> int:
        return len(self._rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._rows == tuple(other)

    __hash__ = None  # type: ignore[assignment] # as of any sequence that is compared by what it holds


def _kept(value: object) -> tuple[str, str, tuple[tuple[str, str], ...], tuple[tuple[str, ...], ...]]:
    entries = listed("gpu.k", value)
    if len(entries) != 4:
        raise RefusedPayload(f"gpu.k is {short(value)}; expected a meter, its description, devices and readings")
    devices = []
    for entry in listed("gpu.devices", entries[2]):
        if not isinstance(entry, (list, tuple)) or len(entry) != 2:
            raise RefusedPayload(f"gpu.devices has {short(entry)}; expected a uuid and a name")
        devices.append((text("gpu.devices.uuid", entry[0]), text("gpu.devices.name", entry[1])))
    check_uuids("gpu", [uuid for uuid, _ in devices])
    sensors = []
    for entry in listed("gpu.readings", entries[3]):
        names = tuple(text("gpu.readings", name) for name in listed("gpu.readings", entry))
        if not names:
            raise RefusedPayload("gpu.readings are of no device")
        sensors.append(names)
    return text("gpu.meter", entries[0]), text("gpu.description", entries[1]), tuple(devices), tuple(sensors)


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
