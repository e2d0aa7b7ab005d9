"""RunFigures: makespan, efficiency and noise of a run, measured alike in recorded and simulated runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.path.bounds import useful_ns
from dask_efficiency.runs.path.kinds import Kind
from dask_efficiency.runs.path.path import CriticalPath
from dask_efficiency.runs.path.relabel import slots
from dask_efficiency.runs.path.scope import Question, whole_scope
from dask_efficiency.runs.trace.run_trace import RunTrace


@dataclass(frozen=True, slots=True)
class RunFigures:
    """Main figures of a run."""

    name: str
    makespan_seconds: float
    #: Number of workers that it ever had, and of their threads.
    workers: int
    nthreads: int
    efficiency: float
    busy: float
    #: Seconds of its critical path by kind, largest first; their sum is the makespan.
    kinds: Mapping[str, float]
    #: Smallest memory limit of its workers; 0 if one had none.
    memory_limit: int = 0

    @classmethod
    def of(cls, trace: RunTrace) -> RunFigures:
        """Compute the figures of a trace in which a task ended."""
        makespan, nthreads = makespan_seconds(trace), sum(worker.nthreads for worker in trace.workers)
        kinds = CriticalPath.of(trace, Question()).seconds("kind")
        limit = min((worker.memory_limit for worker in trace.workers), default=0)
        return cls(trace.name, makespan, len(trace.workers), nthreads, *thread_shares(trace), kinds, limit)


def makespan_seconds(trace: RunTrace) -> float:
    """Seconds from a client's first activity to the last result: the length of the run's critical path."""
    scope = whole_scope(trace)
    return (scope.stop - scope.start) / 1e9


def thread_shares(trace: RunTrace) -> tuple[float, float]:
    """Shares of the thread time, in [0, 1], in which tasks computed on CPU or GPU, and in which they held a thread.

    Threads that a library starts are not in a trace; a report, which samples them, counts these, too.
    """
    runs, scope = trace.runs, whole_scope(trace)
    stop = np.where(runs.seceded != MISSING, runs.seceded, runs.stop)
    known = (runs.start != MISSING) & (stop != MISSING)
    held, (useful, _) = np.maximum(stop - runs.start, 0)[known], useful_ns(trace, scope)
    whole = slots(trace, scope) * makespan_seconds(trace)
    efficiency, busy = (min(float(ns.sum()) / 1e9 / whole, 1.0) if whole > 0 else 0.0 for ns in (useful, held))
    return efficiency, busy


#: Standard deviation, in seconds, of a run whose critical path computes for one second. Disturbances (other processes,
#: the clock rate of a core, garbage collection) recur, so the variance grows with the seconds of computing. Of four
#: runs each of five programs (``benchmarks/simulation_runs.py``) on one and on two workers, whose paths compute for 0.8
#: to 11 s, on two busy cores, it was 0.05 to 0.26, and 0.17 both in the median and pooled, without one kind of which
#: one run imported its libraries.
NOISE_PER_SECOND = 0.17
#: Largest standard deviation of a run, as a share of its makespan: that of the shortest of those programs, of 1.5 s.
MAX_NOISE = 0.12


def run_noise(kinds: Mapping[str, float], makespan_seconds: float) -> float:
    """Estimate the standard deviation of a makespan, as a share of it, to which only the computing on its path adds."""
    if makespan_seconds <= 0:
        return 0.0
    seconds = max(kinds.get(Kind.COMPUTE_CPU, 0.0), 0.0)
    return min(NOISE_PER_SECOND * math.sqrt(seconds) / makespan_seconds, MAX_NOISE)


def computing_share(kinds: Mapping[str, float], makespan_seconds: float) -> float:
    """Share of a run's critical path in which tasks compute, in [0, 1]."""
    return min(max(kinds.get(Kind.COMPUTE_CPU, 0.0) / makespan_seconds, 0.0), 1.0) if makespan_seconds > 0 else 0.0
