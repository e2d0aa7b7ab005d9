"""What each worker, GPU and task prefix did between two instants."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.buckets import GOOD, Breakdown, Bucket
from dask_efficiency.accounts.cluster.account import ACTIVITIES, WHERE
from dask_efficiency.accounts.cluster.gpus import devices_of, shared
from dask_efficiency.accounts.cluster.presence import GPU_ACTIVITIES, Presence
from dask_efficiency.accounts.worker.balance import OTHER, TASK_BUCKETS
from dask_efficiency.report.gpu import device_label
from dask_efficiency.show.labels import label
from dask_efficiency.show.names import natural


class Counters(Protocol):
    """Nanoseconds by activity that only grow, a row for each worker or GPU."""

    @property
    def keys(self) -> Sequence[Hashable]:
        """Which worker or GPU each row belongs to."""

    @property
    def nanoseconds(self) -> NDArray[np.int64]:
        """Since that worker or GPU was first seen, shape (rows, activities)."""


def gained(now: Counters, then: Counters | None) -> NDArray[np.int64]:
    """What each row of ``now`` gained since ``then``; all of it where the row is new, or ``then`` is None."""
    if then is None:
        return now.nanoseconds
    if then.keys == now.keys:  # as a rule, and far quicker
        return np.asarray(np.maximum(now.nanoseconds - then.nanoseconds, 0))
    place = {key: i for i, key in enumerate(then.keys)}
    before = np.vstack([then.nanoseconds, np.zeros_like(then.nanoseconds, shape=(1, then.nanoseconds.shape[1]))])
    return np.maximum(now.nanoseconds - before[np.array([place.get(key, -1) for key in now.keys], dtype=np.intp)], 0)


def shares_of(nanoseconds: NDArray[np.int64]) -> NDArray[np.float64]:
    """Each row divided by its sum; zeros where that is zero."""
    whole = nanoseconds.sum(axis=1, keepdims=True)
    shares: NDArray[np.float64] = np.divide(nanoseconds, whole, out=np.zeros(nanoseconds.shape), where=whole > 0)
    return shares


#: The quantiles of a :class:`Spread`.
QUANTILES = (0.0, 0.1, 0.5, 0.9, 1.0)

_GOOD = [ACTIVITIES.index(bucket) for bucket in GOOD]
_NO_WORK = ACTIVITIES.index(Bucket.NO_WORK)


@dataclass(frozen=True, slots=True)
class WorkerCounters:
    """What each worker's threads had done by one instant."""

    #: What tells a worker from all others, also from one that had its name or address before.
    keys: tuple[Hashable, ...]
    names: tuple[str, ...]
    nthreads: tuple[int, ...]
    #: By :data:`~dask_efficiency.accounts.cluster.presence.ACTIVITIES`, shape (workers, activities).
    nanoseconds: NDArray[np.int64]

    @classmethod
    def of(cls, present: Iterable[Presence]) -> WorkerCounters:
        """The counters of the workers that are there now."""
        here = list(present)
        rows = [presence.account[WHERE["activity"]] for presence in here]
        return cls(
            tuple((presence.address, presence.joined) for presence in here),
            tuple(presence.name for presence in here),
            tuple(presence.nthreads for presence in here),
            np.array(rows, np.int64).reshape(-1, len(ACTIVITIES)),
        )


@dataclass(frozen=True)
class WorkerTimes:
    """What each worker's threads did between two instants. Workers are told apart by their position."""

    names: tuple[str, ...]
    nthreads: tuple[int, ...]
    #: By :data:`~dask_efficiency.accounts.cluster.presence.ACTIVITIES`, shape (workers, activities); a row is zero
    #: without a heartbeat.
    nanoseconds: NDArray[np.int64]

    @classmethod
    def between(cls, then: WorkerCounters | None, now: WorkerCounters) -> WorkerTimes:
        """The time of the workers that are there ``now``; of one that joined later than ``then``, since it joined."""
        return cls(now.names, now.nthreads, gained(now, then))

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """Shares of each worker's time while there was work, shape (workers, activities); ``no-work`` is 0.

        A row adds up to 1, or to 0 where there was no work.
        """
        with_work = self.nanoseconds.copy()
        with_work[:, _NO_WORK] = 0
        return shares_of(with_work)

    @cached_property
    def useful(self) -> NDArray[np.float64]:
        """Share of that time that was on the CPU or the GPU, in [0, 1]; NaN where there was no work."""
        return np.where(self.shares.any(axis=1), self.shares[:, _GOOD].sum(axis=1), math.nan)

    def did(self, worker: int) -> Breakdown:
        """What one worker's threads did; empty where no heartbeat of it came in between."""
        return Breakdown(dict(zip(ACTIVITIES, self.nanoseconds[worker].tolist(), strict=True)))

    def largest_loss(self, worker: int) -> tuple[Bucket, float] | None:
        """Where most of the time went that was not useful, and its share; None where all of it was useful."""
        lost = self.shares[worker].copy()
        lost[_GOOD] = 0
        largest = int(lost.argmax())
        return (Bucket(ACTIVITIES[largest]), float(lost[largest])) if lost[largest] else None

    def shown(self, at_most: int) -> list[int]:
        """The workers to show where there is room for so many: all by name, or of more those that were useful least.

        Workers without work are the last of the latter.
        """
        if len(self.names) > at_most:
            least_useful: list[int] = np.argsort(self.useful, kind="stable")[:at_most].tolist()
            return least_useful
        return sorted(range(len(self.names)), key=lambda worker: natural(self.names[worker]))


@dataclass(frozen=True, slots=True)
class Spread:
    """How the shares of the workers' time while there was work differ, activity by activity."""

    #: Those that any worker spent time in, in the order of
    #: :data:`~dask_efficiency.accounts.cluster.presence.ACTIVITIES`.
    activities: tuple[str, ...]
    #: Shares in [0, 1] by :data:`QUANTILES` over the workers that had work, shape (activities, quantiles).
    quantiles: NDArray[np.float64]
    #: Labels of the worker whose share is the least, and of the one whose share is the most, by activity.
    least: tuple[str, ...]
    most: tuple[str, ...]


def spread(workers: WorkerTimes) -> Spread:
    """How the workers differ; as large for a thousand of them as for ten. Workers without work do not count."""
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


#: Prefixes shown one by one.
MAX_PREFIXES = 10


@dataclass(frozen=True, slots=True)
class PrefixTimes:
    """The prefixes that took most time, the largest first, and the rest as one."""

    #: Short and harmless.
    names: tuple[str, ...]
    #: Thread-seconds by :data:`~dask_efficiency.accounts.worker.balance.TASK_BUCKETS`, shape (prefixes, buckets).
    seconds: NDArray[np.float64]


def prefix_times(
    then: Mapping[str, Sequence[int]], now: Mapping[str, Sequence[int]], *, at_most: int = MAX_PREFIXES
) -> PrefixTimes:
    """The prefixes by the thread time of their tasks that ended in between.

    Parameters
    ----------
    then, now
        Settled nanoseconds of each prefix by :data:`~dask_efficiency.accounts.worker.balance.TASK_BUCKETS`.
    at_most
        Number of prefixes. The others are the last row, "(other)", with those that the ledger does not tell apart.
    """
    nothing = (0,) * len(TASK_BUCKETS)
    # Subtract before converting: of a big cluster the nanoseconds of a year are too many for a float.
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
