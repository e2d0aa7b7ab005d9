"""WeightedSums: combines workers' distances from their peers over several prefixes, or kernels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.straggler.peers import Floats

#: Numbers that are compared in one piece.
PIECE = 3_000


@dataclass(eq=False, slots=True)
class WeightedSums:
    """Weighted sums by worker over prefixes, which :meth:`mean` makes one number each of."""

    weight: Floats
    value: Floats
    variance: Floats
    tasks: Floats
    seconds: Floats
    #: Sums of the squared weights, alone, with the value and with its square: how much the prefixes disagree.
    weight2: Floats
    value2: Floats
    square2: Floats

    @classmethod
    def of(cls, workers: int) -> WeightedSums:
        """Empty sums for so many workers."""
        return cls(*(np.zeros(workers) for _ in range(8)))

    def add(self, value: Floats, variance: Floats, weight: Floats, tasks: Floats, seconds: Floats) -> None:
        """Add some prefixes. All arrays have the shape (prefixes, workers), and NaN values do not count."""
        known = np.isfinite(value) & (weight > 0)
        weight = np.where(known, weight, 0.0)
        self.weight += weight.sum(axis=0)
        value = np.where(known, value, 0.0)
        self.value += (weight * value).sum(axis=0)
        squares = weight**2
        self.variance += (squares * np.where(known, variance, 0.0)).sum(axis=0)
        self.weight2 += squares.sum(axis=0)
        self.value2 += (squares * value).sum(axis=0)
        self.square2 += (squares * value**2).sum(axis=0)
        self.tasks += np.where(known, tasks, 0.0).sum(axis=0)
        self.seconds += np.where(known, seconds, 0.0).sum(axis=0)

    def mean(self) -> tuple[Floats, Floats, Floats]:
        """The mean, its variance, and the number of tasks; mean and variance are NaN where there was nothing.

        A slow worker is slow at all that it does. Where its prefixes disagree, the work is the reason, and the
        variance is larger.
        """
        whole = np.where(self.weight > 0, self.weight, np.nan)
        mean = self.value / whole
        disagreement = np.maximum(self.square2 - 2 * mean * self.value2 + mean**2 * self.weight2, 0.0)
        return mean, np.maximum(self.variance, disagreement) / whole**2, self.tasks


def variance_of_difference(there: NDArray[np.bool_]) -> Floats:
    """Factor by prefix between the variance of a value and that of its difference from the others' median."""
    others = np.maximum(there.sum(axis=1, keepdims=True) - 1, 1)
    return np.asarray(1.0 + math.pi / 2 / others)


def in_pieces(columns: NDArray[np.intp], workers: int) -> Iterator[NDArray[np.intp]]:
    """The columns, a few at a time: as many as make one piece with so many workers."""
    width = max(1, PIECE // max(1, workers))
    for first in range(0, len(columns), width):
        yield columns[first : first + width]
