"""Positions of numbers that others have in common with them, such as correlations."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Int64


def first_with(numbers: NDArray[np.integer], wanted: NDArray[np.integer]) -> Int64:
    """The first position of each number that is wanted; missing where it is not among the numbers."""
    if not len(numbers):
        return np.full(len(wanted), MISSING, np.int64)
    order = np.argsort(numbers, kind="stable")
    place = np.minimum(np.searchsorted(numbers[order], wanted), len(order) - 1)
    found: Int64 = np.where(numbers[order[place]] == wanted, order[place], MISSING).astype(np.int64)
    return found
