"""BlockSignals: each worker's difference from its peers in blocks of time, as level and as swings of each metric."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.slow_worker import WRONG_BY_METRICS, SlowWorker
from dask_efficiency.fleet.outliers.metric_series import (
    KINDS,
    MetricSeries,
    Values,
    evidence_of,
    finding_of,
    least_change,
)
from dask_efficiency.straggler.peers import MAD_TO_DEVIATION, MEAN_TO_DEVIATION, median

#: Length of a block in seconds, the usual scrape interval of Prometheus, and its least number of samples.
BLOCK_SECONDS = 15.0
BLOCK_SAMPLES = 3
#: Workers that the median at an instant is taken of; of more, this many are taken evenly; bounds time.
MAX_PEERS = 129

#: Noise below this share of the least change that matters counts as that much, so that no metric that is nearly
#: constant swings. A guess.
_MIN_NOISE = 0.15

#: Least change that matters of a logarithm of variances, or of squared changes: swings and movement 1.4 times as large,
#: or as small. Where most swings are below what is noticed, they hardly differ, and the least of them would seem far.
_MIN_LOG = math.log(2)

#: Quantile of a metric's level that counts as its usual one: below it lie blocks in which a job has halted. A guess.
_USUAL_LEVEL = 0.75
#: Share of a metric's mean size that its usual level is at least: a metric that is 0 nearly always has changes, too,
#: that do not matter. A guess.
_RARE_LEVEL = 0.1

_TINY = np.finfo(np.float32).tiny


@dataclass(frozen=True, slots=True)
class BlockSignals:
    """Differences of comparable workers from their peers by block: of all metrics, levels, then swings, then movements.

    Swings are logarithms of the variance of a worker's difference from its peers: a fault that adds noise raises them.
    Movements are mean logarithms of its own squared changes from one block to the next: a process that hangs, or an
    exporter that is stuck, no longer follows the job's step, often at its own mean.
    """

    series: MetricSeries
    #: Shape (3 x metrics, workers, blocks), each block averaged with its neighbour, so that changes within a minute
    #: cancel; NaN where a worker was absent.
    differences: Values
    #: Shape (3 x metrics, blocks): the peers' median level, NaN for metrics that are not positive all the time; then
    #: their median variance and squared change.
    levels: Values
    #: By signal, the least change that matters; and by metric, the least variance that is assumed.
    least: Values
    floor: Values
    #: Shape (metrics, samples): the median of the peers at each sample; and by block its mean, 0 where nobody was.
    peers: Values
    means: Values

    @property
    def block_samples(self) -> int:
        """Number of samples in a block."""
        return block_samples(self.series)

    @property
    def block_seconds(self) -> float:
        """Length of a block."""
        return self.block_samples * self.series.step_seconds

    def name(self, signal: int) -> tuple[str, str]:
        """Metric of a signal, and which of :data:`KINDS` it is."""
        kind, metric = divmod(signal, len(self.series.metrics))
        return self.series.metrics[metric], KINDS[kind]

    @property
    def worse(self) -> NDArray[np.int64]:
        """Which way each signal is worse: 1, -1, or 0 where any difference counts."""
        levels = [self.series.meaning(name).worse for name in self.series.metrics]
        return np.array(levels + [1] * len(levels) + [-1] * len(levels))

    def usual(self) -> Values:
        """Median over time, by signal and worker; 0 if the worker was never present."""
        return np.asarray(np.nan_to_num(median(self.differences)), np.float32)

    def spread_over_time(self, usual: Values) -> Values:
        """Standard deviation of a worker about its own median, by signal."""
        some = evenly(self.differences.shape[1])
        away = np.abs(np.nan_to_num(self.differences[:, some] - usual[:, some, None]))
        spread = MAD_TO_DEVIATION * np.median(away.reshape(len(away), -1), axis=1)
        for signal in np.flatnonzero(spread == 0):  # as with errors, of which hardly anybody has any
            every = np.nan_to_num(self.differences[signal] - usual[signal, :, None])
            spread[signal] = MEAN_TO_DEVIATION * np.abs(every).mean()
        return np.asarray(spread, np.float32)

    def finding(
        self, worker: int, start: int, parts: Values, score: float, wrong: float = WRONG_BY_METRICS
    ) -> SlowWorker:
        """Finding of a worker from a sample on, with its strongest signals, by what each contributes to the score."""
        evidence = []
        for signal in strongest(parts):
            metric, kind = self.name(signal)
            z = float(parts[signal])
            evidence.append(evidence_of(self.series, metric, worker, start, z, kind, self.peers))
        return finding_of(self.series, worker, start, score, evidence, wrong=wrong)


#: Share of the strongest signal below which a signal is no evidence; a guess.
MIN_WEIGHT = 0.3
#: Most signals of a finding. A guess.
MAX_EVIDENCE = 5


def strongest(parts: Values) -> list[int]:
    """Signals that are evidence, by what each contributes to a worker's score; the strongest first."""
    order = np.argsort(-parts, kind="stable").tolist()
    return [signal for signal in order if parts[signal] >= MIN_WEIGHT * parts[order[0]]][:MAX_EVIDENCE]


def evenly(workers: int) -> NDArray[np.intp]:
    """Positions of the workers that a median is taken of."""
    return np.unique(np.linspace(0, workers - 1, min(workers, MAX_PEERS)).astype(np.intp))


def block_samples(series: MetricSeries) -> int:
    """Number of samples in a block."""
    return max(BLOCK_SAMPLES, round(BLOCK_SECONDS / series.step_seconds))


def block_signals(series: MetricSeries, *, floor: Values | None = None) -> BlockSignals:
    """Signals of comparable workers; with the floor of others, to compare them with those."""
    each = block_samples(series)
    values = series.values[:, :, : series.values.shape[2] // each * each]
    peers = evenly(values.shape[1])
    usual = median(values[:, peers], 1, keepdims=True)
    levels = median(usual.reshape(len(values), -1, each))
    ordered = np.sort(np.abs(levels), axis=1)
    usual_levels = ordered[:, int(_USUAL_LEVEL * (ordered.shape[1] - 1))]
    least = least_change(series, np.fmax(usual_levels, _RARE_LEVEL * _mean_size(values[:, peers])))
    means, variances = _moments(values - usual, each)
    if floor is None:
        noise = np.nan_to_num(median(variances.reshape(len(variances), -1)))
        floor = np.maximum.reduce([(_MIN_NOISE * least) ** 2, 1e-3 * noise, np.full_like(noise, _TINY)])
    logs = np.log(np.maximum(variances, floor[:, None, None]))
    signals = np.concatenate([means, logs, _movements(values, floor, each)])
    middle = median(signals[:, peers], 1, keepdims=True)
    signals -= middle
    level = np.nan_to_num(usual[:, 0]).reshape(len(values), -1, each).mean(axis=2)
    levels[~((levels > 0) | np.isnan(levels)).all(axis=1)] = np.nan
    levels = np.concatenate([levels, np.exp(middle[len(values) :, 0])])
    return BlockSignals(
        series,
        _with_neighbour(signals),
        (levels[:, 1:] + levels[:, :-1]) * np.float32(0.5),
        np.concatenate([least, np.full_like(least, _MIN_LOG), np.full_like(least, _MIN_LOG)]),
        floor,
        usual[:, 0],
        (level[:, 1:] + level[:, :-1]) * np.float32(0.5),
    )


def _mean_size(values: Values) -> Values:
    """Mean absolute value by metric; 0 where nothing is known."""
    size = np.abs(values)
    known = np.isfinite(size)
    sums = np.where(known, size, np.float32(0)).sum(axis=(1, 2))
    return np.asarray(sums / np.maximum(known.sum(axis=(1, 2)), 1), np.float32)


def _moments(differs: Values, each: int) -> tuple[Values, Values]:
    """Mean and variance by block, of differences of shape (metrics, workers, samples), which are overwritten."""
    # Products with a matrix of zeros and ones are several times faster than sums over short axes.
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


def _movements(values: Values, floor: Values, each: int) -> Values:
    """Mean logarithm by block of squared changes since one block before; the first block repeats the second."""
    # A metric may be refreshed only every 15 s; and a mean of squares would not tell a few large changes from many.
    changes = np.empty_like(values)
    np.subtract(values[:, :, each:], values[:, :, :-each], out=changes[:, :, each:])
    changes[:, :, :each] = changes[:, :, each : 2 * each]
    np.square(changes, out=changes)
    np.log(np.maximum(changes, floor[:, None, None], out=changes), out=changes)
    blocks = changes.reshape(*values.shape[:2], -1, each)
    known = np.isfinite(blocks)
    counts = known.sum(axis=3)
    sums = np.where(known, blocks, np.float32(0)).sum(axis=3)
    return np.asarray(np.where(counts >= BLOCK_SAMPLES, sums / np.maximum(counts, 1), np.nan), np.float32)


def _with_neighbour(signals: Values) -> Values:
    """Mean of each two neighbouring blocks, or the known one of them."""
    first, second = signals[:, :, :-1], signals[:, :, 1:]
    mean = (first + second) * np.float32(0.5)
    missing = np.isnan(mean)
    if missing.any():
        mean[missing] = np.where(np.isnan(first), second, first)[missing]
    return np.asarray(mean, np.float32)
