"""What each worker or GPU did between two instants, from what each had done by either."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


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
