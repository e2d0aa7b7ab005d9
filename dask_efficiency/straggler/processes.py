"""ProcessComparison: compares disk, memory and CPU use of workers' processes."""

from __future__ import annotations

import math

import numpy as np

from dask_efficiency.straggler.columns import WorkerArrays
from dask_efficiency.straggler.history import Interval
from dask_efficiency.straggler.live_score import MIN_INTERVALS, WINDOW_TASKS
from dask_efficiency.straggler.peers import LITTLE, MIN_PEERS, Floats, Places, median_of_others
from dask_efficiency.straggler.signals import BESIDE_TASKS, CORE_WAIT, DISK, LIVE, MEMORY
from dask_efficiency.straggler.task_rates import PROCESS_SUMS

#: Bytes moved in an interval that are enough to judge the speed of the disk; a guess.
MIN_DISK_BYTES = 1e6
#: Number of tasks that one observation of a process is worth: with enough intervals, enough tasks are there.
TASKS_OF_OBSERVATION = math.ceil(WINDOW_TASKS / MIN_INTERVALS)

_VARIANCES = tuple(signal.variance for signal in LIVE.values())


class ProcessComparison(WorkerArrays):
    """Keeps the totals of workers' processes, and compares their growth since the last comparison."""

    ARRAYS = (("_now", -1, np.nan), ("_base", -1, np.nan))

    def __init__(self, rows: int) -> None:
        #: Process sums, nanoseconds of the last heartbeat, seconds paused and spilling, bytes of the results that a
        #: worker holds, and seconds between two turns of its event loop; by worker.
        self._now, self._base = np.full((2, len(PROCESS_SUMS) + 5, rows), np.nan)

    def receive(self, row: int, process: Floats, *others: float) -> None:
        """Store a worker's totals: process sums, and the other figures in their order."""
        self._now[:-5, row], self._now[-5:, row] = process, others

    def gained(self) -> Floats:
        """Growth since the last call, by row; the wait for a core is NaN where the system has no figure."""
        gained: Floats = self._now - self._base
        gained[2, ~(self._now[2] >= 0)] = np.nan
        self._base[:] = self._now
        return gained

    def compare(self, interval: Interval, rows: Places, gained: Floats) -> None:
        """Compare some workers by what they gained."""
        seconds, nbytes, wait, cpu, of_tasks, elapsed, paused, spilling, *_ = gained[:, rows]
        held = self._now[-2, rows]
        took = elapsed / 1e9
        with np.errstate(divide="ignore", invalid="ignore"):
            lasted = took > 0
            cost = np.where(nbytes >= MIN_DISK_BYTES, np.log(seconds / nbytes), np.nan)
            # A worker that holds more than its peers spills more, and is no slower for the same work.
            fair = np.nan_to_num(np.minimum(1.0, _peers_of(held) / held), nan=1.0)
            share = np.where(lasted, np.clip((paused + fair * spilling) / took, 0.0, 1.0), np.nan)
            # A share of the time in which its threads want a core, so that it does not matter how much they have to do.
            waited = np.where(lasted & (wait + cpu > LITTLE * took), wait / (wait + cpu), np.nan)
            outside = np.where(lasted, np.maximum(cpu - of_tasks, 0.0) / took, np.nan)
        for signal, level in ((DISK, cost), (MEMORY, share), (CORE_WAIT, waited), (BESIDE_TASKS, outside)):
            residual = level - _peers_of(level)
            known = np.isfinite(residual)
            variance = np.where(known, _VARIANCES[signal], np.nan)
            interval.put(signal, rows, residual, variance, np.where(known, TASKS_OF_OBSERVATION, 0.0))
        interval.loop_lag[rows] = self._now[-1, rows]


def _peers_of(values: Floats) -> Floats:
    """Median of the others; NaN if there are too few."""
    if np.isfinite(values).sum() < MIN_PEERS:
        return np.full(len(values), np.nan)
    return np.asarray(median_of_others(values[None, :])[0])
