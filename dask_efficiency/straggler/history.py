"""Interval and History: each worker's residuals in one interval, and in the last intervals."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.straggler.peers import Floats
from dask_efficiency.straggler.signals import LIVE


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """Residual of each worker from its peers in one interval.

    Parameters
    ----------
    residual, variance
        Shape (signals, workers): how much worse than its peers a worker was, and the variance of that; NaN if unknown.
        The signals are in the order of :data:`~dask_efficiency.straggler.signals.LIVE`.
    tasks
        Shape (signals, workers): number of tasks, transfers or observations behind it.
    on_cpu
        Shape (workers,): share of its tasks' wall time on the CPU; NaN if unknown.
    task_variance
        Shape (workers,): variance of the logarithm of the seconds among the tasks of one prefix; NaN if unknown.
    loop_lag
        Shape (workers,): seconds between two turns of the event loop; NaN if unknown.
    """

    residual: Floats
    variance: Floats
    tasks: Floats
    on_cpu: Floats
    task_variance: Floats
    loop_lag: Floats

    @classmethod
    def of(cls, workers: int) -> Interval:
        """Empty interval."""
        residual, variance = np.full((2, len(LIVE), workers), np.nan)
        return cls(residual, variance, np.zeros((len(LIVE), workers)), *np.full((3, workers), np.nan))

    @property
    def workers(self) -> int:
        """Number of rows."""
        return len(self.on_cpu)

    def put(
        self, signal: int, rows: NDArray[np.intp], residual: Floats, variance: Floats | float, tasks: Floats
    ) -> None:
        """Set one signal of some workers."""
        self.residual[signal, rows], self.variance[signal, rows], self.tasks[signal, rows] = residual, variance, tasks


#: Intervals remembered: four minutes at 2.5 s need 96. There is room for 8 at first, and for more as the window needs
#: them: large clusters have longer intervals.
MAX_INTERVALS = 96
FIRST_INTERVALS = 8

#: Figures of the last intervals, overwritten in turn; the first axis is intervals.
Ring = NDArray[np.float32]


class History:
    """Remembers the last intervals.

    Parameters
    ----------
    rows
        Number of workers there is room for.
    window_ns
        Length of the window before an instant, in nanoseconds.
    """

    def __init__(self, rows: int, window_ns: int) -> None:
        self._rows = rows
        self._window_ns = window_ns
        self._places = FIRST_INTERVALS
        #: Shape (intervals, signals, rows); see :class:`~dask_efficiency.straggler.history.Interval`.
        self.residual, self.variance, self.tasks = np.full((3, FIRST_INTERVALS, len(LIVE), rows), np.nan, np.float32)
        #: Shape (intervals, rows).
        self.on_cpu, self.task_variance, self.loop_lag = np.full((3, FIRST_INTERVALS, rows), np.nan, np.float32)
        #: Start and end of each interval in monotonic nanoseconds, newest last.
        self._begins: deque[int] = deque()
        self._ends: deque[int] = deque()
        self._position = 0

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def nbytes(self) -> int:
        """Size of the rings in bytes."""
        return sum(getattr(self, name).nbytes for name in _RINGS)

    def grow(self, rows: int) -> None:
        """Make room for this many workers."""
        if rows == self._rows:
            return
        for name in _RINGS:
            ring = getattr(self, name)
            empty = np.full((*ring.shape[:-1], rows - self._rows), np.nan, np.float32)
            setattr(self, name, np.concatenate([ring, empty], axis=-1))
        self._rows = rows

    def reset(self, row: int) -> None:
        """Clear a row, which another worker has now."""
        for name in _RINGS:
            getattr(self, name)[..., row] = np.nan

    def remember(self, interval: Interval, *, begin: int, end: int, newcomers: Sequence[int]) -> None:
        """Add an interval; the newcomers' rows got another worker after it ended."""
        full = len(self) == self._places
        if full and self._places < MAX_INTERVALS and end - self._ends[0] < self._window_ns:
            self._make_room()
        for name in _RINGS:
            place: Ring = getattr(self, name)[self._position]
            place[:] = np.nan  # the interval may have fewer rows than there are now
            place[..., : interval.workers] = getattr(interval, name)
            place[..., newcomers] = np.nan
        self._position = (self._position + 1) % self._places
        self._begins.append(begin)
        self._ends.append(end)
        if len(self._ends) > self._places:
            self._begins.popleft()
            self._ends.popleft()

    def _make_room(self) -> None:
        order = self.newest(self._places)[::-1]
        more = min(2 * self._places, MAX_INTERVALS) - self._places
        for name in _RINGS:
            ring = getattr(self, name)
            empty = np.full((more, *ring.shape[1:]), np.nan, np.float32)
            setattr(self, name, np.concatenate([ring[order], empty]))
        self._position = self._places
        self._places += more

    def newest(self, count: int) -> list[int]:
        """Positions of the last intervals, newest first."""
        return [(self._position - 1 - back) % self._places for back in range(min(count, len(self._ends)))]

    def within(self, *, at: int, window_ns: int) -> list[int]:
        """Positions of the intervals that ended in the window before an instant, newest first."""
        return self.newest(sum(at - end < window_ns for end in self._ends))

    def begin(self, back: int) -> int:
        """Start of an interval; 1 is the newest."""
        return self._begins[-back]

    def since(self, row: int, signal: int, least: float, *, at: int, window_ns: int) -> int:
        """Instant since which a worker's residual exceeds ``least``, except for single intervals."""
        since, misses = at, 0
        for back, place in enumerate(self.within(at=at, window_ns=window_ns), 1):
            residual = self.residual[place, signal, row]
            if np.isnan(residual):
                continue
            if float(residual) > least:
                since, misses = self.begin(back), 0
            else:
                misses += 1
                if misses > 1:
                    break
        return since

    def recent_means(self, ring: Ring, rows: NDArray[np.intp], count: int) -> Floats:
        """Mean of each row over the last intervals; NaN if unknown."""
        values = ring[self.newest(count)][:, rows].astype(np.float64)
        known = np.isfinite(values)
        number = known.sum(axis=0)
        return np.where(number > 0, np.where(known, values, 0.0).sum(axis=0) / np.maximum(number, 1), np.nan)


#: Names of the rings, which are fields of :class:`Interval`.
_RINGS = ("residual", "variance", "tasks", "on_cpu", "task_variance", "loop_lag")
