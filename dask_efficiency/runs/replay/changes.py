"""Changes of a replay, and how much each of several changes would save."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev

from dask_efficiency.runs.trace.errors import UnknownNameError
from dask_efficiency.runs.trace.run_trace import RunTrace

#: Parts that can be left out: moving results between workers; writing results to disk and reading them back; the
#: messages to and from the scheduler, and the scheduler's own time.
REMOVABLE = ("transfer", "spill", "scheduler")


@dataclass(frozen=True, slots=True)
class Changes:
    """Factors for the durations of a replay, of computing by prefix and of :data:`REMOVABLE` parts; 1.0 keeps them."""

    prefixes: Mapping[str, float] = field(default_factory=dict)
    parts: Mapping[str, float] = field(default_factory=dict)
    repaired: frozenset[str] = frozenset()
    seed: int | None = None

    def part(self, name: str) -> float:
        """The factor of one of :data:`REMOVABLE`."""
        return self.parts.get(name, 1.0)


#: No change.
UNCHANGED = Changes()


def changes(
    trace: RunTrace,
    speed_up: Mapping[str, float] | None = None,
    without: Collection[str] = (),
    repair: Iterable[str] = (),
) -> Changes:
    """Check a user's changes, as of :meth:`.CriticalPath.what_if`, and translate them."""
    without = (without,) if isinstance(without, str) else without
    repair = (repair,) if isinstance(repair, str) else repair
    factors = {}
    for prefix, speed in (speed_up or {}).items():
        if prefix not in trace.prefixes:
            raise UnknownNameError("prefix", prefix, trace.prefixes)
        if not (isinstance(speed, int | float) and speed > 0 and not math.isnan(speed)):
            expected = "expected a number above 0, such as 2.0 for half the time"
            raise ValueError(f"speed_up[{prefix!r}] is {speed!r}; {expected}")
        factors[prefix] = 1.0 / speed
    for name in without:
        if name not in REMOVABLE:
            raise UnknownNameError("part to leave out", name, REMOVABLE)
    repaired, names = frozenset(repair), [worker.name for worker in trace.workers]
    for name in repaired:
        if name not in names:
            raise UnknownNameError("worker", name, names)
    return Changes(factors, dict.fromkeys(without, 0.0), repaired)


#: Runs of all replays of one improvement together, unless a single replay has more: some seconds of work.
RUNS = 20_000
#: Replays of one improvement, at most: the standard error falls with the square root of their number.
REPLAYS = 8


@dataclass(frozen=True, slots=True)
class Speedup:
    """Saving of one improvement."""

    what: str
    #: Reduction of the makespan; below 0 where it would be longer.
    saved_seconds: float
    #: Standard error of that; NaN after a single replay.
    error_seconds: float


def replays(runs: int) -> int:
    """Choose the number of replays to average, for a trace with a number of runs."""
    return min(max(RUNS // max(runs, 1), 1), REPLAYS)


def speedups(makespan: Callable[[Changes], float], improvements: Mapping[str, Changes], number: int) -> list[Speedup]:
    """Estimate the saving of each improvement, the most helpful first; ``makespan`` gives that of a replay in seconds.

    The recorded schedule is one of many that could have happened, and often a lucky one: any small change may make it
    longer. So all computing times are changed a little at random, in the same way with and without the improvement.
    """
    before = [makespan(Changes(seed=seed)) for seed in range(number)]
    estimates = []
    for what, changed in improvements.items():
        saved = [was - makespan(replace(changed, seed=seed)) for seed, was in enumerate(before)]
        error = stdev(saved) / math.sqrt(number) if number > 1 else math.nan
        estimates.append(Speedup(what, fmean(saved), error))
    return sorted(estimates, key=lambda speedup: -speedup.saved_seconds)
