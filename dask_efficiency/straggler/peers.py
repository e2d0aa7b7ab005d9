"""Peers: medians and spreads of the workers that do the same work."""

from __future__ import annotations

import numpy as np
import numpy.ma  # np.median imports it when it is first called, which would hold a scheduler up for 10 ms
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Least number of workers to compare: of two, either may be the slow one.
MIN_PEERS = 3

#: From the median of absolute deviations to a standard deviation, for a normal distribution.
MAD_TO_DEVIATION = 1.4826


def median_of_others(values: Floats) -> Floats:
    """Compute for each worker the median of all others, row by row.

    Parameters
    ----------
    values
        Shape (rows, workers); NaN where a worker has no value.

    Returns
    -------
    array, shape (rows, workers)
        NaN where the worker has no value, or no other one has.
    """
    missing = np.isnan(values)
    count = values.shape[1] - missing.sum(axis=1)
    ordered = np.sort(values, axis=1)  # NaN come last
    rows = np.arange(len(values))
    middle = count // 2

    def at(position: NDArray[np.intp]) -> Floats:
        picked: Floats = ordered[rows, np.clip(position, 0, np.maximum(count - 1, 0))]
        return picked[:, None]

    below, this, above = at(middle - 1), at(middle), at(middle + 1)
    with np.errstate(invalid="ignore"):
        of_odd = np.where(values < this, this + above, np.where(values > this, below + this, below + above)) / 2
        of_even = np.where(values <= below, this, below)
        others = np.where((count % 2 == 1)[:, None], of_odd, of_even)
    others[missing | (count < 2)[:, None]] = np.nan
    return others


def median_by_row(values: Floats) -> Floats:
    """The median of each row without its NaN, or NaN if there is nothing else; several times as fast as NumPy's own."""
    ordered = np.sort(values, axis=1)  # NaN come last
    count = values.shape[1] - np.isnan(values).sum(axis=1)
    rows = np.arange(len(values))
    low, high = np.maximum(count - 1, 0) // 2, np.minimum(count // 2, values.shape[1] - 1)
    middle: Floats = (ordered[rows, low] + ordered[rows, high]) / 2
    return middle


def healthy_spread(values: Floats) -> float:
    """Standard deviation of the workers that are better than the median, as if the worse ones were like them.

    Stragglers lie on the other side and do not widen it. It is NaN for fewer than 3 workers.
    """
    known = values[np.isfinite(values)]
    if len(known) < MIN_PEERS:
        return float("nan")
    middle = np.median(known)
    better = known[known <= middle] - middle
    return float(np.sqrt(np.mean(better * better)))
