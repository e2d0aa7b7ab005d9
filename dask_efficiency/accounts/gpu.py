"""GpuTotals: the GPU time of a worker as its heartbeat carries it, in integer nanoseconds, and sums of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dask_efficiency.accounts.rows import MAX_SENT, OTHER, add, growth, kept_apart


class GpuUse(NamedTuple):
    """Time of a task's thread in calls that wait for the GPU, as four disjoint parts, in nanoseconds."""

    #: A kernel of its own task ran, so this time was useful.
    kernel: int = 0
    #: No kernel of its own ran, but one of another task did, on a device that its own work was waiting for.
    contention: int = 0
    #: No such kernel ran, but a copy or fill of its own task did.
    copy: int = 0
    wait: int = 0
    #: The part of all four in calls that burn CPU while they wait.
    spun: int = 0


@dataclass(frozen=True, slots=True)
class DeviceTotals:
    """One device's time as one worker saw it: kernels + copies + idle == elapsed."""

    uuid: str
    name: str = ""
    #: From the start of the meter to the last instant whose records are complete.
    elapsed: int = 0
    kernels: int = 0
    copies: int = 0
    idle: int = 0
    #: Shares of kernels + copies by prefix; of m tasks at once each has 1/m. With ``unattributed`` they add up to
    #: kernels + copies.
    shares: Mapping[str, int] = field(default_factory=dict)
    unattributed: int = 0
    #: The part of ``shares`` after the end of the task.
    tail: int = 0
    #: Work whose records came too late: its time is counted as idle or as other work.
    late: int = 0


#: The fields of a device that add up.
DEVICE_NUMBERS = ("elapsed", "kernels", "copies", "idle", "unattributed", "tail", "late")


class KernelTotals(NamedTuple):
    """Kernels of one name that tasks of one prefix launched."""

    prefix: str
    #: ``(other)`` for those that are not listed separately.
    name: str
    launches: int
    #: The sum of their durations, nanoseconds; where two ran at once the time counts twice.
    ns: int


@dataclass(frozen=True, slots=True)
class GpuTotals:
    """GPU time of one worker: its tasks' shares of each device, and how complete these are."""

    #: :attr:`~dask_efficiency.gpu.meter.GpuMeter.kind` and ``description`` of the meter.
    meter: str = "none"
    description: str = ""
    devices: Sequence[DeviceTotals] = ()
    #: The kernels that took most time; the rest under ``(other)``.
    kernels: Sequence[KernelTotals] = ()
    #: By prefix, nanoseconds of work on a device while the task's thread did something else.
    hidden: Mapping[str, int] = field(default_factory=dict)
    #: Summed durations of all kernels, and of those of known tasks.
    kernel_ns: int = 0
    attributed_ns: int = 0
    #: Upper bounds of the time on the device by prefix, nanoseconds, from a meter that sees no operations.
    bounds: Mapping[str, int] = field(default_factory=dict)
    dropped: int = 0
    #: Nanoseconds during which the meter gave way to a profiler.
    gaps: int = 0
    cost: int = 0
    #: Tasks finalized before their use of the device was known, so that none of their time is ``gpu``.
    unknown_tasks: int = 0
    #: The last sensor readings, by device and name; see ``adapters/nvml.py`` for names and units.
    readings: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def coverage(self) -> float | None:
        """Share of kernel time that belongs to a known task, 0 to 1; None if no kernel was seen."""
        return self.attributed_ns / self.kernel_ns if self.kernel_ns else None

    def since(self, earlier: GpuTotals) -> GpuTotals:
        """Growth since ``earlier``, totals of the same worker incarnation; readings are the latest."""
        devices = {device.uuid: device for device in earlier.devices}
        before = {kernel[:2]: kernel[2:] for kernel in earlier.kernels}
        kernels = [(now, *before.get(now[:2], (0, 0))) for now in self.kernels]
        return replace(
            self,
            devices=tuple(_grown(now, devices.get(now.uuid, DeviceTotals(now.uuid))) for now in self.devices),
            kernels=tuple(
                KernelTotals(*now[:2], now.launches - launches, now.ns - ns)
                for now, launches, ns in kernels
                if now[:2] not in before or now.launches > launches
            ),
            hidden=growth(self.hidden, earlier.hidden),
            bounds=growth(self.bounds, earlier.bounds),
            **{name: getattr(self, name) - getattr(earlier, name) for name in NUMBERS},
        )


#: The fields of the totals that add up.
NUMBERS = ("kernel_ns", "attributed_ns", "dropped", "gaps", "cost", "unknown_tasks")

#: Kernels that a sum lists, those that took most time. A guess: pages show 20.
MAX_KERNELS = 100


def _grown(now: DeviceTotals, then: DeviceTotals) -> DeviceTotals:
    """Growth between totals of the same device and worker."""
    grown = {name: getattr(now, name) - getattr(then, name) for name in DEVICE_NUMBERS}
    return replace(now, shares=growth(now.shares, then.shares), **grown)


def add_totals(former: GpuTotals, latter: GpuTotals) -> GpuTotals:
    """Add two totals; meter and description are the latter's, unless only the former measured anything."""
    shown = latter if latter.meter != "none" or former.meter == "none" else former
    return replace(
        shown,
        devices=_devices((*former.devices, *latter.devices)),
        kernels=_kernels((*former.kernels, *latter.kernels)),
        hidden=_sum(former.hidden, latter.hidden),
        bounds=_sum(former.bounds, latter.bounds),
        readings={**former.readings, **latter.readings},
        **{name: getattr(former, name) + getattr(latter, name) for name in NUMBERS},
    )


def _devices(devices: Iterable[DeviceTotals]) -> tuple[DeviceTotals, ...]:
    """One for each device; the parts of a sum add up if those of both do."""
    found: dict[str, DeviceTotals] = {}
    for device in devices:
        uuid = kept_apart(device.uuid, found, MAX_SENT)
        known = found.get(uuid, DeviceTotals(uuid))
        numbers = {name: getattr(known, name) + getattr(device, name) for name in DEVICE_NUMBERS}
        name = device.name if uuid == device.uuid else ""
        found[uuid] = DeviceTotals(uuid, name, shares=_sum(known.shares, device.shares), **numbers)
    return tuple(found.values())


def _kernels(kernels: Iterable[KernelTotals]) -> tuple[KernelTotals, ...]:
    ranked = sorted(_by_name(kernels), key=lambda kernel: (kernel.name == OTHER, -kernel.ns))
    rest = (kernel._replace(prefix="", name=OTHER) for kernel in ranked[MAX_KERNELS:])
    return _by_name((*ranked[:MAX_KERNELS], *rest))


def _by_name(kernels: Iterable[KernelTotals]) -> tuple[KernelTotals, ...]:
    """One for each prefix and name."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for prefix, name, launches, ns in kernels:
        known = found.get((prefix, name), (0, 0))
        found[prefix, name] = known[0] + launches, known[1] + ns
    return tuple(KernelTotals(*key, *numbers) for key, numbers in found.items())


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    found = dict(one)
    add(found, other)
    return found
