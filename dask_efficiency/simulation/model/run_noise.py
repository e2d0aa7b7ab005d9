"""Run noise: by how much real runs of a program that computes differ, which seeds do not show."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dask_efficiency.runs.path.kinds import Kind

#: Standard deviation, in seconds, of a run whose critical path computes for one second. What disturbs a computation
#: (other processes, the clock rate of a core, garbage collection) comes again and again, so that its variance grows
#: with the seconds that it can come in. Of four runs each of five programs (``benchmarks/simulation_runs.py``) on one
#: and on two workers, whose paths compute for 0.8 to 11 s, on two busy cores, it was 0.05 to 0.26, and 0.17 both in the
#: middle and pooled, but for one kind of which one run imported its libraries.
NOISE_PER_SECOND = 0.17

#: The most that a run is taken to differ: the shortest of those programs, of 1.5 s and more, differed by as much.
MAX_NOISE = 0.12


def run_noise(kinds: Mapping[str, float], makespan_seconds: float) -> float:
    """Standard deviation of a run's makespan, as a share of it.

    Tasks that sleep, or wait for something else than a core, take as long each time: they add nothing.

    Parameters
    ----------
    kinds
        Seconds of its critical path by kind.
    makespan_seconds
        Their sum; nothing has no noise.
    """
    if makespan_seconds <= 0:
        return 0.0
    seconds = max(kinds.get(Kind.COMPUTE_CPU, 0.0), 0.0)
    return min(NOISE_PER_SECOND * math.sqrt(seconds) / makespan_seconds, MAX_NOISE)


def computing_share(kinds: Mapping[str, float], makespan_seconds: float) -> float:
    """Share of a run's critical path in which tasks compute, in [0, 1]."""
    if makespan_seconds <= 0:
        return 0.0
    return min(max(kinds.get(Kind.COMPUTE_CPU, 0.0) / makespan_seconds, 0.0), 1.0)
