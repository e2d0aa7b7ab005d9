"""The workers of a cluster in the last minutes: each by what it did, or of many the spread over all."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.buckets import GOOD, Bucket
from dask_efficiency.presence import ACTIVITIES, Presence
from dask_efficiency.report.figures import format_share
from dask_efficiency.report.labels import label

#: Of more workers than these, a view with other figures beside it shows the least useful.
FEW_WORKERS = 20

#: Of more workers than these, even a view of their own shows the spread.
MANY_WORKERS = 100

#: What a spread says of each activity, as quantiles.
QUANTILES = (0.0, 0.1, 0.5, 0.9, 1.0)

_GOOD = [ACTIVITIES.index(bucket) for bucket in GOOD]
_NO_WORK = ACTIVITIES.index(Bucket.NO_WORK)

#: A worker's presence: its address, and when it joined.
Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class WorkersMoment:
    """What each worker's threads had done by one instant; a few are kept, so as arrays."""

    rows: Mapping[Key, int]
    #: Nanoseconds by :data:`~dask_efficiency.presence.ACTIVITIES`, shape (workers, activities).
    activity: NDArray[np.int64]

    @classmethod
    def of(cls, present: Iterable[Presence]) -> WorkersMoment:
        """Of the workers that are there."""
        here = list(present)
        rows = [[*map(presence.activity.get, ACTIVITIES, repeat(0))] for presence in here]
        return cls(
            {(presence.address, presence.joined): i for i, presence in enumerate(here)},
            np.array(rows, dtype=np.int64).reshape(-1, len(ACTIVITIES)),
        )


#: Before there was anything.
NOTHING = WorkersMoment({}, np.zeros((0, len(ACTIVITIES)), dtype=np.int64))


@dataclass(frozen=True, slots=True)
class Workers:
    """Some workers' time while there was work, and what it says of all."""

    names: tuple[str, ...]
    nthreads: tuple[int, ...]
    #: Share by :data:`~dask_efficiency.presence.ACTIVITIES`, shape (workers, activities); rows add up to 1,
    #: or to 0 where there was no work.
    shares: NDArray[np.float64]
    #: What is shown of how many, in words.
    title: str


@dataclass(frozen=True, slots=True)
class Spread:
    """How the shares of the workers' time while there was work differ, by activity."""

    #: Those that any worker spent time in, in the order of :data:`~dask_efficiency.presence.ACTIVITIES`.
    activities: tuple[str, ...]
    #: Shares in [0, 1] by :data:`QUANTILES` over the workers that had work, shape (activities, quantiles).
    quantiles: NDArray[np.float64]
    #: The worker whose share is the least, and the one whose share is the most, by activity.
    least: tuple[str, ...]
    most: tuple[str, ...]
    #: Workers that had work, and workers.
    judged: int
    number: int


def workers(present: Iterable[Presence], then: WorkersMoment = NOTHING, *, at_most: int = FEW_WORKERS) -> Workers:
    """The workers by name; of more than ``at_most``, those whose time was useful least.

    Parameters
    ----------
    present
        The workers that are there.
    then
        Their time counts from then on; that of a worker which joined later, from its joining.
    at_most
        Number of workers.
    """
    here = list(present)
    shares, worked = _shares(here, then)
    title = "Workers"
    if len(here) > at_most:
        useful = np.where(worked, shares[:, _GOOD].sum(axis=1), math.nan)
        title = f"The {at_most} of {len(here)} workers whose time was useful least"
        if worked.any():
            low, median, high = (format_share(share) for share in np.nanquantile(useful, [0, 0.5, 1]).tolist())
            title += f" (of all, least {low}, median {median}, most {high})"
        chosen = np.argsort(useful, kind="stable")[:at_most].tolist()  # those without work come last
    else:
        chosen = sorted(range(len(here)), key=lambda i: _natural(here[i].name))
    return Workers(
        tuple(label(here[i].name) for i in chosen), tuple(here[i].nthreads for i in chosen), shares[chosen], title
    )


def spread(present: Iterable[Presence], then: WorkersMoment = NOTHING) -> Spread:
    """How the workers differ; as much for a thousand of them as for ten.

    Parameters
    ----------
    present, then
        As for :func:`workers`. Workers that had no work since then count for nothing.
    """
    here = list(present)
    shares, worked = _shares(here, then)
    judged = np.flatnonzero(worked).tolist()
    shares = shares[judged]
    spent = np.flatnonzero(shares.any(axis=0)).tolist()
    shares = shares[:, spent]
    quantiles = np.quantile(shares, QUANTILES, axis=0).T if judged else np.zeros((0, len(QUANTILES)))
    return Spread(
        activities=tuple(ACTIVITIES[i] for i in spent),
        quantiles=quantiles,
        least=_names_at(here, judged, shares.argmin(axis=0).tolist() if judged else ()),
        most=_names_at(here, judged, shares.argmax(axis=0).tolist() if judged else ()),
        judged=len(judged),
        number=len(here),
    )


def _shares(here: Sequence[Presence], then: WorkersMoment) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Each worker's time since then as shares of that while there was work, and whether it had any."""
    now = WorkersMoment.of(here)
    nobody = len(then.activity)
    before = np.vstack([then.activity, np.zeros((1, len(ACTIVITIES)), dtype=np.int64)])
    gained = now.activity - before[[then.rows.get((p.address, p.joined), nobody) for p in here]]
    gained[:, _NO_WORK] = 0
    whole = gained.sum(axis=1)
    worked = whole > 0
    shares = np.divide(gained, whole[:, None], out=np.zeros(gained.shape), where=worked[:, None])
    return shares, worked


def _names_at(here: Sequence[Presence], judged: Sequence[int], places: Iterable[int]) -> tuple[str, ...]:
    return tuple(label(here[judged[place]].name) for place in places)


def _natural(name: str) -> list[tuple[str, int]]:
    """A key that sorts ``w2`` before ``w10``."""
    parts = re.split(r"([0-9]{1,18})", name[:200])
    return [(text, 0) if i % 2 == 0 else ("", int(text)) for i, text in enumerate(parts)]
