"""WeightedSums: what several prefixes, or kernels, say together of how far workers are from their peers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.straggler.peers import Floats


@dataclass(eq=False, slots=True)
class WeightedSums:
    """Weighted sums by worker over prefixes, of which :meth:`mean` is one number each."""

    weight: Floats
    value: Floats
    variance: Floats
    tasks: Floats
    seconds: Floats
    #: Squares of the weights, with the value and with its square: how much the prefixes disagree.
    weight2: Floats
    value2: Floats
    square2: Floats

    @classmethod
    def of(cls, workers: int) -> WeightedSums:
        """Of nothing yet."""
        return cls(*(np.zeros(workers) for _ in range(8)))

    def add(self, value: Floats, variance: Floats, weight: Floats, tasks: Floats, seconds: Floats) -> None:
        """Some prefixes more, all of shape (prefixes, workers); what is NaN does not count."""
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
        """Mean, its variance, and tasks; NaN where there was nothing.

        A worker is slow at all that it does: where its prefixes disagree, it is the work, and the mean says less.
        """
        whole = np.where(self.weight > 0, self.weight, np.nan)
        mean = self.value / whole
        apart = np.maximum(self.square2 - 2 * mean * self.value2 + mean**2 * self.weight2, 0.0)
        return mean, np.maximum(self.variance, apart) / whole**2, self.tasks


def of_reference(there: NDArray[np.bool_]) -> Floats:
    """By how much more a difference to the median of others varies than a value alone, by prefix."""
    others = np.maximum(there.sum(axis=1, keepdims=True) - 1, 1)
    return np.asarray(1.0 + math.pi / 2 / others)
