"""Measured: what one measurement shows, and how the best of several is taken."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

#: Each measurement is repeated so often, and the best counts: what disturbs it only makes it slower.
REPEATS = 3

#: A measurement that takes longer than that is not repeated.
MAX_SECONDS = 2.0


class NotMeasured(Exception):
    """Something is not there to be measured, or cannot be used; says what."""


def best_rate(measure: Callable[[], tuple[float, float]], repeats: int = REPEATS) -> dict[str, Any]:
    """The repetition with the highest rate.

    Parameters
    ----------
    measure
        Gives a rate, and the share of its time for which its threads computed, or NaN.
    """
    found = []
    began = time.perf_counter()
    for _ in range(repeats):
        found.append(measure())
        if time.perf_counter() - began > MAX_SECONDS:
            break
    rate, share = max(found)
    return {"value": rate, "share": share, "count": len(found), "range": spread_of([rate for rate, _ in found])}


def least_seconds(measure: Callable[[], float], repeats: int = REPEATS) -> dict[str, Any]:
    """The repetition with the fewest seconds."""
    found = []
    began = time.perf_counter()
    for _ in range(repeats):
        found.append(measure())
        if time.perf_counter() - began > MAX_SECONDS:
            break
    return {"value": min(found), "count": len(found), "range": spread_of(found)}


def spread_of(found: Sequence[float]) -> float:
    """Logarithm of the largest repetition over the least, NaN for one alone: how much chance has a say in it."""
    if len(found) < 2 or min(found) <= 0:
        return math.nan
    return math.log(max(found) / min(found))
