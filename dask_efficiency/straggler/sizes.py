"""Sizes: takes off observations what the size of their work explains."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dask_efficiency.straggler.observations import Observations, medians

#: Size is taken into account where it differs by more than this factor within a kind of work.
SIZES_DIFFER = 2.0

#: Observations that are larger than is usual for their work by this factor are giants, if at most this share of the
#: work is.
GIANT = 4.0
FEW_GIANTS = 0.1

#: Differences from a worker's median are winsorised at this many times their median, or at least at as many times the
#: other; a difference in size widens that.
WINSOR_DEVIATIONS = 3.0
MIN_DEVIATION = 0.1

#: The time of a task grows with its size by this power at most.
MAX_POWER = 1.5


def sized(observations: Observations, workers: int) -> Observations:
    """Subtract from observations what their size explains, where sizes differ much within a kind of work.

    The slope comes from differences within workers, so that large inputs do not hide a slow worker.
    """
    observations = without_giants(observations)
    known = np.isfinite(observations.size)
    if not known.any():
        return observations
    kinds, work, value = len(observations.kinds), observations.work, observations.value
    place = work * workers + observations.worker
    middle = medians(observations.size[known], work[known], kinds)
    x = np.where(known, observations.size, 0.0) - np.where(known, middle[work], 0.0)
    far = np.zeros(kinds)
    np.maximum.at(far, work, np.abs(x))
    x_in = x - medians(x, place, kinds * workers)[place]
    y_in = value - medians(value, place, kinds * workers)[place]
    usual = np.maximum(medians(np.abs(y_in), work, kinds), MIN_DEVIATION)[work]
    limit = WINSOR_DEVIATIONS * usual + MAX_POWER * np.abs(x_in)
    y_in = np.clip(y_in, -limit, limit)
    cross = np.bincount(work, x_in * y_in, minlength=kinds)
    square = np.bincount(work, x_in * x_in, minlength=kinds)
    slope = np.where(far > math.log(SIZES_DIFFER), np.clip(cross / np.maximum(square, 1e-12), 0.0, MAX_POWER), 0.0)
    slope = np.where(square > 1e-9, slope, 0.0)
    return replace(observations, value=value - slope[work] * x, size=np.full(len(value), np.nan))


def without_giants(observations: Observations) -> Observations:
    """Drop the few that are far larger than the others of their work, as their expected time is unknown."""
    known = np.isfinite(observations.size)
    if not known.any():
        return observations
    kinds, work = len(observations.kinds), observations.work
    middle = medians(observations.size[known], work[known], kinds)[work]
    with np.errstate(invalid="ignore"):
        giant = observations.size > middle + math.log(GIANT)
    few = np.bincount(work[giant], minlength=kinds) <= FEW_GIANTS * np.bincount(work, minlength=kinds)
    return observations.take(~(giant & few[work]))
