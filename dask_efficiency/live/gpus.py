"""The GPUs of a cluster in the last seconds: kernels, copies and idle, as the workers that are there saw them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.cluster.gpus import devices_of, shared
from dask_efficiency.accounts.cluster.presence import GPU_ACTIVITIES, Presence
from dask_efficiency.live.counters import gained, shares_of
from dask_efficiency.report.gpu import device_label
from dask_efficiency.show.labels import label
from dask_efficiency.show.names import natural

_IDLE = GPU_ACTIVITIES.index("idle")


class Gpu(NamedTuple):
    """One GPU as one worker uses it."""

    worker: str
    model: str
    uuid: str

    @property
    def label(self) -> str:
        """Worker and GPU, short and harmless."""
        return _label(self)


@lru_cache(maxsize=400)
def _label(gpu: Gpu) -> str:
    # Takes longer than all the rest of a row, and is the same each time.
    return f"{label(gpu.worker)} {label(device_label(gpu.model, gpu.uuid))}"


@dataclass(frozen=True, slots=True)
class GpuCounters:
    """What each GPU had done by one instant since it was watched."""

    keys: tuple[Hashable, ...]
    gpus: tuple[Gpu, ...]
    #: By :data:`~dask_efficiency.accounts.cluster.presence.GPU_ACTIVITIES`, shape (gpus, activities).
    nanoseconds: NDArray[np.int64]

    @classmethod
    def of(cls, present: Iterable[Presence]) -> GpuCounters:
        """The counters of the GPUs of the workers that are there now."""
        found = list(devices_of(present))
        rows = [(device.kernels, device.copies, device.idle) for _, device in found]
        return cls(
            tuple((worker.address, worker.joined, device.uuid) for worker, device in found),
            tuple(Gpu(worker.name, device.name, device.uuid) for worker, device in found),
            np.array(rows, dtype=np.int64).reshape(-1, len(GPU_ACTIVITIES)),
        )


@dataclass(frozen=True)
class GpuTimes:
    """What each GPU did between two instants. GPUs are told apart by their position.

    A GPU that several workers use is there once for each of them, and in no sum: each sees its own work only.
    """

    gpus: tuple[Gpu, ...]
    #: By :data:`~dask_efficiency.accounts.cluster.presence.GPU_ACTIVITIES`, shape (gpus, activities).
    nanoseconds: NDArray[np.int64]

    @classmethod
    def between(cls, then: GpuCounters | None, now: GpuCounters) -> GpuTimes:
        """The time of the GPUs that are there ``now``; of one that is new since ``then``, since it was watched."""
        return cls(now.gpus, gained(now, then))

    @cached_property
    def shared(self) -> tuple[bool, ...]:
        """Whether other workers use the GPU too."""
        several = shared(gpu.uuid for gpu in self.gpus)
        return tuple(gpu.uuid in several for gpu in self.gpus)

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """Shares of each GPU's time, shape (gpus, activities); a row adds up to 1, or to 0 where no time passed."""
        return shares_of(self.nanoseconds)

    @cached_property
    def shares_of_all(self) -> dict[str, float]:
        """Shares of the time of all GPUs that one worker uses alone, each in [0, 1]; empty where no time passed."""
        own = self.nanoseconds[[not shared for shared in self.shared]]
        # The nanoseconds of a year of many GPUs do not fit into 64 bits.
        sums = [sum(column) for column in own.T.tolist()]
        whole = sum(sums)
        return {name: ns / whole for name, ns in zip(GPU_ACTIVITIES, sums, strict=True)} if whole else {}

    @property
    def idle(self) -> float:
        """Share of that time for which they were idle, in [0, 1]; NaN where no time passed."""
        return self.shares_of_all.get("idle", math.nan)

    def shown(self, at_most: int) -> list[int]:
        """The GPUs to show where there is room for so many: all by worker, or of more those that were idle most."""
        if len(self.gpus) > at_most:
            most_idle: list[int] = np.argsort(-self.shares[:, _IDLE], kind="stable")[:at_most].tolist()
            return most_idle
        return sorted(range(len(self.gpus)), key=lambda i: (natural(self.gpus[i].worker), self.gpus[i].uuid))
