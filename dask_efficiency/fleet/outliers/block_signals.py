"""Block signals: each worker's difference from its peers, in blocks of time, as level and as swings of each metric."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.fleet.outliers.metric_series import MetricSeries, Values, least_change
from dask_efficiency.straggler.peers import MAD_TO_DEVIATION

#: Samples are averaged in blocks of so many seconds, and of this many samples at least.
BLOCK_SECONDS = 15.0
BLOCK_SAMPLES = 3

#: How many workers the median at an instant is taken of; of more workers, so many are taken evenly.
MAX_PEERS = 129

#: Noise of less than this share of the least effect that matters is taken for that much, so that no metric that is
#: nearly constant swings.
_MIN_NOISE = 0.15

#: The least change of a logarithm of variances that matters: swings that are 1.4 times as large. Where most swings are
#: below what is noticed, they hardly differ, and the least of them would seem to be far out.
_MIN_SWINGS = math.log(2)

#: The share of the blocks in which a metric's level is no higher than the usual one: a job that has halted has none.
_USUAL_LEVEL = 0.75

_TINY = np.finfo(np.float32).tiny

#: From the mean of absolute deviations to a standard deviation, for a normal distribution.
_MEAN_TO_DEVIATION = 1.2533


@dataclass(frozen=True, slots=True)
class BlockSignals:
    """Differences from the peers by block; first the levels of all metrics, then the logarithms of their variances.

    Parameters
    ----------
    differences
        Shape (2 x metrics, workers, blocks), each block with half of its neighbour, so that what goes on and off
        within a minute stays away; NaN where a worker was absent.
    levels
        Shape (2 x metrics, blocks): the median level of the peers, and the median variance; NaN for metrics that are
        not positive all the time.
    least
        By signal, the effect that matters.
    block_seconds
        Length of a block.
    floor
        By metric, the variance below which all count as that much.
    peers
        Shape (metrics, samples): the median of the peers at each sample.
    """

    differences: Values
    levels: Values
    least: Values
    block_seconds: float
    floor: Values
    peers: Values

    def usual(self) -> Values:
        """By signal and worker, the median over time; 0 where the worker was never there."""
        return np.asarray(np.nan_to_num(median_of_last(self.differences)), np.float32)

    def spread_over_time(self, usual: Values) -> Values:
        """By signal, the standard deviation of a worker about its own median."""
        some = evenly(self.differences.shape[1])
        away = np.abs(np.nan_to_num(self.differences[:, some] - usual[:, some, None]))
        spread = MAD_TO_DEVIATION * np.median(away.reshape(len(away), -1), axis=1)
        for signal in np.flatnonzero(spread == 0):  # as of errors, where hardly anybody has any
            every = np.nan_to_num(self.differences[signal] - usual[signal, :, None])
            spread[signal] = _MEAN_TO_DEVIATION * np.abs(every).mean()
        return np.asarray(spread, np.float32)


def evenly(workers: int) -> NDArray[np.intp]:
    """Positions of the workers that a median is taken of."""
    return np.unique(np.linspace(0, workers - 1, min(workers, MAX_PEERS)).astype(np.intp))


def block_samples(series: MetricSeries) -> int:
    """How many samples make a block."""
    return max(BLOCK_SAMPLES, round(BLOCK_SECONDS / series.step_seconds))


def block_signals(series: MetricSeries, *, floor: Values | None = None) -> BlockSignals:
    """The signals of comparable workers; with the floor of others, if they are to be compared with those."""
    each = block_samples(series)
    values = series.values[:, :, : series.values.shape[2] // each * each]
    peers = evenly(values.shape[1])
    usual = median_of_workers(values[:, peers])
    levels = median_of_last(usual.reshape(len(values), -1, each))
    ordered = np.sort(np.abs(levels), axis=1)
    least = least_change(series, ordered[:, int(_USUAL_LEVEL * (ordered.shape[1] - 1))])
    means, variances = _moments(values - usual, each)
    if floor is None:
        noise = np.nan_to_num(median_of_last(variances.reshape(len(variances), -1)))
        floor = np.maximum.reduce([(_MIN_NOISE * least) ** 2, 1e-3 * noise, np.full_like(noise, _TINY)])
    signals = np.concatenate([means, np.log(np.maximum(variances, floor[:, None, None]))])
    middle = median_of_workers(signals[:, peers])
    signals -= middle
    levels[~((levels > 0) | np.isnan(levels)).all(axis=1)] = np.nan
    levels = np.concatenate([levels, np.exp(middle[len(values) :, 0])])
    return BlockSignals(
        _with_neighbour(signals),
        (levels[:, 1:] + levels[:, :-1]) * np.float32(0.5),
        np.concatenate([least, np.full_like(least, _MIN_SWINGS)]),
        each * series.step_seconds,
        floor,
        usual[:, 0],
    )


def _moments(differs: Values, each: int) -> tuple[Values, Values]:
    """By block, the mean and the variance of differences of shape (metrics, workers, samples).

    Notes
    -----
    The sums are products with a matrix of zeros and ones, which is several times faster than sums over short axes.
    """
    metrics, workers, samples = differs.shape
    count = samples // each
    differs = differs.reshape(metrics * workers, -1)
    known = np.isfinite(differs)
    whole = bool(known.all())
    if not whole:
        differs[~known] = 0
    belongs = np.repeat(np.eye(count, dtype=np.float32), each, axis=0)
    numbers = np.full((1, count), each, np.float32) if whole else known.astype(np.float32) @ belongs
    least = np.maximum(numbers, 1)
    means = (differs @ belongs) / least
    np.square(differs, out=differs)
    variances = np.maximum((differs @ belongs) / least - means**2, 0)
    if not whole:
        means[numbers < BLOCK_SAMPLES] = variances[numbers < BLOCK_SAMPLES] = np.nan
    shape = (metrics, workers, count)
    return means.reshape(shape), variances.reshape(shape)


def _with_neighbour(signals: Values) -> Values:
    """The mean of each two neighbouring blocks, or what is known of them."""
    first, second = signals[:, :, :-1], signals[:, :, 1:]
    mean = (first + second) * np.float32(0.5)
    missing = np.isnan(mean)
    if missing.any():
        mean[missing] = np.where(np.isnan(first), second, first)[missing]
    return np.asarray(mean, np.float32)


def median_of_workers(values: Values) -> Values:
    """The median over the workers, of shape (metrics, 1, instants); NaN where nobody was there."""
    return _median(values, 1)


def _median(values: Values, axis: int) -> Values:
    ordered = np.sort(values, axis=axis)  # what is missing comes last
    known = np.isfinite(values).sum(axis=axis, keepdims=True)
    low = np.take_along_axis(ordered, np.maximum((known - 1) // 2, 0), axis=axis)
    high = np.take_along_axis(ordered, np.minimum(known // 2, values.shape[axis] - 1), axis=axis)
    return np.asarray((low + high) / 2, np.float32)


def median_of_last(values: NDArray[np.float32]) -> Values:
    """The median over the last axis of what is known; NaN where nothing is."""
    if not values.shape[-1]:
        return np.full(values.shape[:-1], np.nan, np.float32)
    return _median(values, -1)[..., 0]
