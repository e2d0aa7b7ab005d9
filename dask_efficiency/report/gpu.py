"""GpuSummary: time of a report's GPUs in total and by device, prefix and kernel."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dask_efficiency.accounts.buckets import Breakdown, Bucket
from dask_efficiency.accounts.cluster.presence import GPU_ACTIVITIES
from dask_efficiency.accounts.gpu import DeviceTotals, GpuTotals, KernelTotals
from dask_efficiency.show.figures import natural

MEANINGS = {
    "kernels": "at least one kernel ran",
    "copies": "no kernel ran, and a copy or fill did",
    "idle": "no kernel ran, and nothing was copied",
}

#: Names of a report's details that are waiting for a GPU within ``thread-noncpu``.
WAITS = ("thread-noncpu: GPU wait", "thread-noncpu: GPU contention", "thread-noncpu: GPU copies")
#: Fields that are sums over the workers.
_SUMS = ("kernel_ns", "attributed_ns", "dropped", "gaps", "cost", "unknown_tasks")
#: Stands for kernels beyond those that a worker counts by name.
OTHER_KERNELS = "(other)"


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """Time of one GPU as seen by one worker."""

    worker: str
    totals: DeviceTotals
    #: True if other workers used it, too; each sees its own work only.
    shared: bool

    @property
    def label(self) -> str:
        """Name for display."""
        return device_label(self.totals.name, self.totals.uuid)

    @property
    def activity(self) -> dict[str, int]:
        """Nanoseconds by activity; they add up to ``totals.elapsed``."""
        return {name: getattr(self.totals, name) for name in GPU_ACTIVITIES}


@dataclass(frozen=True, slots=True)
class GpuSummary:
    """Totals of the GPUs of several workers.

    A GPU used by several workers is in :attr:`devices` once for each, and in no sum and no factor: kernels of one
    worker may run while another sees the GPU idle.
    """

    devices: tuple[DeviceTime, ...]
    #: Nanoseconds of all devices by prefix: fair shares of kernels and copies.
    shares: Mapping[str, int]
    #: Kernels and copies without a known task.
    unattributed: int
    #: Device work by prefix while the task's thread did something else.
    hidden: Mapping[str, int]
    #: Upper bounds of GPU time by prefix, from meters that see no kernels.
    bounds: Mapping[str, int]
    #: Kernels, the most time first; those not counted by name are last.
    kernels: tuple[KernelTotals, ...]
    #: Sum of the kernels' durations, and the part with a known task.
    kernel_ns: int
    attributed_ns: int
    #: Lost records; nanoseconds for which meters gave way to a profiler, and of their own CPU.
    dropped: int
    gaps: int
    cost: int
    #: Tasks recorded before their use of a GPU was known.
    unknown_tasks: int
    meters: Mapping[tuple[str, str], tuple[str, ...]]
    #: Workers that are not measured, or no longer, by reason.
    refused: Mapping[str, tuple[str, ...]]

    @property
    def own(self) -> tuple[DeviceTime, ...]:
        """Devices used by one worker alone."""
        return tuple(device for device in self.devices if not device.shared)

    @property
    def activity(self) -> dict[str, int]:
        """Nanoseconds by activity of the unshared GPUs."""
        return {name: sum(device.activity[name] for device in self.own) for name in GPU_ACTIVITIES}

    @property
    def elapsed(self) -> int:
        """Nanoseconds for which the unshared GPUs were watched."""
        return sum(device.totals.elapsed for device in self.own)

    @property
    def shares_of_time(self) -> dict[str, float]:
        """Shares of :attr:`elapsed` by activity, each in [0, 1]; NaN if nothing was watched."""
        return {name: ns / self.elapsed if self.elapsed else math.nan for name, ns in self.activity.items()}

    @property
    def coverage(self) -> float:
        """Share of the kernels' durations with a known task, in [0, 1]; NaN without kernels."""
        return self.attributed_ns / self.kernel_ns if self.kernel_ns else math.nan

    @property
    def tail(self) -> int:
        """Nanoseconds of work after the end of its task."""
        return sum(device.totals.tail for device in self.devices)

    @property
    def late(self) -> int:
        """Nanoseconds of work reported too late to be recorded."""
        return sum(device.totals.late for device in self.devices)

    @property
    def factors(self) -> dict[str, float]:
        """Factors of the devices' efficiency, each in [0, 1]; empty without unshared devices.

        ``load balance``: mean over maximum of the devices' kernel time. ``communication``: largest kernel time over
        largest time of kernels and copies. ``orchestration``: that over elapsed time; the rest is time in which even
        the busiest device had nothing to do. Their product is the *device parallel efficiency*: mean kernel time over
        elapsed time. After BSC's DLB, module TALP, version 3.6: GPU metrics of its POP hybrid model. We differ: a
        device counts from when it was watched, so times are shares of its elapsed time, and the mean is weighted.
        """
        watched = [device.totals for device in self.own if device.totals.elapsed]
        if not watched:
            return {}
        elapsed = sum(device.elapsed for device in watched)
        mean = sum(device.kernels for device in watched) / elapsed
        kernels = max(device.kernels / device.elapsed for device in watched)
        busy = max((device.kernels + device.copies) / device.elapsed for device in watched)
        return {
            "load balance": min(mean / kernels, 1.0) if kernels else 1.0,
            "communication": kernels / busy if busy else 1.0,
            "orchestration": busy,
        }

    @property
    def parallel_efficiency(self) -> float:
        """Kernel time over elapsed time, in [0, 1]; NaN without unshared devices."""
        return self.shares_of_time["kernels"]


def summary(by_worker: Mapping[str, GpuTotals]) -> GpuSummary | None:
    """Totals of all workers; None without a GPU."""
    # a failed meter leaves what it had seen
    measured = {name: totals for name, totals in by_worker.items() if totals.meter != "none" or totals.devices}
    refused = {name: row.description for name, row in by_worker.items() if row.meter == "none" and row.description}
    if not measured and not refused:
        return None
    users = Counter(device.uuid for totals in measured.values() for device in totals.devices)
    every = [(name, device) for name, totals in measured.items() for device in totals.devices if device.elapsed]
    devices = [DeviceTime(name, device, users[device.uuid] > 1) for name, device in every]
    everyone = measured.values()
    return GpuSummary(
        devices=tuple(sorted(devices, key=lambda device: (natural(device.worker), device.totals.uuid))),
        shares=_summed(device.totals.shares for device in devices),
        unattributed=sum(device.totals.unattributed for device in devices),
        hidden=_summed(totals.hidden for totals in everyone),
        bounds=_summed(totals.bounds for totals in everyone),
        kernels=_kernels(kernel for totals in everyone for kernel in totals.kernels),
        **{name: sum(getattr(totals, name) for totals in everyone) for name in _SUMS},
        meters=_grouped({name: (row.meter, row.description) for name, row in measured.items() if row.meter != "none"}),
        refused=_grouped(refused),
    )


def offload_efficiency(whole: Breakdown, details: Mapping[str, float]) -> float:
    """Device offload efficiency: CPU time over CPU time plus waiting for GPUs, including the tasks' own kernels.

    As TALP's, which counts all of a thread's time in the GPU's runtime; we count only calls that wait.
    """
    waited = whole[Bucket.GPU] + waiting_seconds(details)
    both = whole[Bucket.THREAD_CPU] + waited
    return whole[Bucket.THREAD_CPU] / both if both else math.nan


def waiting_seconds(details: Mapping[str, float]) -> float:
    """Thread-seconds of waiting for a GPU that ran no kernel of the task."""
    return sum(details.get(name, 0.0) for name in WAITS)


def device_label(model: str, uuid: str) -> str:
    """Model and the beginning of the UUID, enough to tell GPUs of a kind apart."""
    kind, _, rest = uuid.partition("-")
    short = f"{kind}-{rest.split('-')[0]}" if rest and kind in ("GPU", "MIG") else uuid
    return f"{model.removeprefix('NVIDIA ')} {short}".strip()


def plain(found: GpuSummary) -> dict[str, Any]:
    """Headline numbers as plain data, times in integer nanoseconds."""

    def of_device(device: DeviceTime) -> dict[str, Any]:
        named = {"uuid": device.totals.uuid, "name": device.totals.name, "worker": device.worker}
        times = {"elapsed_ns": device.totals.elapsed, "activity_ns": device.activity}
        return {**named, "shared": device.shared, **times}

    return {
        "devices": tuple(map(of_device, found.devices)),
        "elapsed_ns": found.elapsed,
        "activity_ns": found.activity,
        "parallel_efficiency": found.parallel_efficiency,
        "factors": found.factors,
        "coverage": found.coverage,
        "shares_ns": found.shares,
        "unattributed_ns": found.unattributed,
    }


def _summed(rows: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for row in rows:
        total.update(row)
    return {name: ns for name, ns in total.most_common() if ns > 0}


def _kernels(rows: Iterable[KernelTotals]) -> tuple[KernelTotals, ...]:
    found: dict[tuple[str, str], KernelTotals] = {}
    for row in rows:
        key = (row.prefix, row.name) if row.name != OTHER_KERNELS else ("", OTHER_KERNELS)
        before = found.get(key, KernelTotals(*key, 0, 0))
        found[key] = KernelTotals(*key, before.launches + row.launches, before.ns + row.ns)
    return tuple(sorted(found.values(), key=lambda kernel: (kernel.name == OTHER_KERNELS, -kernel.ns)))


def _grouped(values: Mapping[str, Any]) -> dict[Any, tuple[str, ...]]:
    found: dict[Any, tuple[str, ...]] = {}
    for name, value in values.items():
        found[value] = (*found.get(value, ()), name)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))
