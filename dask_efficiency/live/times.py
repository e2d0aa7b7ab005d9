"""Time of each worker, GPU and prefix between two instants."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.buckets import GOOD, Breakdown, Bucket
from dask_efficiency.accounts.cluster.account import ACTIVITIES, WHERE
from dask_efficiency.accounts.cluster.presence import GPU_ACTIVITIES, Presence, shared
from dask_efficiency.accounts.rows import OTHER
from dask_efficiency.accounts.worker.balance import TASK_BUCKETS
from dask_efficiency.report.gpu import device_label
from dask_efficiency.show.figures import label, natural


@dataclass(frozen=True)
class Times:
    """Time of workers or GPUs, which are identified by position, since each appeared or since an instant."""

    #: Identity of a worker or GPU; differs from that of an earlier one with its name or address.
    keys: tuple[Hashable, ...]
    #: Shape (workers or GPUs, activities); zeros without a heartbeat.
    nanoseconds: NDArray[np.int64]

    def since(self, then: Self) -> Self:
        """Gain of each row since an earlier instant; all of it for new rows."""
        if then.keys == self.keys:  # the usual case, and far quicker
            return replace(self, nanoseconds=np.maximum(self.nanoseconds - then.nanoseconds, 0))
        place = {key: i for i, key in enumerate(then.keys)}
        before = np.vstack([then.nanoseconds, np.zeros_like(self.nanoseconds, shape=(1, self.nanoseconds.shape[1]))])
        rows = np.array([place.get(key, -1) for key in self.keys], dtype=np.intp)
        return replace(self, nanoseconds=np.maximum(self.nanoseconds - before[rows], 0))


def shares_of(nanoseconds: NDArray[np.int64]) -> NDArray[np.float64]:
    """Rows divided by their sums; zeros if a sum is zero."""
    whole = nanoseconds.sum(axis=1, keepdims=True)
    shares: NDArray[np.float64] = np.divide(nanoseconds, whole, out=np.zeros(nanoseconds.shape), where=whole > 0)
    return shares


# -- workers ---------------------------------------------------------------------------------------


#: The quantiles of a :class:`Spread`.
QUANTILES = (0.0, 0.1, 0.5, 0.9, 1.0)
_GOOD = [ACTIVITIES.index(bucket) for bucket in GOOD]
_NO_WORK = ACTIVITIES.index(Bucket.NO_WORK)


@dataclass(frozen=True)
class WorkerTimes(Times):
    """Time of each worker's threads by :data:`~dask_efficiency.accounts.cluster.account.ACTIVITIES`."""

    names: tuple[str, ...]
    nthreads: tuple[int, ...]

    @classmethod
    def of(cls, present: Iterable[Presence]) -> WorkerTimes:
        """Time of the workers that are present."""
        here = list(present)
        rows = [presence.account[WHERE["activity"]] for presence in here]
        return cls(
            tuple((presence.address, presence.joined) for presence in here),
            np.array(rows, dtype=np.int64).reshape(-1, len(ACTIVITIES)),
            tuple(presence.name for presence in here),
            tuple(presence.nthreads for presence in here),
        )

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """Shares of each worker's time with work, shape (workers, activities); a row is zeros without work."""
        with_work = self.nanoseconds.copy()
        with_work[:, _NO_WORK] = 0
        return shares_of(with_work)

    @cached_property
    def useful(self) -> NDArray[np.float64]:
        """Useful share of each worker's time with work, in [0, 1]; NaN without work."""
        return np.where(self.shares.any(axis=1), self.shares[:, _GOOD].sum(axis=1), math.nan)

    def did(self, worker: int) -> Breakdown:
        """Thread time of one worker; empty without a heartbeat in between."""
        return Breakdown(dict(zip(ACTIVITIES, self.nanoseconds[worker].tolist(), strict=True)))

    def largest_loss(self, worker: int) -> tuple[Bucket, float] | None:
        """Bucket of the largest loss of one worker, and its share; None if nothing was lost."""
        lost = self.shares[worker].copy()
        lost[_GOOD] = 0
        largest = int(lost.argmax())
        return (Bucket(ACTIVITIES[largest]), float(lost[largest])) if lost[largest] else None

    def shown(self, at_most: int) -> list[int]:
        """Workers to show: all by name; of more than ``at_most`` the least useful first, those without work last."""
        if len(self.names) > at_most:
            least_useful: list[int] = np.argsort(self.useful, kind="stable")[:at_most].tolist()
            return least_useful
        return sorted(range(len(self.names)), key=lambda worker: natural(self.names[worker]))


@dataclass(frozen=True, slots=True)
class Spread:
    """Spread of the workers' shares of time with work, by activity."""

    activities: tuple[str, ...]
    #: Quantiles :data:`QUANTILES` of the shares over workers with work, in [0, 1], shape (activities, quantiles).
    quantiles: NDArray[np.float64]
    #: Labels of the workers with the smallest and the largest share, by activity.
    least: tuple[str, ...]
    most: tuple[str, ...]


def spread(workers: WorkerTimes) -> Spread:
    """Spread of the workers' shares; its size does not depend on their number. Workers without work are left out."""
    with_work = np.flatnonzero(workers.shares.any(axis=1))
    shares = workers.shares[with_work]
    if not len(shares):
        return Spread((), np.zeros((0, len(QUANTILES))), (), ())
    spent = np.flatnonzero(shares.any(axis=0)).tolist()
    shares = shares[:, spent]
    least, most = (
        tuple(label(workers.names[worker]) for worker in with_work[places])
        for places in (shares.argmin(axis=0), shares.argmax(axis=0))
    )
    return Spread(tuple(ACTIVITIES[i] for i in spent), np.quantile(shares, QUANTILES, axis=0).T, least, most)


# -- GPUs ------------------------------------------------------------------------------------------


class Gpu(NamedTuple):
    """A GPU as one worker uses it."""

    worker: str
    model: str
    uuid: str


# Cached: it takes longer than the rest of a row, and never changes.
@lru_cache(maxsize=400)
def gpu_label(gpu: Gpu) -> str:
    """Worker and GPU, short and harmless."""
    return f"{label(gpu.worker)} {label(device_label(gpu.model, gpu.uuid))}"


@dataclass(frozen=True)
class GpuTimes(Times):
    """Time of each GPU by :data:`~dask_efficiency.accounts.cluster.presence.GPU_ACTIVITIES`.

    A GPU used by several workers has a row for each, and is in no sum: each worker sees its own work only.
    """

    gpus: tuple[Gpu, ...]

    @classmethod
    def of(cls, present: Iterable[Presence]) -> GpuTimes:
        """Time of the GPUs of the workers that are present."""
        found = [(worker, device) for worker in present for device in worker.devices]
        rows = [(device.kernels, device.copies, device.idle) for _, device in found]
        return cls(
            tuple((worker.address, worker.joined, device.uuid) for worker, device in found),
            np.array(rows, dtype=np.int64).reshape(-1, len(GPU_ACTIVITIES)),
            tuple(Gpu(worker.name, device.name, device.uuid) for worker, device in found),
        )

    @cached_property
    def shared(self) -> tuple[bool, ...]:
        """True for GPUs that other workers use, too."""
        several = shared(gpu.uuid for gpu in self.gpus)
        return tuple(gpu.uuid in several for gpu in self.gpus)

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """Shares of each GPU's time, shape (gpus, activities); a row is zeros if no time passed."""
        return shares_of(self.nanoseconds)

    @cached_property
    def shares_of_all(self) -> dict[str, float]:
        """Shares of the time of all unshared GPUs, each in [0, 1]; empty if no time passed."""
        own = self.nanoseconds[[not shared for shared in self.shared]]
        # The nanoseconds of a year of many GPUs do not fit into 64 bits.
        sums = [sum(column) for column in own.T.tolist()]
        whole = sum(sums)
        return {name: ns / whole for name, ns in zip(GPU_ACTIVITIES, sums, strict=True)} if whole else {}

    def shown(self, at_most: int) -> list[int]:
        """GPUs to show: all by worker, or if there are more than ``at_most``, the most idle first."""
        if len(self.gpus) > at_most:
            idle = self.shares[:, GPU_ACTIVITIES.index("idle")]
            most_idle: list[int] = np.argsort(-idle, kind="stable")[:at_most].tolist()
            return most_idle
        return sorted(range(len(self.gpus)), key=lambda i: (natural(self.gpus[i].worker), self.gpus[i].uuid))


# -- prefixes --------------------------------------------------------------------------------------


#: Prefixes shown one by one. By eye.
MAX_PREFIXES = 10
#: Nanoseconds by name and :data:`~dask_efficiency.accounts.worker.balance.TASK_BUCKETS`.
Rows = Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class PrefixTimes:
    """Prefixes with most time, the largest first, and the rest as one."""

    names: tuple[str, ...]
    #: Thread-seconds by :data:`~dask_efficiency.accounts.worker.balance.TASK_BUCKETS`, shape (prefixes, buckets).
    seconds: NDArray[np.float64]


def prefix_times(then: Rows, now: Rows, *, at_most: int = MAX_PREFIXES) -> PrefixTimes:
    """Thread time by prefix of the tasks that ended between two instants; the rest is the last row, "(other)"."""
    nothing = (0,) * len(TASK_BUCKETS)
    # Subtract before converting: on a big cluster the nanoseconds of a year are too many for a float.
    grown = {
        prefix: [ns - ago for ns, ago in zip(row, then.get(prefix, nothing), strict=True)]
        for prefix, row in now.items()
        if row != then.get(prefix, nothing)
    }
    gained = np.array(list(grown.values()), dtype=np.float64).reshape(-1, len(TASK_BUCKETS))
    names = list(grown)
    ranked = [i for i in np.argsort(-gained.sum(axis=1), kind="stable").tolist() if names[i] != OTHER]
    shown, rows = [label(names[i]) for i in ranked[:at_most]], gained[ranked[:at_most]]
    if rest := ranked[at_most:] + [i for i, name in enumerate(names) if name == OTHER]:
        shown.append(OTHER)
        rows = np.vstack([rows, gained[rest].sum(axis=0)])
    return PrefixTimes(tuple(shown), rows / 1e9)
