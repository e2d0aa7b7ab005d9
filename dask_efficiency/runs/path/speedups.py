"""Speedup: the saving of an improvement, as the mean over replays with small random differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from dask_efficiency.runs.replay.changes import Changes

#: Number of runs that all replays of one improvement may have together, unless a single replay has more.
RUNS = 20_000

#: Replays of one improvement, at most.
REPLAYS = 8


@dataclass(frozen=True, slots=True)
class Speedup:
    """Saving of one improvement."""

    what: str
    #: How much shorter the makespan would be; below 0 where it would be longer.
    saved_seconds: float
    #: Standard error of that; NaN after a single replay.
    error_seconds: float


def replays(runs: int) -> int:
    """Choose the number of replays of which to take the mean, for a trace with so many runs."""
    return min(max(RUNS // max(runs, 1), 1), REPLAYS)


def speedups(makespan: Callable[[Changes], float], improvements: Mapping[str, Changes], number: int) -> list[Speedup]:
    """Estimate what each improvement would save, the most helpful first.

    The recorded schedule is one of many that could have happened, and often a lucky one: any small change may make it
    longer. So all computing times are changed a little at random, in the same way with and without the improvement.

    Parameters
    ----------
    makespan
        The makespan in seconds of a replay with changes.
    improvements
        Changes by name.
    number
        Replays of each, at least 1.
    """
    before = [makespan(Changes(seed=seed)) for seed in range(number)]
    found = []
    for what, changed in improvements.items():
        saved = [was - makespan(replace(changed, seed=seed)) for seed, was in enumerate(before)]
        error = stdev(saved) / math.sqrt(number) if number > 1 else math.nan
        found.append(Speedup(what, fmean(saved), error))
    return sorted(found, key=lambda speedup: -speedup.saved_seconds)
