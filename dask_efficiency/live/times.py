"""Time of each worker, GPU and prefix between two instants."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.buckets import GOOD, Breakdown, Bucket
from dask_efficiency.accounts.cluster.account import ACTIVITIES, WHERE
from dask_efficiency.accounts.cluster.presence import GPU_ACTIVITIES, Presence, shared
from dask_efficiency.accounts.rows import OTHER
from dask_efficiency.accounts.worker.balance import TASK_BUCKETS
from dask_efficiency.report.gpu import device_label
from dask_efficiency.show.figures import label, natural


def gained(now: WorkerTimes | GpuTimes, then: WorkerTimes | GpuTimes | None) -> NDArray[np.int64]:
    """Gain of each row of ``now`` since ``then``; all of it for new rows, or if ``then`` is None."""
    if then is None:
        return now.nanoseconds
    if then.keys == now.keys:  # the usual case, and far quicker
        return np.asarray(np.maximum(now.nanoseconds - then.nanoseconds, 0))
    place = {key: i for i, key in enumerate(then.keys)}
    before = np.vstack([then.nanoseconds, np.zeros_like(then.nanoseconds, shape=(1, then.nanoseconds.shape[1]))])
    return np.maximum(now.nanoseconds - before[np.array([place.get(key, -1) for key in now.keys], dtype=np.intp)], 0)


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
class WorkerTimes:
    """Time of each worker's threads since it joined, or since an instant; workers are identified by position."""

    #: Identity of a worker; differs from that of an earlier worker with its name or address.
    keys: tuple[Hashable, ...]
    names: tuple[str, ...]
    nthreads: tuple[int, ...]
    #: By :data:`~dask_efficiency.accounts.cluster.account.ACTIVITIES`, shape (workers, activities); zeros without a
    #: heartbeat.
    nanoseconds: NDArray[np.int64]

    @classmethod
    def of(cls, present: Iterable[Presence]) -> WorkerTimes:
        """Time of the workers that are present."""
        here = list(present)
        rows = [presence.account[WHERE["activity"]] for presence in here]
        return cls(
            tuple((presence.address, presence.joined) for presence in here),
            tuple(presence.name for presence in here),
            tuple(presence.nthreads for presence in here),
            np.array(rows, dtype=np.int64).reshape(-1, len(ACTIVITIES)),
        )

    def since(self, then: WorkerTimes | None) -> WorkerTimes:
        """Time of these workers since an earlier instant."""
        return replace(self, nanoseconds=gained(self, then))

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """Shares of each worker's time with work, shape (workers, activities).

        A row adds up to 1, or to 0 without work.
        """
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

    #: Activities of any worker, in the order of :data:`~dask_efficiency.accounts.cluster.account.ACTIVITIES`.
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

    def labels(places: Sequence[int]) -> tuple[str, ...]:
        return tuple(label(workers.names[with_work[place]]) for place in places)

    return Spread(
        activities=tuple(ACTIVITIES[i] for i in spent),
        quantiles=np.quantile(shares, QUANTILES, axis=0).T,
        least=labels(shares.argmin(axis=0).tolist()),
        most=labels(shares.argmax(axis=0).tolist()),
    )


# -- GPUs ------------------------------------------------------------------------------------------


_IDLE = GPU_ACTIVITIES.index("idle")


class Gpu(NamedTuple):
    """A GPU as one worker uses it."""

    worker: str
    model: str
    uuid: str

    @property
    def label(self) -> str:
        """Worker and GPU, short and harmless."""
        return _label(self)


@lru_cache(maxsize=400)
def _label(gpu: Gpu) -> str:
    # Cached: it takes longer than the rest of a row, and never changes.
    return f"{label(gpu.worker)} {label(device_label(gpu.model, gpu.uuid))}"


@dataclass(frozen=True)
class GpuTimes:
    """Time of each GPU since it was watched, or since an instant; GPUs are identified by position.

    A GPU used by several workers has a row for each, and is in no sum: each worker sees its own work only.
    """

    keys: tuple[Hashable, ...]
    gpus: tuple[Gpu, ...]
    #: By :data:`~dask_efficiency.accounts.cluster.presence.GPU_ACTIVITIES`, shape (gpus, activities).
    nanoseconds: NDArray[np.int64]

    @classmethod
    def of(cls, present: Iterable[Presence]) -> GpuTimes:
        """Time of the GPUs of the workers that are present."""
        found = [(worker, device) for worker in present for device in worker.devices]
        rows = [(device.kernels, device.copies, device.idle) for _, device in found]
        return cls(
            tuple((worker.address, worker.joined, device.uuid) for worker, device in found),
            tuple(Gpu(worker.name, device.name, device.uuid) for worker, device in found),
            np.array(rows, dtype=np.int64).reshape(-1, len(GPU_ACTIVITIES)),
        )

    def since(self, then: GpuTimes | None) -> GpuTimes:
        """Time of these GPUs since an earlier instant."""
        return replace(self, nanoseconds=gained(self, then))

    @cached_property
    def shared(self) -> tuple[bool, ...]:
        """True for GPUs that other workers use, too."""
        several = shared(gpu.uuid for gpu in self.gpus)
        return tuple(gpu.uuid in several for gpu in self.gpus)

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """Shares of each GPU's time, shape (gpus, activities); a row adds up to 1, or to 0 if no time passed."""
        return shares_of(self.nanoseconds)

    @cached_property
    def shares_of_all(self) -> dict[str, float]:
        """Shares of the time of all unshared GPUs, each in [0, 1]; empty if no time passed."""
        own = self.nanoseconds[[not shared for shared in self.shared]]
        # The nanoseconds of a year of many GPUs do not fit into 64 bits.
        sums = [sum(column) for column in own.T.tolist()]
        whole = sum(sums)
        return {name: ns / whole for name, ns in zip(GPU_ACTIVITIES, sums, strict=True)} if whole else {}

    @property
    def idle(self) -> float:
        """Idle share of that time, in [0, 1]; NaN if no time passed."""
        return self.shares_of_all.get("idle", math.nan)

    def shown(self, at_most: int) -> list[int]:
        """GPUs to show: all by worker, or if there are more than ``at_most``, the most idle first."""
        if len(self.gpus) > at_most:
            most_idle: list[int] = np.argsort(-self.shares[:, _IDLE], kind="stable")[:at_most].tolist()
            return most_idle
        return sorted(range(len(self.gpus)), key=lambda i: (natural(self.gpus[i].worker), self.gpus[i].uuid))


# -- prefixes --------------------------------------------------------------------------------------


#: Prefixes shown one by one. By eye.
MAX_PREFIXES = 10


@dataclass(frozen=True, slots=True)
class PrefixTimes:
    """Prefixes with most time, the largest first, and the rest as one."""

    names: tuple[str, ...]
    #: Thread-seconds by :data:`~dask_efficiency.accounts.worker.balance.TASK_BUCKETS`, shape (prefixes, buckets).
    seconds: NDArray[np.float64]


def prefix_times(
    then: Mapping[str, Sequence[int]], now: Mapping[str, Sequence[int]], *, at_most: int = MAX_PREFIXES
) -> PrefixTimes:
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
    chosen, rest = ranked[:at_most], ranked[at_most:]
    shown, rows = [label(names[i]) for i in chosen], gained[chosen]
    if rest or OTHER in grown:
        folded = gained[[*rest, *(i for i, name in enumerate(names) if name == OTHER)]].sum(axis=0)
        shown.append(OTHER)
        rows = np.vstack([rows, folded])
    return PrefixTimes(tuple(shown), rows / 1e9)
