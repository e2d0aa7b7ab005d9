"""Departures: how far workers are from their own past and from their peers, for most of each stretch of time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from dask_efficiency.accounts.tables import Float64
from dask_efficiency.fleet.outliers.block_signals import BLOCK_SECONDS, BlockSignals, evenly
from dask_efficiency.fleet.outliers.metric_series import KINDS, Values
from dask_efficiency.straggler.peers import MAD_TO_DEVIATION, RARELY, THREE_SIGMA, TWO_SIGMA, Places, median

#: Least length of a worker's past in seconds; a guess.
MIN_PAST_SECONDS = 120.0

#: Least seconds for which a worker is an outlier, most of the time: about the four minutes of Minder's paper. A past
#: this long is a baseline by its quantile of 0.95. A burst may fill a shorter one, so the worker must also leave the
#: range that its peers keep lastingly, two standard deviations of their lasting differences. A guess.
CONTINUITY_SECONDS = 270.0
#: Blocks of such a stretch of a metric that is sampled every 5 s or more often: the threshold was chosen for these. The
#: usual spread of all workers counts for as many, where a worker's own is known from a few.
USUAL_BLOCKS = CONTINUITY_SECONDS / BLOCK_SECONDS

#: Least number of blocks in a worker's past. A guess.
MIN_PAST_BLOCKS = 4

#: Chance that a stretch of a signal is beyond by itself; see :func:`few_blocks`. A guess.
_CHANCE = 1e-4

#: Most deviations, and most times a level of the past, that count: a metric that is 0 nearly always has next to no
#: spread, and squares of all that is further away than this would be no numbers.
MAX_DEVIATIONS = 1e6

#: Deviations of its mean below which a stretch is not looked at any closer; saves time.
_MIN_MEAN = 1.5
#: Most deviations that a block counts in that first look, and a step in the search for an onset; a guess.
MAX_CLIPPED = 10.0


@dataclass(frozen=True, slots=True)
class Baseline:
    """Usual figures of each worker in its history."""

    #: Shape (signals, workers): the median difference from the peers; NaN if a worker, or a metric, has no history.
    kept: Values
    #: By signal, the level of the peers then, the standard deviation of a worker over time, and the least change that
    #: matters.
    levels: Values
    spread: Values
    least: Values
    #: Shape (signals, workers): the standard deviation of each worker over time. One that is noisier than others, as
    #: with an exporter that is refreshed less often than the job takes for a step, must go further from its past.
    own: Values
    #: Shapes (metrics, workers, 1) and (metrics, 1): change of the difference by the peers' level, and the latter's
    #: mean, see :func:`_slopes`.
    slopes: Values
    centres: Values


@dataclass(frozen=True, slots=True)
class Departures:
    """Distances of workers from their past, by stretch of blocks."""

    #: Shape (workers, stretches): the sum over the signals of the squared deviation that a worker keeps for the share
    #: of the stretch.
    squares: Values
    #: By stretch, its first block.
    starts: Places
    #: The terms of these sums.
    signal: Places
    worker: Places
    stretch: Places
    deviation: Values


def departures(signals: BlockSignals, past: Baseline | None, *, length: int, share: float) -> Departures | None:
    """Distances of workers from their past, or else from the window before, for a share of each stretch of blocks."""
    window = _Window(signals, past, length, spare=length - math.ceil(share * length - 1e-9))
    starts = window.starts
    if not len(starts):
        return None
    first = window.first_look()
    moved = window.moved()
    worse = signals.worse[:, None, None]
    signal, worker, stretch = np.nonzero(np.where(worse == 0, np.abs(first), worse * first) > _MIN_MEAN)
    sign = np.asarray(np.sign(first[signal, worker, stretch]), np.float32)
    far = np.zeros(len(signal), np.float32)
    order = np.argsort(stretch, kind="stable")
    for rows in np.split(order, np.searchsorted(stretch[order], np.arange(1, len(starts)))):
        if len(rows):
            number = int(stretch[rows[0]])
            at = signal[rows], worker[rows]
            far[rows] = window.deviation(*at, sign[rows], number, moved[at[0], number])
    squares = np.zeros(first.shape[1:], np.float32)
    np.add.at(squares, (worker, stretch), far**2)
    return Departures(squares, starts, signal, worker, stretch, far)


class _Window:
    """Differences of a window in units of what is usual, and the figures of the past that they are compared with."""

    def __init__(self, signals: BlockSignals, past: Baseline | None, length: int, *, spare: int) -> None:
        self.signals, self.past, self.length, self.spare = signals, past, length, spare
        count = signals.differences.shape[2]
        self.shortest = least_past_blocks(signals.block_seconds)
        self.margin = few_blocks(length)
        self.starts: Places = np.arange(0 if past is not None else self.shortest, count - length + 1)
        if not len(self.starts):
            return
        usual = signals.usual()
        spread, least = signals.spread_over_time(usual), signals.least
        if past is not None:  # a window in which the job has halted is quieter than what came before
            spread, least = np.fmax(spread, past.spread), np.fmax(least, past.least)
        scale = np.maximum(spread, least / np.float32(THREE_SIGMA))
        self.scale = scale = np.where(scale > 0, scale, np.float32(np.inf))[:, None]
        self.away = _multiples(signals.differences - usual[:, :, None], scale[:, :, None])
        self.absent = np.isnan(self.away)
        self.away[self.absent] = 0
        self.usual = usual = _multiples(usual, scale)
        chance = 4 * (spread / scale[:, 0]) ** 2 / count
        between = MAD_TO_DEVIATION * np.median(np.abs(usual), axis=1)
        self.lasting = np.asarray(TWO_SIGMA * np.sqrt(np.maximum(between**2 - chance, 0)), np.float32)
        if past is None:
            self.kept, self.own = np.full(usual.shape, np.nan, np.float32), np.zeros_like(usual)
            self.slopes, self.centres = _slopes(signals, self.starts)
            self.slopes *= (self.starts / (self.starts + USUAL_BLOCKS)).astype(np.float32)
        else:
            self.kept = _multiples(past.kept, scale)
            self.own = np.nan_to_num(_multiples(past.own, scale))
            self.slopes, self.centres = past.slopes, past.centres

    def first_look(self) -> Values:
        """Approximate distance of each stretch's mean from that of the past; 0 if a worker's past is too short."""
        starts = self.starts
        sums = _sums(np.clip(self.away, -MAX_CLIPPED, MAX_CLIPPED))
        before = sums[:, :, starts] / np.maximum(starts, 1).astype(np.float32)
        before[:, :, starts < self.shortest] = np.nan
        known = np.isfinite(self.kept)
        if known.any():
            before[known] = np.clip(self.kept - self.usual, -MAX_CLIPPED, MAX_CLIPPED)[known][:, None]
        means = (sums[:, :, starts + self.length] - sums[:, :, starts]) / np.float32(self.length)
        return np.asarray(np.nan_to_num(means - before, copy=False), np.float32)

    def moved(self) -> Values:
        """Usual distance of workers from their past, beyond chance, by signal and stretch."""
        # Samples taken once in many steps of a job show each machine at another place of its step, and the place
        # drifts.
        starts, some = self.starts, evenly(self.away.shape[1])
        kept = self.kept[:, some]
        sums = _sums(self.away[:, some])
        means = (sums[:, :, starts + self.length] - sums[:, :, starts]) / np.float32(self.length)
        before = sums[:, :, starts] / np.maximum(starts, 1).astype(np.float32)
        known = np.isfinite(kept)
        before[known] = (kept - self.usual[:, some])[known][:, None]
        np.subtract(means, before, out=means)
        middle = median(np.abs(means).transpose(0, 2, 1))
        chance = 4 / self.length + np.where(np.isfinite(self.kept).any(), 0, 4 / np.maximum(starts, 1))
        far = (MAD_TO_DEVIATION * np.nan_to_num(middle)) ** 2 - chance
        return np.asarray(TWO_SIGMA * np.sqrt(np.maximum(far, 0)), np.float32)

    def deviation(self, signal: Places, worker: Places, sign: Values, number: int, moved: Values) -> Values:
        """Distance of workers, by the sign's way, beyond the usual one, in all blocks of a stretch but the spare ones.

        When all do less, as one is slow or the job halts, a lasting difference shrinks in proportion, or stays: only
        a distance that neither explains is a departure.
        """
        at = signal, worker
        start, length = int(self.starts[number]), self.length
        absent, kept, own = self.absent[at], self.kept[at] * sign, self.own[at]
        rows = (self.away[at] + self.usual[at][:, None]) * sign[:, None]
        stretch = np.where(absent, -np.inf, rows)[:, start : start + length]
        levels, followed = self._levels(start)[signal], self._followed(signal, worker, number) * sign[:, None]

        def beyond(base: Values) -> Values:
            expected = base[:, None] + np.maximum(np.maximum(0, base[:, None] * (levels - 1)), followed)
            return np.asarray(np.partition(stretch - expected, self.spare, axis=1)[:, self.spare], np.float32)

        known = np.isfinite(kept)
        result = np.zeros(len(rows), np.float32)
        if known.any():
            result[known] = ((beyond(np.where(known, kept, 0)) - moved) / np.maximum(own, 1))[known]
        judged = ~known & ((~absent[:, :start]).sum(axis=1) >= self.shortest)
        if judged.any():
            before = np.sort(rows[:, :start], axis=1)
            lasting = self.lasting[signal]
            found = np.minimum(beyond(before[:, start // 2]) - moved, beyond(np.zeros_like(kept)) - lasting)
            if start >= round(CONTINUITY_SECONDS / self.signals.block_seconds):
                found = np.maximum(found, beyond(before[:, int(RARELY * (start - 1))]) - moved)
            own = MAD_TO_DEVIATION * np.median(np.abs(rows[:, :start] - before[:, start // 2, None]), axis=1)
            weight = start / (start + USUAL_BLOCKS)
            result[judged] = (found / np.maximum(np.sqrt(weight * own**2 + 1 - weight), 1))[judged]
        return np.asarray(np.maximum(result - self.margin, 0), np.float32)

    def _levels(self, start: int) -> Values:
        """Level of the peers over that in the past, by signal and block of a stretch."""
        of_peers = self.signals.levels
        before = median(of_peers[:, :start]) if self.past is None else self.past.levels
        levels = _multiples(of_peers[:, start : start + self.length], before[:, None])
        swings = len(levels) // len(KINDS)
        np.minimum(levels[swings:], 1, out=levels[swings:])  # differences of logarithms do not grow with their level
        return np.asarray(np.nan_to_num(levels, nan=1.0), np.float32)

    def _followed(self, signal: Places, worker: Places, number: int) -> Values:
        """Differences that follow from the peers' level, by block of a stretch."""
        means, start = self.signals.means, int(self.starts[number])
        followed = np.zeros((len(signal), self.length), np.float32)
        level, column = signal < len(means), 0 if self.past is not None else number
        metric, of = signal[level], worker[level]
        change = means[metric, start : start + self.length] - self.centres[metric, column, None]
        followed[level] = self.slopes[metric, of, column, None] * _multiples(change, self.scale[metric])
        return followed


def least_past_blocks(block_seconds: float) -> int:
    """Least number of blocks in a worker's past; a block is averaged with its neighbour, so the first adds none."""
    return max(math.ceil(MIN_PAST_SECONDS / block_seconds - 1e-6) - 1, MIN_PAST_BLOCKS)


def least_past_seconds(block_seconds: float) -> float:
    """Least length of a worker's past in seconds, with blocks of this length."""
    return (least_past_blocks(block_seconds) + 1) * block_seconds


def few_blocks(length: int) -> float:
    """Deviations by which all of few blocks are further away by chance than most of the usual number of them.

    Of independent blocks, of which each is averaged with its neighbour. With samples of 15 s there are six.
    """
    few, usual = (-NormalDist().inv_cdf(_CHANCE ** (2 / (count + 1))) for count in (length, USUAL_BLOCKS))
    return max(few - usual, 0.0)


def _multiples(values: Values, units: Values) -> Values:
    with np.errstate(over="ignore"):
        return np.asarray(np.clip(values / units, -MAX_DEVIATIONS, MAX_DEVIATIONS), np.float32)


def _sums(values: Values) -> Values:
    """Sums of the blocks before each block, and of all."""
    sums = np.zeros((*values.shape[:2], values.shape[2] + 1), np.float32)
    np.cumsum(values, axis=2, out=sums[:, :, 1:])
    return sums


def past_of(signals: BlockSignals) -> Baseline:
    """Usual figures of these signals of workers' history; NaN where it is too short."""
    known = np.isfinite(signals.differences).sum(axis=2)
    enough = known * signals.block_seconds >= MIN_PAST_SECONDS
    usual = signals.usual()
    kept = np.asarray(np.where(enough, usual, np.nan), np.float32)
    own = np.float32(MAD_TO_DEVIATION) * median(np.abs(signals.differences - usual[:, :, None]))
    slopes, centres = _slopes(signals, np.array([signals.differences.shape[2]]))
    levels = median(signals.levels)
    return Baseline(kept, levels, signals.spread_over_time(usual), signals.least, own, slopes, centres)


def _slopes(signals: BlockSignals, ends: Places) -> tuple[Values, Values]:
    """Change of each worker's difference by the peers' level, in the blocks before each end; and their mean level.

    A machine that follows the job's rhythm less is above the others whenever they wait. By least squares, of shape
    (metrics, workers, ends), and 0 where the peers' level varies by less than matters.
    """
    metrics = len(signals.floor)
    level = signals.means.astype(np.float64)
    level_of_all = level.mean(axis=1, keepdims=True)
    level -= level_of_all
    differs = np.nan_to_num(signals.differences[:metrics] - signals.usual()[:metrics, :, None])

    def until(values: Float64) -> Float64:
        sums = np.cumsum(values, axis=-1)[..., np.maximum(ends - 1, 0)]
        return np.asarray(np.where(ends > 0, sums, 0))

    counts = np.maximum(ends, 1)
    means, products = until(level) / counts, until(level[:, None] * differs)
    shared = until(level**2) - counts * means**2
    shared[shared <= counts * (signals.least[:metrics, None] / THREE_SIGMA) ** 2] = 0
    together = products - means[:, None] * until(differs.astype(np.float64))
    with np.errstate(invalid="ignore", divide="ignore"):
        slopes = np.where(shared[:, None] > 0, together / shared[:, None], 0.0)
    return np.asarray(slopes, np.float32), np.asarray(means + level_of_all, np.float32)
