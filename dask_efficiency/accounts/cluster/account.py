"""Accounts as arrays of nanoseconds: by bucket, activity and cause; their exact sums; totals at an instant."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.buckets import CAUSE_NAMES, FINALIZED, Bucket
from dask_efficiency.accounts.rows import cap, kept_apart
from dask_efficiency.accounts.wire.snapshots import FIELDS
from dask_efficiency.accounts.worker.balance import FREE_BUCKETS, Outcome

#: Activities of a thread slot, in the order of :class:`~dask_efficiency.accounts.buckets.Bucket`: the view that
#: accrues while tasks run, whatever their outcome.
ACTIVITIES = tuple(
    str(bucket) for bucket in FINALIZED if bucket not in (Bucket.FAILED, Bucket.CANCELLED, Bucket.RECOMPUTED)
)

#: Finalized time by bucket; time by activity, and its causes; the causes of finalized time; and tasks.
AccountPart = Literal["finalized", "activity", "cause_activity", "causes", "tasks"]
PARTS: dict[AccountPart, tuple[str, ...]] = {
    "finalized": tuple(map(str, FINALIZED)),
    "activity": ACTIVITIES,
    "cause_activity": CAUSE_NAMES,
    "causes": CAUSE_NAMES,
    "tasks": tuple(map(str, Outcome)),
}

_ENDS = list(accumulate(map(len, PARTS.values())))
#: Length of an account, and the slice of each part.
WIDTH = _ENDS[-1]
WHERE: dict[AccountPart, slice] = dict(zip(PARTS, map(slice, [0, *_ENDS], _ENDS), strict=False))


def place(part: AccountPart, name: str) -> int:
    """Find the position of a number in an account."""
    return int(WHERE[part].start) + PARTS[part].index(name)


def named(row: NDArray[Any], part: AccountPart) -> dict[str, int]:
    """Name the numbers of a part of an account; zeros are left out."""
    return {name: n for name, n in zip(PARTS[part], row.tolist(), strict=True) if n}


# A free slot's bucket is its activity, too.
_PAIRS = [
    *((i, place(cast(AccountPart, group), name)) for i, (group, name) in enumerate(FIELDS) if group),
    *((FIELDS.index(("finalized", str(bucket))), place("activity", bucket)) for bucket in FREE_BUCKETS),
]
_FROM, _TO = np.array(_PAIRS).T


def gained(grown: NDArray[np.int64]) -> NDArray[np.int64]:
    """Map a heartbeat's growth, by ``heartbeats.NUMBERS``, to an account; what shrank, as causes may, adds nothing."""
    account = np.zeros(WIDTH, np.int64)
    account[_TO] = grown[_FROM]
    return np.maximum(account, 0, out=account)


#: Bound of what is added up in 64 bits, before it goes to Python's integers: a large cluster fills them in a day.
MAX_PENDING = 1 << 62


class ExactSums:
    """A table of sums that no number of bits bounds; rows may be added later. Any thread may read it."""

    def __init__(self, rows: int, columns: int) -> None:
        self._lock = threading.Lock()
        #: Numbers to be added to ``_whole``, which has Python's integers; and a bound of the largest.
        self._pending = np.zeros((0, columns), np.int64)
        self._whole = self._pending.astype(object)
        self._most = 0
        self.grow(rows)

    def grow(self, rows: int) -> None:
        """Grow to a number of rows; new ones begin at 0."""
        new = np.zeros((max(0, rows - len(self._pending)), self._pending.shape[1]), np.int64)
        with self._lock:
            self._pending = np.concatenate([self._pending, new])
            self._whole = np.concatenate([self._whole, new.astype(object)])

    def add(self, at: int | NDArray[np.intp], gained: NDArray[np.int64], *, most: int, distinct: bool = True) -> None:
        """Add rows, of which no column may sum to more than ``most``; ``distinct`` if no row is in ``at`` twice."""
        with self._lock:
            if self._most + most >= MAX_PENDING:
                self._settle()
            if most >= MAX_PENDING:
                np.add.at(self._whole, at, gained.astype(object))
                return
            self._most += most
            if distinct:
                self._pending[at] += gained
            else:
                np.add.at(self._pending, at, gained)

    def rows(self) -> list[list[int]]:
        """The sums so far."""
        with self._lock:
            self._settle()
            return self._whole.tolist()

    def _settle(self) -> None:
        """Move the pending numbers to the whole sums."""
        if self._most:
            self._whole += self._pending.astype(object)
            self._pending[:] = 0
            self._most = 0


class NamedSums:
    """Sums by name; names beyond ``max_names`` are added up under one."""

    def __init__(self, max_names: int, columns: int) -> None:
        self._max_names = max_names
        self._places: dict[str, int] = {}
        self._sums = ExactSums(0, columns)

    def places(self, names: Sequence[str | None]) -> NDArray[np.intp]:
        """Find the rows of names; new ones begin at 0."""
        found: list[int | None] = [*map(self._places.get, cast("Sequence[str]", names))]
        if None in found:
            found = [
                self._place(name or "") if place is None else place for place, name in zip(found, names, strict=True)
            ]
            self._sums.grow(len(self._places))
        return np.array(found, np.intp)

    def _place(self, name: str) -> int:
        return self._places.setdefault(kept_apart(name, self._places, self._max_names), len(self._places))

    def add(self, places: NDArray[np.intp], gained: NDArray[np.int64], *, most: int) -> None:
        """Add rows, each to a place; no sum of their columns may be more than ``most``."""
        # Where there are as many names as may be, several may have one place.
        self._sums.add(places, gained, most=most, distinct=len(self._places) < self._max_names)

    def by_name(self) -> dict[str, tuple[int, ...]]:
        """Sums of all known names, but for one that is being added."""
        return dict(zip(list(self._places), map(tuple, self._sums.rows()), strict=False))


_NOT_HELD = frozenset((*FREE_BUCKETS, Bucket.NO_WORK))


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals at one instant: finalized nanoseconds by bucket, and running ones."""

    at: int
    finalized: Mapping[str, int]
    running: int
    #: Nanoseconds without outstanding work since the accounts began.
    without_work: int = 0
    #: Nanoseconds with outstanding work and no worker.
    without_workers: int = 0
    causes: Mapping[str, int] = field(default_factory=dict)


def between(then: Totals, now: Totals) -> dict[str, int]:
    """Subtract two totals: non-negative, with ``running``, and nothing lost.

    Time of tasks from before ``then`` is taken out of the held buckets, pro rata: an estimate, without a window.
    """
    gained = {b: ns - then.finalized.get(b, 0) for b, ns in now.finalized.items() if ns != then.finalized.get(b, 0)}
    running = now.running - then.running
    if running >= 0:
        return {**gained, str(Bucket.RUNNING): running}
    # The final snapshot of a departed worker may show slots as free that seemed to run tasks.
    for group in (gained.keys() - _NOT_HELD, gained.keys() & _NOT_HELD):
        row = {bucket: gained[bucket] for bucket in sorted(group)}
        left = sum(row.values()) + running
        gained |= cap(row, max(0, left))
        running = min(0, left)
    return gained
