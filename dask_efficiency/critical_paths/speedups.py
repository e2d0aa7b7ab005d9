"""Speedup: how much an improvement would save, averaged over replays that differ a little."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from dask_efficiency.replay.changes import Changes

#: Replays of each improvement: as many as there is room for below this number of runs in all, and at most these.
RUNS = 20_000
REPLAYS = 8


@dataclass(frozen=True, slots=True)
class Speedup:
    """What one improvement would save."""

    what: str
    #: Of the makespan; below 0 where it makes the run longer.
    saved_seconds: float
    #: Standard error of that; NaN after one replay.
    error_seconds: float


def replays(runs: int) -> int:
    """How many replays of a trace with so many runs an average is of."""
    return min(max(RUNS // max(runs, 1), 1), REPLAYS)


def speedups(makespan: Callable[[Changes], float], improvements: Mapping[str, Changes], number: int) -> list[Speedup]:
    """What each improvement would save, the most helpful first.

    A schedule as it happened is one of many that could have, and often one of the luckier ones: any small change may
    make it longer. So runs are compared that differ at random in all computing times, in the same way with the
    improvement and without.

    Parameters
    ----------
    makespan
        Seconds that a replay with changes takes.
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
