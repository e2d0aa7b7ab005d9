"""The workers of a cluster in the last seconds: what each one's threads did, and how the workers differ."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.buckets import GOOD, Breakdown, Bucket
from dask_efficiency.accounts.cluster.account import ACTIVITIES, WHERE
from dask_efficiency.accounts.cluster.presence import Presence
from dask_efficiency.live.counters import gained, shares_of
from dask_efficiency.show.labels import label
from dask_efficiency.show.names import natural

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
