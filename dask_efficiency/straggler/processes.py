"""ProcessComparison: compares workers' processes by their disk, memory and use of the CPU."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.straggler.interval import Interval
from dask_efficiency.straggler.peers import MIN_PEERS, Floats, median_of_others
from dask_efficiency.straggler.signals import BESIDE_TASKS, CORE_WAIT, DISK, LIVE, MEMORY
from dask_efficiency.straggler.task_rates import PROCESS_SUMS

#: Bytes moved in an interval that say something about the speed of the disk.
MIN_DISK_BYTES = 1e6

#: Seconds a second in which the threads of a process want a core, for the share that they wait for it to say something.
MIN_RUNNABLE = 0.05

#: How many tasks an observation of a process is worth.
TASKS_OF_OBSERVATION = 3

_VARIANCES = tuple(signal.variance for signal in LIVE.values())


class ProcessComparison:
    """Keeps the totals of the processes, and compares what was added since the last comparison.

    Parameters
    ----------
    rows
        How many workers there is room for.
    """

    def __init__(self, rows: int) -> None:
        #: The process sums, nanoseconds of the last heartbeat, and seconds paused and spilling; workers are last.
        self._now = np.full((len(PROCESS_SUMS) + 3, rows), np.nan)
        self._base = np.full_like(self._now, np.nan)
        #: Bytes of the results that a worker holds, and the seconds between two turns of its event loop.
        self._held, self._lag = np.full((2, rows), np.nan)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self._now.nbytes + self._base.nbytes + self._held.nbytes + self._lag.nbytes

    def grow(self, rows: int) -> None:
        """Make room for so many workers."""
        more = rows - len(self._held)
        self._now, self._base, self._held, self._lag = (
            np.concatenate([array, np.full((*array.shape[:-1], more), np.nan)], axis=-1)
            for array in (self._now, self._base, self._held, self._lag)
        )

    def reset(self, row: int) -> None:
        """Forget what is known of a row, as it is another worker's now."""
        for array in (self._now, self._base, self._held, self._lag):
            array[..., row] = np.nan

    def receive(
        self, row: int, process: Floats, *, at: int, paused: float, spilling: float, held: float, lag: float
    ) -> None:
        """Take a worker's totals in."""
        self._now[:-3, row] = process
        self._now[-3:, row] = at, paused, spilling
        self._held[row], self._lag[row] = held, lag

    def gained(self) -> Floats:
        """Compute the growth since the last call, by row; the wait for a core is NaN where the system has no figure."""
        gained = self._now - self._base
        gained[2, ~(self._now[2] >= 0)] = np.nan
        self._base[:] = self._now
        return gained

    def compare(self, interval: Interval, rows: NDArray[np.intp], gained: Floats) -> None:
        """Compare some workers by what they gained."""
        seconds, nbytes, wait, cpu, of_tasks, elapsed, paused, spilling = gained[:, rows]
        held = self._held[rows]
        took = elapsed / 1e9
        with np.errstate(divide="ignore", invalid="ignore"):
            known = took > 0
            cost = np.where(nbytes >= MIN_DISK_BYTES, np.log(seconds / nbytes), np.nan)
            _put(interval, DISK, rows, cost)
            # A worker that holds more than its peers spills more, and is no slower for the same work.
            fair = np.nan_to_num(np.minimum(1.0, _peers_of(held) / held), nan=1.0)
            share = np.where(known, np.clip((paused + fair * spilling) / took, 0.0, 1.0), np.nan)
            _put(interval, MEMORY, rows, share)
            # A share of the time in which its threads want a core, so that it does not matter how much they have to do.
            waited = np.where(known & (wait + cpu > MIN_RUNNABLE * took), wait / (wait + cpu), np.nan)
            _put(interval, CORE_WAIT, rows, waited)
            beside = np.where(known, np.maximum(cpu - of_tasks, 0.0) / took, np.nan)
            _put(interval, BESIDE_TASKS, rows, beside)
        interval.loop_lag[rows] = self._lag[rows]


def _put(interval: Interval, signal: int, rows: NDArray[np.intp], level: Floats) -> None:
    residual = level - _peers_of(level)
    known = np.isfinite(residual)
    interval.put(
        signal,
        rows,
        residual,
        np.where(known, _VARIANCES[signal], np.nan),
        np.where(known, float(TASKS_OF_OBSERVATION), 0.0),
    )


def _peers_of(values: Floats) -> Floats:
    """The median of the others, where there are enough of them."""
    if np.isfinite(values).sum() < MIN_PEERS:
        return np.full(len(values), np.nan)
    others: Floats = median_of_others(values[None, :])[0]
    return others
