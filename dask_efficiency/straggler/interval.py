"""Interval: the distance of each worker from its peers in the last seconds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.straggler.peers import Floats
from dask_efficiency.straggler.signals import LIVE


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """Distance of each worker from its peers in one interval.

    Parameters
    ----------
    residual, variance
        Shape (signals, workers): how much worse than its peers a worker was, and the variance of that; NaN where
        nothing is known. Signals are in the order of :data:`~dask_efficiency.straggler.signals.LIVE`.
    tasks
        Shape (signals, workers): tasks, transfers or observations that this comes from.
    on_cpu
        Shape (workers,): share of the wall time of its tasks on the CPU; NaN where that is not known.
    task_variance
        Shape (workers,): variance of the logarithm of the seconds among the tasks of one prefix; NaN where that is not
        known.
    loop_lag
        Shape (workers,): seconds between two turns of the event loop; NaN where that is not known.
    """

    residual: Floats
    variance: Floats
    tasks: Floats
    on_cpu: Floats
    task_variance: Floats
    loop_lag: Floats

    @classmethod
    def of(cls, workers: int) -> Interval:
        """An interval of which nothing is known yet."""
        residual, variance = np.full((2, len(LIVE), workers), np.nan)
        return cls(residual, variance, np.zeros((len(LIVE), workers)), *np.full((3, workers), np.nan))

    @property
    def workers(self) -> int:
        """Number of workers that the arrays have room for."""
        return len(self.on_cpu)

    def put(
        self, signal: int, rows: NDArray[np.intp], residual: Floats, variance: Floats | float, tasks: Floats
    ) -> None:
        """Write one signal of some workers."""
        self.residual[signal, rows], self.variance[signal, rows], self.tasks[signal, rows] = residual, variance, tasks
