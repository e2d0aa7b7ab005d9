"""Ensemble: one job simulated under several seeds, as runs of a cluster differ too."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import fmean, median, stdev
from typing import Any, Self, TypeAlias

from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.simulation.model.cluster import ClusterSpec


@dataclass(frozen=True, slots=True)
class SimulationJob:
    """Job of a simulation: the cluster and the changes, as they travel to the engine's process."""

    cluster: ClusterSpec
    #: Parts to leave out, of :data:`~dask_efficiency.runs.replay.changes.REMOVABLE`.
    without: frozenset[str] = frozenset()
    #: By prefix: factor of its tasks' computing time.
    prefixes: Mapping[str, float] | None = None
    #: True if Dask checks its own state after every step; slow.
    validate: bool = False
    #: By prefix: share of its tasks' time alone in which they hold Python's lock (GIL), where known.
    gil: Mapping[str, float] = field(default_factory=dict)
    #: True if other processes take the cores that they took while the run was recorded.
    others: bool = False
    #: Neighbours of one prefix of which one task is made, as with larger partitions or chunks.
    chunks: int = 1
    #: True if such a task takes, and returns, no more than the longest of them: a call costs what it does.
    calls_alone: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain data."""
        return {
            "cluster": self.cluster.to_dict(),
            "without": sorted(self.without),
            "prefixes": dict(self.prefixes or {}),
            "validate": self.validate,
            "gil": dict(self.gil),
            "others": self.others,
            "chunks": self.chunks,
            "calls_alone": self.calls_alone,
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """Read the data of :meth:`to_dict`."""
        cluster, without = ClusterSpec.from_dict(given["cluster"]), frozenset(given["without"])
        return cls(**{**given, "cluster": cluster, "without": without})


#: Tasks of all seeds together up to which all traces are kept until the median one is known: some 10 MB. Above it, the
#: median seed is simulated once more.
MAX_TRACED = 50_000


class Wanted(StrEnum):
    """Detail that is wanted of the run nearest to the median, beside the makespans of all."""

    NOTHING = "nothing"
    #: Seconds of its critical path by kind.
    KINDS = "kinds"
    TRACE = "trace"


@dataclass(frozen=True, slots=True)
class SeededJob:
    """Job, and the seeds under which it is simulated."""

    job: SimulationJob
    seeds: Sequence[int]
    wanted: Wanted = Wanted.TRACE
    #: True if its ensemble says that a run stands still, which is an error otherwise.
    may_stand_still: bool = False

    def is_traced_again(self, trace: RunTrace) -> bool:
        """True if the median run is simulated once more, for its trace."""
        return self.wanted is Wanted.TRACE and len(trace.tasks) * len(self.seeds) > MAX_TRACED

    def runs(self, trace: RunTrace) -> int:
        """Number of simulated runs."""
        return len(self.seeds) + self.is_traced_again(trace)


#: Student's t at 95 % by degrees of freedom, from 1 to 30; the last is used beyond, where t falls only to 1.645.
_T95 = (
    *(6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812),
    *(1.796, 1.782, 1.771, 1.761, 1.753, 1.746, 1.740, 1.734, 1.729, 1.725),
    *(1.721, 1.717, 1.714, 1.711, 1.708, 1.706, 1.703, 1.701, 1.699, 1.697),
)

#: Standard deviations of the normal distribution that contain 90 % of cases.
NORMAL_95 = 1.645


@dataclass(frozen=True, slots=True)
class Ensemble:
    """Simulated runs that differ in their seeds only: seconds by seed, at least one unless time was up before."""

    makespans: Mapping[int, float]
    #: Of the seed whose makespan is nearest to the median: what a recorder would have recorded; None if not asked for.
    trace: RunTrace | None = None
    #: Of that seed: seconds of its critical path by kind; empty if not asked for.
    kinds: Mapping[str, float] = field(default_factory=dict)
    #: Memory limit with which no worker of any seed would have spilled or paused; 0 if not known.
    memory_needed: int = 0
    #: Share of the seeds, in [0, 1], with a worker whose memory got so full that a nanny would have ended it.
    overfull: float = 0.0
    #: Reason why runs do not end, if they do not: there is nothing else then.
    stands_still: str = ""

    @property
    def median(self) -> float:
        """Median of the makespans, in seconds."""
        return median(self.makespans.values())

    @property
    def nearest(self) -> int:
        """Seed whose makespan is nearest to the median; the smallest of several."""
        middle = self.median
        return min(self.makespans, key=lambda seed: (abs(self.makespans[seed] - middle), seed))

    @property
    def spread(self) -> tuple[float, float]:
        """Seconds between which one further run is in 90 of 100 cases, if runs differed only as seeds do."""
        return self.spread_with(0.0)

    def spread_with(self, noise: float) -> tuple[float, float]:
        """Compute :attr:`spread` with further noise of runs: its standard deviation, as a share of the makespan.

        Student's prediction interval of the logarithms, widened to include the median. NaN for a single seed.
        """
        logs = [math.log(max(seconds, 1e-9)) for seconds in self.makespans.values()]
        if len(logs) < 2:
            return math.nan, math.nan
        of_seeds = _T95[min(len(logs) - 1, len(_T95)) - 1] * stdev(logs) * math.sqrt(1 + 1 / len(logs))
        half = math.hypot(of_seeds, NORMAL_95 * noise)
        return min(math.exp(fmean(logs) - half), self.median), max(math.exp(fmean(logs) + half), self.median)


#: Simulates jobs, as :func:`~dask_efficiency.simulation.engine.launch.simulate_jobs` does.
Simulator: TypeAlias = Callable[..., Generator[Ensemble, None, None]]


def check_seeds(given: int | Sequence[int]) -> tuple[int, ...]:
    """Check the seeds, or make a number of them."""
    if isinstance(given, int) and not isinstance(given, bool):
        if given < 1:
            raise ValueError(f"seeds is {given}; expected how many there are to be, at least 1")
        return tuple(range(given))
    if isinstance(given, str | bool | float) or not isinstance(given, Sequence):
        raise TypeError(f"seeds is {given!r:.80}; expected a number of seeds, or a list of them such as [0, 1, 2]")
    for seed in given:
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise TypeError(f"seeds holds {seed!r:.80}; expected whole numbers")
        if seed < 0:
            raise ValueError(f"seeds holds {seed}; expected numbers from 0")
    if not given or len(set(given)) < len(given):
        raise ValueError(f"seeds is {given!r:.80}; expected at least one, and each of them once")
    return tuple(given)
