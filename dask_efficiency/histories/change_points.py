"""Change points of the median of a series: where runs became slower, or took more memory, and stayed so.

A series is cut into stretches so that the sum of the distances of all runs from the median of their stretch, with a
price for each cut, is the smallest there is. Distances are relative (the series is taken as logarithms), and count in
units of what a run differs from the one before it, at most :data:`FARTHEST` of them: so neither one odd run nor two in
a row are worth a stretch of their own, and a mean of the last ten, which each of them moves, is not needed. A cut is
kept if both its sides differ by more than runs do without any change, as in a comparison
(:class:`~dask_efficiency.report.difference.Difference`).

References
----------
Jackson et al., An algorithm for optimal partitioning of data on an interval, IEEE Signal Processing Letters 2005: the
smallest sum by dynamic programming; Killick et al. (PELT, JASA 2012) prune it, which pays for series of thousands. Bai,
Least absolute deviation estimation of a shift, Econometric Theory 1995: distances from the median. Fearnhead and
Rigaill, Changepoint detection in the presence of outliers, JASA 2019: bounded distances. We differ: they bound squares,
and price a cut by the variance.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.report.difference import Difference

#: Runs of the shortest stretch: of fewer, nobody can say that they are not chance.
FEWEST = 4
#: Runs that are looked at, the latest: half a year of nights.
MOST = 200
#: Most that one run's distance from the median counts, in deviations; and price of a cut, in deviations times the
#: logarithm of the number of runs. By simulation (`python -m benchmarks.history`).
FARTHEST, PRICE = 6.0, 4.0
#: Deviation of a run, as a share, below which all are taken as equal: less than that nobody looks at.
FINEST = 0.01
#: Change of the median, as a share, below which a cut is not kept. By judgement.
LEAST_CHANGE = 0.05
#: Median of the distance of two normal values, in their standard deviations.
_OF_TWO = 0.954


def change_points(values: Sequence[float]) -> list[int]:
    """Positions of the first run of each stretch but the first, in order; of positive values."""
    first = max(0, len(values) - MOST)
    cuts = _cheapest_cuts(np.log(np.maximum(np.asarray(values[first:], dtype=float), 1e-9)))
    return [first + cut for cut in _kept(values[first:], cuts)]


def _cheapest_cuts(logs: NDArray[np.float64]) -> list[int]:
    runs = len(logs)
    if runs < 2 * FEWEST:
        return []
    deviation = max(FINEST, float(np.median(np.abs(np.diff(logs)))) / _OF_TWO)
    costs = _costs(logs / deviation)
    best, came_from = np.full(runs + 1, np.inf), np.zeros(runs + 1, dtype=int)
    best[0] = 0.0
    for stop in range(FEWEST, runs + 1):
        sums = best[: stop - FEWEST + 1] + costs[: stop - FEWEST + 1, stop]
        came_from[stop] = int(np.argmin(sums))
        best[stop] = sums[came_from[stop]] + PRICE * np.log(runs)
    cuts, at = [], int(came_from[runs])
    while at:
        cuts.append(at)
        at = int(came_from[at])
    return cuts[::-1]


def _costs(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bounded distances from the median, added up, of each stretch by its start and its stop."""
    costs = np.zeros((len(values), len(values) + 1))
    for start in range(len(values)):
        ordered: list[float] = []
        medians = np.empty(len(values) - start)
        for position, value in enumerate(values[start:].tolist()):
            insort(ordered, value)
            medians[position] = (ordered[position // 2] + ordered[(position + 1) // 2]) / 2
        off = np.minimum(np.abs(values[start:, None] - medians[None, :]), FARTHEST)
        costs[start, start + 1 :] = np.triu(off).sum(axis=0)
    return costs


def _kept(values: Sequence[float], cuts: list[int]) -> list[int]:
    """Cuts whose sides differ, without the least of those that do not, one after the other."""
    while cuts:
        ends = [0, *cuts, len(values)]
        sides = [
            Difference(tuple(values[a:b]), tuple(values[b:c]))
            for a, b, c in zip(ends[:-2], cuts, ends[2:], strict=True)
        ]
        weak = {abs(one.rise): cut for one, cut in zip(sides, cuts, strict=True) if not _differ(one)}
        if not weak:
            break
        cuts = [cut for cut in cuts if cut != weak[min(weak)]]
    return cuts


def _differ(sides: Difference[float]) -> bool:
    return abs(sides.rise) >= LEAST_CHANGE and not sides.within_spread
