"""TaskRates: how long a worker's tasks, transfers and disk took so far, in totals by which workers can be compared."""

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
#: does not tell them; of its CPU seconds, a part is that of its tasks.
PROCESS_SUMS = ("disk_seconds", "disk_bytes", "core_wait_seconds", "cpu_seconds", "task_cpu_seconds")

#: How many prefixes, senders and running tasks are told of; this bounds what heartbeats carry.
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
MIN_WALL_NS = 100_000
MIN_WALL_SECONDS = MIN_WALL_NS / 1e9

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
        """Count tasks that succeeded."""
        for prefix, wall, cpu, nbytes in tasks:
            if wall < MIN_WALL_NS:  # no call for each of very many
                self.cpu_seconds += cpu / 1e9
            else:
                self.task(prefix, wall=wall, cpu=cpu, nbytes=nbytes)

    def task(self, prefix: str, *, wall: int, cpu: int, nbytes: float) -> None:
        """Count a task that succeeded: nanoseconds in its thread and on the CPU, and bytes of its input or output."""
        self.cpu_seconds += cpu / 1e9
        if wall < MIN_WALL_NS:
            return
        seconds = wall / 1e9
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
