"""How long a run took and how well it used its threads, measured alike in a recorded and in a simulated run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.path.bounds import useful_ns
from dask_efficiency.runs.path.path import CriticalPath
from dask_efficiency.runs.path.presence import slots
from dask_efficiency.runs.path.scope import Question, whole
from dask_efficiency.runs.trace.run_trace import RunTrace


@dataclass(frozen=True, slots=True)
class RunFigures:
    """The main figures of one run.

    Parameters
    ----------
    name
        What the run is called.
    makespan_seconds
        As of :func:`makespan_seconds`.
    workers, nthreads
        Those that it had at any time, and the threads of all of them.
    efficiency, busy
        As of :func:`efficiency` and :func:`busy`.
    kinds
        Seconds of its critical path by kind, largest first; their sum is the makespan.
    """

    name: str
    makespan_seconds: float
    workers: int
    nthreads: int
    efficiency: float
    busy: float
    kinds: Mapping[str, float]

    @classmethod
    def of(cls, trace: RunTrace) -> RunFigures:
        """Those of a recorded run.

        Raises
        ------
        EmptyTraceError
            If no task ended in it.
        """
        nthreads = sum(worker.nthreads for worker in trace.workers)
        return cls(
            trace.name,
            makespan_seconds(trace),
            len(trace.workers),
            nthreads,
            efficiency(trace),
            busy(trace),
            CriticalPath.of(trace, Question()).seconds("kind"),
        )


def makespan_seconds(trace: RunTrace) -> float:
    """Seconds from a client's first activity to the last result: the length of the run's critical path.

    Raises
    ------
    EmptyTraceError
        If no task ended in the trace.
    """
    scope = whole(trace)
    return (scope.stop - scope.start) / 1e9


def efficiency(trace: RunTrace) -> float:
    """Share of the thread time in which tasks computed, on CPU or GPU, in [0, 1].

    Thread time is the sum over all workers of their threads times how long they were there within the makespan.
    Threads that a library starts are not in a trace, so a report, which samples them, can say more.
    """
    useful, _ = useful_ns(trace, whole(trace))
    return _share(trace, float(useful.sum()) / 1e9)


def busy(trace: RunTrace) -> float:
    """Share of the thread time in which tasks held a thread, whatever they did there and whether they succeeded.

    Thread time is as of :func:`efficiency`.
    """
    runs = trace.runs
    stop = np.where(runs.seceded != MISSING, runs.seceded, runs.stop)
    there = (runs.start != MISSING) & (stop != MISSING)
    held = float(np.maximum(stop - runs.start, 0)[there].sum()) / 1e9
    return _share(trace, held)


def _share(trace: RunTrace, seconds: float) -> float:
    """Of the thread time that there was."""
    there = slots(trace, whole(trace)) * makespan_seconds(trace)
    return min(seconds / there, 1.0) if there > 0 else 0.0
