"""IntervalComparison: keeps what heartbeats report, and compares the workers of a group interval by interval."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.gpu import KernelTotals
from dask_efficiency.straggler.history import Interval
from dask_efficiency.straggler.kernels import KernelComparison
from dask_efficiency.straggler.peers import MIN_PEERS, Floats, median_of_others
from dask_efficiency.straggler.prefixes import PrefixComparison
from dask_efficiency.straggler.signals import BESIDE_TASKS, CORE_WAIT, DISK, GPU_KERNEL, LIVE, MEMORY
from dask_efficiency.straggler.task_rates import PROCESS_SUMS, TaskRates
from dask_efficiency.straggler.transfers import TransferComparison

#: Bytes moved in an interval that are enough to judge the speed of the disk; a guess.
MIN_DISK_BYTES = 1e6

#: Seconds a second in which threads want a core, enough to judge how long they wait for it; a guess.
MIN_RUNNABLE = 0.05

#: Number of tasks that one observation of a process is worth; with 7 intervals, 20 tasks are there.
TASKS_OF_OBSERVATION = 3

_VARIANCES = tuple(signal.variance for signal in LIVE.values())


class ProcessComparison:
    """Compares disk, memory and CPU use of workers' processes since the last comparison.

    Parameters
    ----------
    rows
        Number of workers there is room for.
    """

    def __init__(self, rows: int) -> None:
        #: Process sums, nanoseconds of the last heartbeat, and seconds paused and spilling; workers are the last axis.
        self._now = np.full((len(PROCESS_SUMS) + 3, rows), np.nan)
        self._base = np.full_like(self._now, np.nan)
        #: Bytes of the results that a worker holds, and seconds between two turns of its event loop.
        self._held, self._lag = np.full((2, rows), np.nan)

    @property
    def nbytes(self) -> int:
        """Size of the arrays in bytes."""
        return self._now.nbytes + self._base.nbytes + self._held.nbytes + self._lag.nbytes

    def grow(self, rows: int) -> None:
        """Make room for this many workers."""
        more = rows - len(self._held)
        self._now, self._base, self._held, self._lag = (
            np.concatenate([array, np.full((*array.shape[:-1], more), np.nan)], axis=-1)
            for array in (self._now, self._base, self._held, self._lag)
        )

    def reset(self, row: int) -> None:
        """Clear a row, which another worker has now."""
        for array in (self._now, self._base, self._held, self._lag):
            array[..., row] = np.nan

    def receive(
        self, row: int, process: Floats, *, at: int, paused: float, spilling: float, held: float, lag: float
    ) -> None:
        """Store a worker's totals."""
        self._now[:-3, row] = process
        self._now[-3:, row] = at, paused, spilling
        self._held[row], self._lag[row] = held, lag

    def gained(self) -> Floats:
        """Growth since the last call, by row; the wait for a core is NaN where the system has no figure."""
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
            outside = np.where(known, np.maximum(cpu - of_tasks, 0.0) / took, np.nan)
            _put(interval, BESIDE_TASKS, rows, outside)
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
    """Median of the others; NaN if there are too few."""
    if np.isfinite(values).sum() < MIN_PEERS:
        return np.full(len(values), np.nan)
    others: Floats = median_of_others(values[None, :])[0]
    return others


#: Workers there is room for at first; the room doubles when it is full.
FIRST_ROWS = 16


class IntervalComparison:
    """Gives each worker a row, and compares tasks, processes, kernels and transfers within groups of workers.

    Memory is bounded by the number of workers present: 13 kB each.
    """

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._free = list(range(FIRST_ROWS))
        #: Number of each group; and by row, the number of its group, or -1.
        self._groups: dict[Hashable, int] = {}
        self._group_of = np.full(FIRST_ROWS, -1, np.intp)
        self._prefixes = PrefixComparison(FIRST_ROWS)
        self._processes = ProcessComparison(FIRST_ROWS)
        self._kernels = KernelComparison(FIRST_ROWS)
        self._transfers = TransferComparison()

    @property
    def sees_kernels(self) -> bool:
        """True once any worker has reported kernels of a GPU."""
        return self._kernels.any

    @property
    def capacity(self) -> int:
        """Number of rows."""
        return len(self._group_of)

    @property
    def nbytes(self) -> int:
        """Size of the arrays in bytes."""
        parts = (self._prefixes, self._processes, self._kernels)
        return self._group_of.nbytes + sum(part.nbytes for part in parts)

    def row_of(self, worker: str) -> int:
        """Row of a worker in all arrays."""
        return self._rows[worker]

    def joined(self, worker: str, group: Hashable, *, at: int) -> None:
        """Add a worker; ``group`` is equal for workers that can be compared."""
        self.left(worker)
        if not self._free:
            self._free = self._grow()
        row = self._rows[worker] = self._free.pop()
        for part in (self._prefixes, self._processes, self._kernels):
            part.reset(row)
        self._transfers.joined(worker, row)
        if group not in self._groups:
            self._groups[group] = max(self._groups.values(), default=-1) + 1
            self._prefixes.begin_group(self._groups[group], at=at)
        self._group_of[row] = self._groups[group]

    def left(self, worker: str) -> None:
        """Remove a worker."""
        self._transfers.left(worker)
        row = self._rows.pop(worker, None)
        if row is None:
            return
        self._free.append(row)
        number = self._group_of[row]
        self._group_of[row] = -1
        if not (self._group_of == number).any():
            self._groups = {group: known for group, known in self._groups.items() if known != number}
            self._prefixes.end_group(int(number))

    def receive(
        self,
        worker: str,
        rates: TaskRates,
        *,
        at: int,
        paused: float,
        spilling: float,
        held: float,
        lag: float,
        kernels: Sequence[KernelTotals] = (),
    ) -> None:
        """Take in a heartbeat; parameters as in :meth:`~dask_efficiency.straggler.online.StragglerWatch.receive`."""
        row = self._rows.get(worker)
        if row is None:
            return
        self._prefixes.receive(row, rates, at=at)
        self._transfers.receive(worker, rates)
        self._processes.receive(row, rates.process, at=at, paused=paused, spilling=spilling, held=held, lag=lag)
        if kernels:
            self._kernels.receive(row, kernels, at=at)

    def pieces(self, *, at: int, learn: NDArray[np.bool_]) -> Generator[int, None, Interval]:
        """Compare the growth since the last interval within each group, piece by piece.

        Workers may join or leave, and heartbeats may arrive, between two pieces.

        Parameters
        ----------
        at
            Monotonic nanoseconds.
        learn
            By row, whether the worker seems healthy, so that its history may learn from this interval.

        Yields
        ------
        int
            Size of the piece, in numbers compared.
        """
        yield from self._prefixes.make_room(at=at)
        interval = Interval.of(self.capacity)
        gained = self._processes.gained()
        for group in list(self._groups.values()):
            rows = np.flatnonzero(self._group_of[: interval.workers] == group)
            yield from self._prefixes.compare(interval, group, rows, at=at, learn=learn)
            self._processes.compare(interval, rows, gained)
            yield len(rows) * len(PROCESS_SUMS)
            if self._kernels.any:
                interval.put(GPU_KERNEL, rows, *(yield from self._kernels.compare(rows)))
        yield from self._transfers.compare(interval, at=at)
        return interval

    def _grow(self) -> list[int]:
        """Double the room, and return the new rows."""
        size = self.capacity
        for part in (self._prefixes, self._processes, self._kernels):
            part.grow(2 * size)
        self._group_of = np.concatenate([self._group_of, np.full(size, -1, np.intp)])
        return list(range(size, 2 * size))
