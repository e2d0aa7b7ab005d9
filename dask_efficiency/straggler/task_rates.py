"""TaskRates: totals of the time of a worker's tasks, transfers and disk, by which workers are compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.straggler.signals import MIN_TRANSFER_BYTES

#: What is added up for each prefix: tasks; wall and CPU seconds; the logarithm of the wall time in
#: :data:`MIN_WALL_SECONDS` and of the size in bytes, their squares and their product; the share of the wall time on the
#: CPU, and its square. None is ever negative, so that all only grow.
TASK_SUMS = ("tasks", "wall", "cpu", "log_wall", "log_wall2", "log_size", "log_size2", "log_product", "share", "share2")

#: What is added up for each worker that this one fetches from: transfers; the logarithm of the time of a byte in
#: :data:`MIN_SECONDS_A_BYTE`, and its square; seconds. None is ever negative, either.
TRANSFER_SUMS = ("transfers", "log_cost", "log_cost2", "seconds")

#: What is added up for the worker's process. The seconds that its threads waited for a core are -1 where the system
#: has no figure; of its CPU seconds, a part is that of its tasks.
PROCESS_SUMS = ("disk_seconds", "disk_bytes", "core_wait_seconds", "cpu_seconds", "task_cpu_seconds")

#: Prefixes, senders and running tasks that heartbeats carry at most.
MAX_PREFIXES = 50
MAX_SENDERS = 16
MAX_RUNNING = 16

#: A task counts for at most this many times the usual time of its worker's tasks of the prefix, as one that takes far
#: longer says more about itself than about the worker.
MAX_TIMES_LONGER = 4.0

#: A task is not compared if it is larger than its worker's tasks of the prefix usually are by this factor: nobody knows
#: how much longer so few large ones take. The usual size follows each task with this weight.
GIANT = 4.0
LOG_GIANT = log(GIANT)
SIZE_LEARNING = 0.125

#: The time of shorter tasks is mostly that of the clock.
MIN_WALL_SECONDS = 1e-4

#: So many tasks of a prefix that are counted together are counted by arrays, which pays from some ten on.
MIN_TOGETHER = 16

#: No network moves a byte in less.
MIN_SECONDS_A_BYTE = 1e-15


#: A task's prefix, nanoseconds in its thread and on the CPU, and bytes of its input or output.
RatedTask = tuple[str, int, int, float]


@dataclass(frozen=True, slots=True)
class RunningTask:
    """A task that has not ended: its prefix, seconds so far, and bytes of input (0 where it has none)."""

    prefix: str
    seconds: float
    nbytes: float


@dataclass(frozen=True, slots=True, eq=False)
class TaskRates:
    """A worker's totals, as its heartbeat carries them.

    Parameters
    ----------
    prefixes, tasks
        Names, and an array of shape (prefixes, :data:`TASK_SUMS`).
    senders, transfers
        Addresses, and an array of shape (senders, :data:`TRANSFER_SUMS`).
    process
        An array of shape (:data:`PROCESS_SUMS`,).
    running
        The tasks that have run longest.
    """

    prefixes: tuple[str, ...]
    tasks: NDArray[np.float64]
    senders: tuple[str, ...]
    transfers: NDArray[np.float64]
    process: NDArray[np.float64]
    running: tuple[RunningTask, ...] = ()


class TaskRateCounter:
    """Adds up a worker's rates. The first task of each prefix is left out, as it imports and warms up."""

    def __init__(self) -> None:
        #: By prefix :data:`TASK_SUMS`, and by sender :data:`TRANSFER_SUMS`; behind them, the turn of the last use.
        self.tasks: dict[str, list[float]] = {}
        self.transfers: dict[str, list[float]] = {}
        #: By prefix, the logarithm of the usual size of a task.
        self._usual_size: dict[str, float] = {}
        #: CPU seconds of all tasks, whether they count for the rates or not.
        self.cpu_seconds = 0.0
        #: Grows with each use.
        self.turn = 0.0

    def add(self, tasks: Iterable[RatedTask]) -> None:
        """Count tasks that succeeded; many of a prefix at once are counted by arrays."""
        by_prefix: dict[str, list[RatedTask]] = {}
        for task in tasks:
            by_prefix.setdefault(task[0], []).append(task)
        for prefix, rated in by_prefix.items():
            sums = self.tasks.get(prefix)
            if len(rated) >= MIN_TOGETHER and sums is not None and self._usual_size[prefix]:
                self._add_together(prefix, sums, rated)
            else:
                for _, wall, cpu, nbytes in rated:
                    self.task(prefix, wall=wall, cpu=cpu, nbytes=nbytes)

    def _add_together(self, prefix: str, sums: list[float], tasks: Sequence[RatedTask]) -> None:
        """Count many tasks as :meth:`task` does, but that what is usual is what it was before all of them."""
        numbers = np.array([task[1:] for task in tasks], np.float64)
        self.cpu_seconds += float(numbers[:, 1].sum()) / 1e9
        numbers = numbers[numbers[:, 0] >= 1e9 * MIN_WALL_SECONDS]
        n = sums[0]
        self.turn = sums[-1] = self.turn + len(numbers)
        larger = np.log1p(numbers[:, 2]) - self._usual_size[prefix]
        weights = SIZE_LEARNING * (1 - SIZE_LEARNING) ** np.arange(len(larger))[::-1]
        usual, self._usual_size[prefix] = self._usual_size[prefix], self._usual_size[prefix] + float(weights @ larger)
        usually = larger <= LOG_GIANT
        numbers, larger = numbers[usually], larger[usually]
        wall = numbers[:, 0] / 1e9
        share = np.minimum(1.0, numbers[:, 1] / numbers[:, 0])
        if n >= 5:
            wall = np.minimum(wall, MAX_TIMES_LONGER * sums[1] / n)
        log_wall = np.log(wall / MIN_WALL_SECONDS)
        columns = np.stack((np.ones_like(wall), wall, share, log_wall, larger + usual))
        products = columns @ columns.T
        ones, walls, shares, logs, sizes = range(5)
        more = [
            products[i, j]
            for i, j in (
                (ones, ones),
                (ones, walls),
                (shares, walls),
                (ones, logs),
                (logs, logs),
                (ones, sizes),
                (sizes, sizes),
                (sizes, logs),
                (ones, shares),
                (shares, shares),
            )
        ]
        sums[:-1] = [before + float(each) for before, each in zip(sums, more, strict=False)]

    def task(self, prefix: str, *, wall: int, cpu: int, nbytes: float) -> None:
        """Count a task that succeeded: nanoseconds in its thread and on the CPU, and bytes of its input or output."""
        self.cpu_seconds += cpu / 1e9
        seconds = wall / 1e9
        if seconds < MIN_WALL_SECONDS:
            return
        sums = self.tasks.get(prefix)
        if sums is None:
            self._begin(self.tasks, prefix, MAX_PREFIXES, TASK_SUMS)
            self._usual_size[prefix] = log(1.0 + nbytes)
            return
        self.turn = sums[-1] = self.turn + 1
        log_size = log(1.0 + nbytes)
        usual = self._usual_size[prefix] or log_size
        larger = log_size - usual
        self._usual_size[prefix] = usual + SIZE_LEARNING * larger
        if larger > LOG_GIANT:
            return
        n = sums[0]
        share = min(1.0, cpu / wall)
        if n >= 5:
            seconds = min(seconds, MAX_TIMES_LONGER * sums[1] / n)
        log_wall = log(seconds / MIN_WALL_SECONDS)
        sums[0] = n + 1.0
        sums[1] += seconds
        sums[2] += share * seconds
        sums[3] += log_wall
        sums[4] += log_wall * log_wall
        sums[5] += log_size
        sums[6] += log_size * log_size
        sums[7] += log_size * log_wall
        sums[8] += share
        sums[9] += share * share

    def transfer(self, sender: str, *, seconds: float, nbytes: int) -> None:
        """Count data that came from another worker."""
        if nbytes < MIN_TRANSFER_BYTES or not seconds > 0:
            return
        sums = self.transfers.get(sender) or self._begin(self.transfers, sender, MAX_SENDERS, TRANSFER_SUMS)
        self.turn = sums[-1] = self.turn + 1
        cost = log(max(1.0, seconds / nbytes / MIN_SECONDS_A_BYTE))
        sums[0] += 1.0
        sums[1] += cost
        sums[2] += cost * cost
        sums[3] += seconds

    def usual(self, prefix: str) -> float:
        """Seconds that a task of a prefix usually takes here; 0.0 where that is not known."""
        sums = self.tasks.get(prefix)
        return sums[1] / sums[0] if sums is not None and sums[0] > 1 else 0.0

    def _begin(self, table: dict[str, list[float]], name: str, at_most: int, columns: Sequence[str]) -> list[float]:
        """Add a row; where there is no room, it replaces the one that was unused for longest."""
        if len(table) >= at_most:
            oldest = min(table, key=lambda each: table[each][-1])
            del table[oldest]
            if table is self.tasks:
                del self._usual_size[oldest]
        self.turn += 1
        table[name] = [0.0] * len(columns) + [self.turn]
        return table[name]
