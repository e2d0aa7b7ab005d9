"""Whole numbers that lie close together, told apart without sorting them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.gpu.intervals import Int64

#: Bytes at most for a table of all numbers between the least and the greatest.
_MAX_TABLE = 4_000_000


def ranked(numbers: NDArray[np.integer]) -> tuple[Int64, NDArray[np.intp]]:
    """The different numbers in order, and the index of each among them: ``np.unique`` at a tenth of its cost.

    Numbers of tasks are consecutive, so that a table of those that are there is short.
    """
    if not len(numbers):
        return np.empty(0, np.int64), np.empty(0, np.intp)
    least = int(numbers.min())
    if int(numbers.max()) - least >= _MAX_TABLE:
        found, indices = np.unique(numbers, return_inverse=True)
        return found.astype(np.int64), indices
    above = numbers.astype(np.int64) - least
    there = np.bincount(above) > 0
    return np.flatnonzero(there) + least, (np.cumsum(there) - 1)[above]
