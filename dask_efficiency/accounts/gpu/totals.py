"""GpuTotals: the GPU time of a worker as its heartbeat carries it, in integer nanoseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple


class GpuUse(NamedTuple):
    """What the thread of a task waited for in calls that wait for the GPU: four disjoint parts, in nanoseconds."""

    #: A kernel of its own task ran, so this time was useful.
    kernel: int = 0
    #: No kernel of its own ran, but one of another task did, on a device that its own work was waiting for.
    contention: int = 0
    #: Neither was the case, and a copy or fill of its own task ran.
    copy: int = 0
    #: None of these.
    wait: int = 0
    #: The part of all four in calls that burn CPU while they wait.
    spun: int = 0


@dataclass(frozen=True, slots=True)
class DeviceTotals:
    """One device's time as one worker saw it: kernels + copies + idle == elapsed."""

    uuid: str
    name: str = ""
    #: From when the meter was armed to the last instant of which everything is known.
    elapsed: int = 0
    #: At least one kernel ran.
    kernels: int = 0
    #: No kernel ran, and a copy or fill did.
    copies: int = 0
    idle: int = 0
    #: Fair shares of kernels + copies by prefix, where m tasks at once have 1/m each; with ``unattributed`` they add
    #: up to kernels + copies.
    shares: Mapping[str, int] = field(default_factory=dict)
    #: The share of work that is not known to belong to a task.
    unattributed: int = 0
    #: The part of ``shares`` after the end of the task.
    tail: int = 0
    #: Work that became known too late, when its time had been counted as idle or as other work.
    late: int = 0

    def since(self, earlier: DeviceTotals) -> DeviceTotals:
        """What came on top of ``earlier``, totals of the same device and worker."""
        return replace(
            self,
            elapsed=self.elapsed - earlier.elapsed,
            kernels=self.kernels - earlier.kernels,
            copies=self.copies - earlier.copies,
            idle=self.idle - earlier.idle,
            shares=_gained(self.shares, earlier.shares),
            unattributed=self.unattributed - earlier.unattributed,
            tail=self.tail - earlier.tail,
            late=self.late - earlier.late,
        )


class KernelTotals(NamedTuple):
    """All kernels of one name that tasks of one prefix asked for."""

    prefix: str
    #: ``(other)`` for those that are not listed separately.
    name: str
    launches: int
    #: The sum of their durations, nanoseconds; where two ran at once the time counts twice.
    ns: int


@dataclass(frozen=True, slots=True)
class GpuTotals:
    """The GPU time of one worker: what its tasks had of each device, and how well that is known."""

    #: As :attr:`~dask_efficiency.gpu.meter.GpuMeter.kind` and ``description``.
    meter: str = "none"
    description: str = ""
    devices: Sequence[DeviceTotals] = ()
    #: The kernels that took most time; the rest under ``(other)``.
    kernels: Sequence[KernelTotals] = ()
    #: By prefix, nanoseconds of work on a device while the task's thread did something else.
    hidden: Mapping[str, int] = field(default_factory=dict)
    #: The sum of the durations of all kernels, and of those that are known to belong to a task.
    kernel_ns: int = 0
    attributed_ns: int = 0
    #: From a meter that sees no operations: an upper bound of the time on the device by prefix, nanoseconds.
    bounds: Mapping[str, int] = field(default_factory=dict)
    dropped: int = 0
    #: Nanoseconds during which the meter gave way to a profiler.
    gaps: int = 0
    #: CPU nanoseconds of the meter itself.
    cost: int = 0
    #: Tasks whose thread time was recorded before their use of the device was known, so that none of it is ``gpu``.
    unknown_tasks: int = 0
    #: The last sensor readings, by device and name; see ``adapters/nvml.py`` for names and units.
    readings: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def coverage(self) -> float | None:
        """The share of kernel time that is known to belong to a task, 0 to 1; None if no kernel was seen."""
        return self.attributed_ns / self.kernel_ns if self.kernel_ns else None

    def since(self, earlier: GpuTotals) -> GpuTotals:
        """What came on top of ``earlier``, of the same worker incarnation; readings are the latest."""
        devices = {device.uuid: device for device in earlier.devices}
        kernels = {(kernel.prefix, kernel.name): kernel for kernel in earlier.kernels}
        known = [(now, kernels.get((now.prefix, now.name))) for now in self.kernels]
        return replace(
            self,
            devices=tuple(now.since(devices[now.uuid]) if now.uuid in devices else now for now in self.devices),
            kernels=tuple(
                KernelTotals(now.prefix, now.name, now.launches - then.launches, now.ns - then.ns) if then else now
                for now, then in known
                if then is None or now.launches > then.launches
            ),
            hidden=_gained(self.hidden, earlier.hidden),
            kernel_ns=self.kernel_ns - earlier.kernel_ns,
            attributed_ns=self.attributed_ns - earlier.attributed_ns,
            bounds=_gained(self.bounds, earlier.bounds),
            dropped=self.dropped - earlier.dropped,
            gaps=self.gaps - earlier.gaps,
            cost=self.cost - earlier.cost,
            unknown_tasks=self.unknown_tasks - earlier.unknown_tasks,
        )


def _gained(now: Mapping[str, int], then: Mapping[str, int]) -> dict[str, int]:
    """What was added, by prefix."""
    return {prefix: ns - then.get(prefix, 0) for prefix, ns in now.items() if ns > then.get(prefix, 0)}
