"""Onsets: when outliers began to leave their peers, to a few seconds, which tells those that began together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.fleet.outliers.metric_series import MetricSeries, Values
from dask_efficiency.straggler.peers import MAD_TO_DEVIATION

#: Samples are averaged over so many seconds, if they are not further apart.
STEP_SECONDS = 5.0

#: How long it may take until a fault shows in full, in seconds.
_RAMPS = (5.0, 15.0, 30.0, 45.0, 60.0)

#: An onset is looked for so many seconds before and after where it is thought to be, and compared with so many.
_REACH_SECONDS = 75.0
_COMPARED_SECONDS = 150.0

#: No step counts for more than so many deviations, so that a burst does not pass for a change.
_MAX_STEP = 10.0

#: Swings below this share of the usual ones count as that much.
_MIN_SWINGS = 0.01


def onset(series: MetricSeries, peers: Values, worker: int, begin: int, signals: Sequence[tuple[str, str]]) -> float:
    """When a worker began to be an outlier, in seconds since the first sample.

    A change from one value to another, over some seconds, is fitted to all signals; it is the same in time for all.

    Parameters
    ----------
    series
        Of all comparable workers.
    peers
        Shape (metrics, samples): their median at each sample.
    worker, begin
        Its position, and the sample at which it is thought to have begun; 0 for what was there from the beginning.
    signals
        Metrics that it is an outlier in, and of each whether it is the ``level`` or the ``swings``.
    """
    if begin == 0:
        return 0.0
    each = max(1, round(STEP_SECONDS / series.step_seconds))
    step = each * series.step_seconds
    compared = round(_COMPARED_SECONDS / step) * each
    first = max(begin - compared, 0)
    steps = []
    for metric, kind in signals:
        j = series.metrics.index(metric)
        part = slice(first, min(begin + compared, peers.shape[1]))
        differs = series.values[j, worker, part] - peers[j, part]
        steps.append(_swings(differs, each) if kind == "swings" else _means(differs, each))
    return first * series.step_seconds + step * _change(np.array(steps), (begin - first) // each, step)


def _means(samples: Values, each: int) -> NDArray[np.float64]:
    """The means of so many samples; where all of them are missing, what it was before."""
    parts = samples[: len(samples) // each * each].reshape(-1, each).astype(np.float64)
    known = np.isfinite(parts)
    counts = known.sum(axis=1)
    means = np.where(known, parts, 0).sum(axis=1) / np.maximum(counts, 1)
    last = np.maximum.accumulate(np.where(counts > 0, np.arange(len(means)), 0))
    return np.asarray(means[last], np.float64)


def _swings(samples: Values, each: int) -> NDArray[np.float64]:
    """The logarithms of the mean squared change from one sample to the next, to which the level does not matter."""
    squares = _means(np.diff(samples, prepend=samples[:1]) ** 2, each)
    some = squares[squares > 0]
    return np.log(np.maximum(squares, _MIN_SWINGS * np.median(some))) if len(some) else np.zeros(len(squares))


def _change(rows: NDArray[np.float64], guess: int, step: float) -> float:
    """The step from which on the rows change, near a guess: the mean of all that are likely, and of all ramps."""
    steps = np.arange(rows.shape[1])
    reach = round(_REACH_SECONDS / step)
    starts = np.arange(max(guess - reach, 1), min(guess + reach, len(steps) - 2))
    if not len(starts):
        return guess
    noise = MAD_TO_DEVIATION * np.median(np.abs(np.diff(rows, axis=1)), axis=1, keepdims=True)
    scaled = (rows - np.median(rows, axis=1, keepdims=True)) / np.where(noise > 0, noise, np.inf)
    scaled = np.clip(scaled, -_MAX_STEP, _MAX_STEP)
    ramps = np.maximum(np.array(_RAMPS) / step, 1)
    shapes = np.clip((steps + 0.5 - starts[:, None, None]) / ramps[:, None], 0, 1)
    shapes -= shapes.mean(axis=2, keepdims=True)
    shapes /= np.sqrt((shapes**2).sum(axis=2, keepdims=True))
    explained = ((shapes @ scaled.T) ** 2).sum(axis=2)
    likely = np.exp((explained - explained.max()) / 2)
    return float((likely.sum(axis=1) * starts).sum() / likely.sum())
