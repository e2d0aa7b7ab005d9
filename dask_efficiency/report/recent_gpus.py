"""What each GPU did in the last minutes: kernels, copies and idle, as the workers that are there saw it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from dask_efficiency.cluster import Presence
from dask_efficiency.report.figures import format_share
from dask_efficiency.report.gpu import ACTIVITIES, DeviceTime
from dask_efficiency.report.labels import label

#: Of more GPUs than these, a view with other figures beside it shows those that are idle most.
FEW_GPUS = 16

#: A view of their own has room for as many.
MANY_GPUS = 100

#: A worker's presence, its address and when it joined; and a GPU's UUID.
Key = tuple[str, int, str]

#: Nanoseconds by :data:`~dask_efficiency.report.gpu.ACTIVITIES`, of each GPU by one instant.
GpusMoment = Mapping[Key, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU's last minutes."""

    #: Worker and GPU, short.
    name: str
    #: Shares of the time, in [0, 1], by :data:`~dask_efficiency.report.gpu.ACTIVITIES`; zeros where no time passed.
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
    return {key: tuple(device.activity.values()) for key, device in _devices(present).items()}


def own_gpus(present: Iterable[Presence]) -> dict[str, dict[str, int]]:
    """Nanoseconds by activity of the GPUs that one worker uses alone, by a key that stays the same."""
    return {" ".join(map(str, key)): device.activity for key, device in _devices(present).items() if not device.shared}


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
    before = then or {}
    nothing = (0,) * len(ACTIVITIES)
    rows, idle, whole = [], 0, 0
    for key, device in _devices(present).items():
        did = [max(now - was, 0) for now, was in zip(device.activity.values(), before.get(key, nothing), strict=True)]
        rows.append((device, did, sum(did)))
        if not device.shared:
            idle, whole = idle + did[-1], whole + sum(did)
    title = f"{len(rows)} GPU{'s' * (len(rows) > 1)}"
    if whole:
        title += f", idle {format_share(idle / whole)} of the time"
    if len(rows) > at_most:
        title = f"The {at_most} of {title}, that are idle most"
        rows.sort(key=lambda row: -row[1][-1] / row[2] if row[2] else 0.0)
    shown = tuple(
        Gpu(
            _name(device.worker, device.label),
            tuple(ns / time for ns in did) if time else (0.0,) * len(did),
            device.shared,
        )
        for device, did, time in rows[:at_most]
    )
    return Gpus(shown, len(rows), idle / whole if whole else math.nan, title)


@lru_cache(maxsize=4 * MANY_GPUS)
def _name(worker: str, gpu: str) -> str:
    """Takes longer than all the rest of a row, and is the same each time."""
    return f"{label(worker)} {label(gpu)}"


def _devices(present: Iterable[Presence]) -> dict[Key, DeviceTime]:
    found = {
        (presence.address, presence.joined, device.uuid): (presence.name, device)
        for presence in present
        if presence.snapshot is not None and presence.snapshot.gpu is not None
        for device in presence.snapshot.gpu.devices
    }
    users = Counter(device.uuid for _, device in found.values())
    return {key: DeviceTime(name, device, users[device.uuid] > 1) for key, (name, device) in found.items()}
