"""What each GPU did in the last minutes: kernels, copies and idle, as the workers that are there saw it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import nlargest
from operator import itemgetter

from dask_efficiency.cluster import Presence
from dask_efficiency.gpu.totals import DeviceTotals
from dask_efficiency.report.figures import format_share, natural
from dask_efficiency.report.gpu import device_label
from dask_efficiency.report.labels import label

#: Of more GPUs than these, a view with other figures beside it shows those that are idle most.
FEW_GPUS = 16

#: A view of their own has room for as many.
MANY_GPUS = 100

#: A worker's presence, its address and when it joined; and a GPU's UUID.
Key = tuple[str, int, str]

#: Nanoseconds by :data:`~dask_efficiency.cluster.GPU_ACTIVITIES`, of each GPU by one instant.
GpusMoment = Mapping[Key, tuple[int, int, int]]

_NOTHING = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU's last minutes."""

    #: Worker and GPU, short.
    name: str
    #: Shares of the time, in [0, 1], by :data:`~dask_efficiency.cluster.GPU_ACTIVITIES`; zeros where no time passed.
    shares: tuple[float, ...]
    #: Other workers use it too, and each sees its own work only.
    shared: bool


@dataclass(frozen=True, slots=True)
class Gpus:
    """Some GPUs, and what it says of all."""

    rows: tuple[Gpu, ...]
    number: int
    #: Share of the time for which those that are not shared were idle, in [0, 1]; NaN where none is.
    idle: float
    #: What is shown of how many, in words.
    title: str


def gpus_moment(present: Iterable[Presence]) -> GpusMoment:
    """What the GPUs of these workers had done by now."""
    return {_key(worker, gpu): (gpu.kernels, gpu.copies, gpu.idle) for worker, gpu in _devices(present)}


def own_gpus(present: Iterable[Presence]) -> dict[str, dict[str, int]]:
    """Nanoseconds by activity of the GPUs that one worker uses alone, by a key that stays the same."""
    devices = _devices(present)
    shared = _shared(devices)
    return {
        " ".join(map(str, _key(worker, gpu))): {"kernels": gpu.kernels, "copies": gpu.copies, "idle": gpu.idle}
        for worker, gpu in devices
        if gpu.uuid not in shared
    }


def gpus(present: Iterable[Presence], then: GpusMoment | None = None, *, at_most: int = FEW_GPUS) -> Gpus:
    """The GPUs by worker; of more than ``at_most``, those that are idle most.

    Parameters
    ----------
    present
        The workers that are there.
    then
        Their time counts from then on; that of a GPU which is new since, from when it was watched.
    at_most
        Number of GPUs.
    """
    # of a thousand GPUs, only what is shown is made readable
    before = then or {}
    devices = _devices(present)
    shared = _shared(devices)
    rows, all_idle, whole = [], 0, 0
    for worker, gpu in devices:
        was = before.get(_key(worker, gpu), _NOTHING)
        did = max(gpu.kernels - was[0], 0), max(gpu.copies - was[1], 0), max(gpu.idle - was[2], 0)
        time, idle = sum(did), did[2]
        rows.append((idle / time if time else 0.0, did, worker, gpu))
        if gpu.uuid not in shared:
            all_idle, whole = all_idle + idle, whole + time
    title = f"{len(rows)} GPU{'s' * (len(rows) > 1)}"
    if whole:
        title += f", idle {format_share(all_idle / whole)} of the time"
    if len(rows) > at_most:
        title = f"The {at_most} of {title}, that are idle most"
        rows = nlargest(at_most, rows, key=itemgetter(0))
    else:
        rows.sort(key=lambda row: (natural(row[2].name), row[3].uuid))
    shown = tuple(
        Gpu(_name(worker.name, gpu.name, gpu.uuid), _shares(did), gpu.uuid in shared) for _, did, worker, gpu in rows
    )
    return Gpus(shown, len(devices), all_idle / whole if whole else math.nan, title)


def _shares(did: Sequence[int]) -> tuple[float, ...]:
    whole = sum(did)
    return tuple(ns / whole for ns in did) if whole else (0.0,) * len(did)


@lru_cache(maxsize=4 * MANY_GPUS)
def _name(worker: str, model: str, uuid: str) -> str:
    """Takes longer than all the rest of a row, and is the same each time."""
    return f"{label(worker)} {label(device_label(model, uuid))}"


def _devices(present: Iterable[Presence]) -> list[tuple[Presence, DeviceTotals]]:
    return [
        (presence, device)
        for presence in present
        if presence.snapshot is not None and presence.snapshot.gpu is not None
        for device in presence.snapshot.gpu.devices
    ]


def _key(worker: Presence, gpu: DeviceTotals) -> Key:
    return worker.address, worker.joined, gpu.uuid


def _shared(devices: Iterable[tuple[Presence, DeviceTotals]]) -> set[str]:
    """UUIDs of the GPUs that several workers use."""
    return {uuid for uuid, users in Counter(gpu.uuid for _, gpu in devices).items() if users > 1}
