"""Interval and History: each worker's residuals in one interval, and in the last intervals."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.straggler.columns import WorkerArrays
from dask_efficiency.straggler.peers import Floats, Places
from dask_efficiency.straggler.signals import LIVE


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """Comparison of the workers in one interval; NaN if unknown."""

    #: Shape (signals, workers), signals as in :data:`~dask_efficiency.straggler.signals.LIVE`: how much worse than its
    #: peers a worker was, the variance of that, and the number of tasks, transfers or observations behind it.
    residual: Floats
    variance: Floats
    tasks: Floats
    #: Shape (workers,): share of the tasks' wall time on the CPU, variance of the logarithm of the seconds among the
    #: tasks of a prefix, and seconds between two turns of the event loop.
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

    def put(self, signal: int, rows: Places, residual: Floats, variance: Floats | float, tasks: Floats | float) -> None:
        """Set one signal of some workers."""
        self.residual[signal, rows], self.variance[signal, rows], self.tasks[signal, rows] = residual, variance, tasks


#: Nanoseconds for which a comparison waits, at most, for enough tasks or transfers; a prefix or kernel without any for
#: as long makes room for a new one. A guess.
MAX_WAIT_NS = 30_000_000_000

#: Intervals remembered: four minutes at 2.5 s need 96.
MAX_INTERVALS = 96
#: Samples that a ring has room for at first; more as they come, which are few where they are far apart, as in large
#: clusters.
FIRST_SAMPLES = 8

#: Figures of the last intervals, overwritten in turn; the first axis is intervals.
Ring = NDArray[np.float32]


class History(WorkerArrays):
    """Remembers the last intervals of a window of some nanoseconds, as rings named like the fields of an interval."""

    ARRAYS = tuple((field.name, -1, np.nan) for field in fields(Interval))

    def __init__(self, rows: int, window_ns: int) -> None:
        self.window_ns = window_ns
        self._places = FIRST_SAMPLES
        self.residual, self.variance, self.tasks = np.full((3, FIRST_SAMPLES, len(LIVE), rows), np.nan, np.float32)
        self.on_cpu, self.task_variance, self.loop_lag = np.full((3, FIRST_SAMPLES, rows), np.nan, np.float32)
        #: Start and end of each interval in monotonic nanoseconds, newest last.
        self._bounds: deque[tuple[int, int]] = deque()
        self._position = 0

    def remember(self, interval: Interval, *, begin: int, end: int, newcomers: Sequence[int]) -> None:
        """Add an interval; the newcomers' rows got another worker after it ended."""
        full = len(self._bounds) == self._places
        if full and self._places < MAX_INTERVALS and end - self._bounds[0][1] < self.window_ns:
            self._make_room()
        for name, _, _ in self.ARRAYS:
            place: Ring = getattr(self, name)[self._position]
            place[:] = np.nan  # the interval may have fewer rows than there are now
            place[..., : interval.workers] = getattr(interval, name)
            place[..., newcomers] = np.nan
        self._position = (self._position + 1) % self._places
        self._bounds.append((begin, end))
        if len(self._bounds) > self._places:
            self._bounds.popleft()

    def _make_room(self) -> None:
        order = self.newest(self._places)[::-1]
        more = min(2 * self._places, MAX_INTERVALS) - self._places
        for name, _, _ in self.ARRAYS:
            ring = getattr(self, name)
            setattr(self, name, np.concatenate([ring[order], np.full((more, *ring.shape[1:]), np.nan, np.float32)]))
        self._position = self._places
        self._places += more

    def newest(self, count: int) -> list[int]:
        """Positions of the last intervals, newest first."""
        return [(self._position - 1 - back) % self._places for back in range(min(count, len(self._bounds)))]

    def within(self, at: int) -> list[int]:
        """Positions of the intervals that ended in the window before an instant, newest first."""
        return self.newest(sum(at - end < self.window_ns for _, end in self._bounds))

    def begin(self, back: int) -> int:
        """Start of an interval; 1 is the newest."""
        return self._bounds[-back][0]

    def since(self, row: int, signal: int, least: float, *, at: int) -> int:
        """Instant since which a worker's residual exceeds ``least``, except for single intervals."""
        since, misses = at, 0
        for back, place in enumerate(self.within(at), 1):
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

    def recent_means(self, ring: Ring, rows: Places, count: int) -> Floats:
        """Mean of each row over the last intervals; NaN if unknown."""
        values = ring[self.newest(count)][:, rows].astype(np.float64)
        known = np.isfinite(values)
        number = known.sum(axis=0)
        return np.where(number > 0, np.where(known, values, 0.0).sum(axis=0) / np.maximum(number, 1), np.nan)
