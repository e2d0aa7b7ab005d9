"""SeriesRing: the last minutes of one worker's metrics at even steps of time, in memory of a fixed size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.fleet.outliers.metric_series import REACH_SECONDS, MetricSeries, Values, filled

#: Between two samples, in seconds: a heartbeat of a cluster of 800 workers. The outlier detector averages three.
STEP_SECONDS = 5.0


class SeriesRing:
    """One worker's; a sample is the mean of what the worker reported within its step.

    Parameters
    ----------
    metrics
        How many there are.
    steps
        How many of the last steps are remembered: 4 bytes of each metric, and 8 more.
    """

    __slots__ = ("_counts", "_first", "_held", "_step", "_sums", "_values")

    def __init__(self, metrics: int, steps: int) -> None:
        #: By place in the ring, a sample, and of which step it is.
        self._values = np.full((steps, metrics), np.nan, np.float32)
        self._held = np.full(steps, -1, np.int64)
        #: The newest step; the sum of what was reported in it, and by metric of how many reports.
        self._step = -1
        self._sums = np.zeros(metrics)
        self._counts = np.zeros(metrics)
        #: The first report of it, which is in neither of them yet: of many workers there is one report a step.
        self._first: Sequence[float] | None = None

    @property
    def nbytes(self) -> int:
        """Of its arrays."""
        return sum(array.nbytes for array in (self._values, self._held, self._sums, self._counts))

    def add(self, values: Sequence[float], step: int) -> None:
        """Take a report in; one of an older step than the newest came late, and is left out.

        Parameters
        ----------
        values
            By metric; NaN for what was not reported.
        step
            Its number, not negative.
        """
        if step < self._step:
            return
        place = step % len(self._held)
        if step != self._step:
            self._step, self._first = step, values
            self._held[place] = step
            self._values[place] = values
            return
        if self._first is not None:
            self._sums.fill(0)
            self._counts.fill(0)
            self._sum(self._first)
            self._first = None
        self._sum(values)
        np.divide(self._sums, self._counts, out=self._values[place], where=self._counts > 0, casting="same_kind")

    def _sum(self, values: Sequence[float]) -> None:
        row = np.array(values)
        known = row == row
        np.add(self._sums, row, out=self._sums, where=known)
        self._counts += known

    def read(self, steps: NDArray[np.int64]) -> Values:
        """Its samples of some steps, shape (steps, metrics); NaN where it reported nothing, or too long ago."""
        places = steps % len(self._held)
        found = self._values[places]
        found[self._held[places] != steps] = np.nan
        return found


def series_of(
    rings: Sequence[SeriesRing],
    *,
    metrics: Sequence[str],
    workers: Sequence[str],
    groups: Sequence[str],
    hosts: Sequence[str],
    first: int,
    last: int,
    start: float,
) -> MetricSeries:
    """The metric series of some workers over some steps, of the metrics that any of them has.

    Where a worker's heartbeats are further apart than a step, the sample that is nearest in time counts, as in a trace.

    Parameters
    ----------
    rings, workers, groups, hosts
        By worker.
    metrics
        In the order of the rings.
    first, last
        The numbers of the steps between which, both included. Those before anybody reported anything are left out.
    start
        Seconds since the epoch at which the first step begins.
    """
    steps = np.arange(first, last + 1)
    samples = np.full((len(rings), len(steps), len(metrics)), np.nan, np.float32)
    for worker, ring in enumerate(rings):
        samples[worker] = ring.read(steps)
    there = np.flatnonzero(~np.isnan(samples).all(axis=(0, 2)))
    begin = int(there[0]) if len(there) else len(steps)
    samples = samples[:, begin:]
    known = [j for j in range(len(metrics)) if not np.isnan(samples[:, :, j]).all()]
    values = np.empty((len(known), *samples.shape[:2]), np.float32)
    for at, metric in enumerate(known):
        values[at] = filled(samples[:, :, metric], reach=int(REACH_SECONDS / STEP_SECONDS))
    return MetricSeries(
        metrics=tuple(metrics[j] for j in known),
        workers=tuple(workers),
        groups=tuple(groups),
        hosts=tuple(hosts),
        start=start + begin * STEP_SECONDS,
        step_seconds=STEP_SECONDS,
        values=values,
    )
