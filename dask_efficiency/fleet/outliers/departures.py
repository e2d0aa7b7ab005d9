"""Departures: how far workers are from their own past and from their peers, for most of each stretch of time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.fleet.outliers.block_signals import BlockSignals, evenly, median_of_last
from dask_efficiency.fleet.outliers.metric_series import KINDS, Values
from dask_efficiency.straggler.peers import MAD_TO_DEVIATION

#: Least length of a worker's past in seconds; a guess.
MIN_PAST_SECONDS = 120.0

#: A past this long is a baseline by its quantile of 0.95. A burst may fill a shorter one, so the worker must also leave
#: the range that its peers keep lastingly, two standard deviations of their lasting differences. Guesses.
SURE_PAST_SECONDS = 270.0
SURE_SHARE = 0.95
LASTING_RANGE = 2.0

#: Deviations that the least change that matters counts at least.
MIN_DEVIATIONS = 3.0

#: Blocks for which the usual spread of all workers counts where a worker's own is known from a few: as many as nearly
#: four minutes have. Tuned on ``benchmarks.stragglers_stillness``'s tune seeds.
SPREAD_PRIOR = 16

#: Deviations of its mean below which a stretch is not looked at any closer; saves time.
_MIN_MEAN = 1.5

#: Most deviations that a block counts in that first look.
_MAX_BLOCK = 5.0


@dataclass(frozen=True, slots=True)
class Baseline:
    """Usual figures of each worker in its history.

    Parameters
    ----------
    kept
        Shape (signals, workers): the median difference from the peers; NaN if a worker, or a metric, has no history.
    levels, spread, least
        By signal, the level of the peers then, the standard deviation of a worker over time, and the least change that
        matters.
    own
        Shape (signals, workers): the standard deviation of each worker over time. One that is noisier than others, as
        with an exporter that is refreshed less often than the job takes for a step, must go further from its past.
    slopes, centres
        Shapes (metrics, workers, 1) and (metrics, 1): change of the difference by the peers' level, and the latter's
        mean, see :func:`_slopes`.
    """

    kept: Values
    levels: Values
    spread: Values
    least: Values
    own: Values
    slopes: Values
    centres: Values


@dataclass(frozen=True, slots=True)
class Departures:
    """Distances of workers from their past, by stretch of blocks.

    Parameters
    ----------
    squares
        Shape (workers, stretches): the sum over the signals of the squared deviation that a worker keeps for the share
        of the stretch.
    starts
        By stretch, its first block.
    signal, worker, stretch, deviation
        The terms of these sums.
    """

    squares: Values
    starts: NDArray[np.intp]
    signal: NDArray[np.intp]
    worker: NDArray[np.intp]
    stretch: NDArray[np.intp]
    deviation: Values


def departures(
    signals: BlockSignals, worse: NDArray[Any], past: Baseline | None, *, length: int, share: float
) -> Departures | None:
    """Distances of workers from their past for a share of each stretch of blocks; None without any stretch.

    Parameters
    ----------
    worse
        By signal, which way it is worse: 1, -1, or 0 where any difference counts.
    past
        Usual figures of the workers' history; without it, a stretch is compared with the part of the window before it.
    length, share
        Length of a stretch in blocks; and share of it for which a worker must be away.
    """
    count = signals.differences.shape[2]
    shortest = round(MIN_PAST_SECONDS / signals.block_seconds) - 1
    starts = np.arange(0 if past is not None else shortest, count - length + 1)
    if not len(starts):
        return None
    usual = signals.usual()
    spread, least = signals.spread_over_time(usual), signals.least
    if past is not None:  # a window in which the job has halted is quieter than what came before
        spread, least = np.fmax(spread, past.spread), np.fmax(least, past.least)
    scale = np.maximum(spread, least / np.float32(MIN_DEVIATIONS))
    scale = np.where(scale > 0, scale, np.float32(np.inf))[:, None]
    away = np.asarray((signals.differences - usual[:, :, None]) / scale[:, :, None], np.float32)
    absent = np.isnan(away)
    away[absent] = 0
    usual = np.asarray(usual / scale, np.float32)
    chance = 4 * (spread / scale[:, 0]) ** 2 / count
    between = MAD_TO_DEVIATION * np.median(np.abs(usual), axis=1)
    lasting = np.asarray(LASTING_RANGE * np.sqrt(np.maximum(between**2 - chance, 0)), np.float32)
    none = np.full(usual.shape, np.nan, np.float32)
    kept = none if past is None else np.asarray(past.kept / scale, np.float32)
    own = np.zeros_like(usual) if past is None else np.asarray(np.nan_to_num(past.own / scale), np.float32)
    slopes, centres = _slopes(signals, starts) if past is None else (past.slopes, past.centres)
    if past is None:
        slopes *= (starts / (starts + SPREAD_PRIOR)).astype(np.float32)
    first = _first_look(away, usual, kept, starts, shortest, length)
    moved = _moved(away, usual, kept, starts, length)
    worse = worse[:, None, None]
    signal, worker, stretch = np.nonzero(np.where(worse == 0, np.abs(first), worse * first) > _MIN_MEAN)
    sign = np.asarray(np.sign(first[signal, worker, stretch]), np.float32)
    spare = length - math.ceil(share * length - 1e-9)
    far = np.zeros(len(signal), np.float32)
    order = np.argsort(stretch, kind="stable")
    for rows in np.split(order, np.searchsorted(stretch[order], np.arange(1, len(starts)))):
        if len(rows):
            at = signal[rows], worker[rows]
            number = int(stretch[rows[0]])
            begin = int(starts[number])
            followed = np.zeros((len(rows), length), np.float32)
            level, column = at[0] < len(signals.means), 0 if past is not None else number
            metric, of = (one[level] for one in at)
            change = signals.means[metric, begin : begin + length] - centres[metric, column, None]
            followed[level] = slopes[metric, of, column, None] * change / scale[metric]
            far[rows] = _deviation(
                (away[at] + usual[at][:, None]) * sign[rows, None],
                absent[at],
                kept[at] * sign[rows],
                _levels(signals, past, begin, length)[at[0]],
                lasting[at[0]],
                moved[at[0], number],
                own[at],
                followed * sign[rows, None],
                start=begin,
                length=length,
                spare=spare,
                shortest=shortest,
                sure=round(SURE_PAST_SECONDS / signals.block_seconds),
            )
    squares = np.zeros(first.shape[1:], np.float32)
    np.add.at(squares, (worker, stretch), far**2)
    return Departures(squares, starts, signal, worker, stretch, far)


def past_of(signals: BlockSignals) -> Baseline:
    """Usual figures of these signals of workers' history; NaN where it is too short."""
    known = np.isfinite(signals.differences).sum(axis=2)
    enough = known * signals.block_seconds >= MIN_PAST_SECONDS
    usual = signals.usual()
    kept = np.asarray(np.where(enough, usual, np.nan), np.float32)
    own = MAD_TO_DEVIATION * median_of_last(np.abs(signals.differences - usual[:, :, None]))
    slopes, centres = _slopes(signals, np.array([signals.differences.shape[2]]))
    levels = median_of_last(signals.levels)
    return Baseline(kept, levels, signals.spread_over_time(usual), signals.least, own, slopes, centres)


def _slopes(signals: BlockSignals, ends: NDArray[np.intp]) -> tuple[Values, Values]:
    """Change of each worker's difference by the peers' level, in the blocks before each end; and their mean level.

    A machine that follows the job's rhythm less than others is above them whenever they wait: when all come to wait for
    a faulty one, it would seem to be one.

    Returns
    -------
    slopes, array, shape (metrics, workers, ends)
        By least squares; 0 where the peers' level varies by less than matters: nothing follows from that.
    levels, array, shape (metrics, ends)
    """
    metrics = len(signals.floor)
    level = signals.means.astype(np.float64)
    level_of_all = level.mean(axis=1, keepdims=True)
    level -= level_of_all
    differs = np.nan_to_num(signals.differences[:metrics] - signals.usual()[:metrics, :, None])

    def until(values: NDArray[np.float64]) -> NDArray[np.float64]:
        sums = np.cumsum(values, axis=-1)[..., np.maximum(ends - 1, 0)]
        return np.asarray(np.where(ends > 0, sums, 0))

    counts = np.maximum(ends, 1)
    means, products = until(level) / counts, until(level[:, None] * differs)
    shared = until(level**2) - counts * means**2
    shared[shared <= counts * (signals.least[:metrics, None] / MIN_DEVIATIONS) ** 2] = 0
    together = products - means[:, None] * until(differs.astype(np.float64))
    with np.errstate(invalid="ignore", divide="ignore"):
        slopes = np.where(shared[:, None] > 0, together / shared[:, None], 0.0)
    return np.asarray(slopes, np.float32), np.asarray(means + level_of_all, np.float32)


def _first_look(
    away: Values, usual: Values, kept: Values, starts: NDArray[np.intp], shortest: int, length: int
) -> Values:
    """Approximate distance of each stretch's mean from that of the past; 0 if a worker's past is too short."""
    sums = np.zeros((*away.shape[:2], away.shape[2] + 1), np.float32)
    np.cumsum(np.clip(away, -_MAX_BLOCK, _MAX_BLOCK), axis=2, out=sums[:, :, 1:])
    before = sums[:, :, starts] / np.maximum(starts, 1).astype(np.float32)
    before[:, :, starts < shortest] = np.nan
    known = np.isfinite(kept)
    if known.any():
        before[known] = np.clip(kept - usual, -_MAX_BLOCK, _MAX_BLOCK)[known][:, None]
    means = (sums[:, :, starts + length] - sums[:, :, starts]) / np.float32(length)
    return np.asarray(np.nan_to_num(means - before, copy=False), np.float32)


def _moved(away: Values, usual: Values, kept: Values, starts: NDArray[np.intp], length: int) -> Values:
    """Usual distance of workers from their past, beyond chance, by signal and stretch.

    Samples taken once in many steps of a job show each machine at another place of its step, and the place drifts:
    machines then differ in ways that change within the hour, and most of them do.
    """
    some = evenly(away.shape[1])
    sums = np.zeros((len(away), len(some), away.shape[2] + 1), np.float32)
    np.cumsum(away[:, some], axis=2, out=sums[:, :, 1:])
    means = (sums[:, :, starts + length] - sums[:, :, starts]) / np.float32(length)
    before = sums[:, :, starts] / np.maximum(starts, 1).astype(np.float32)
    known = np.isfinite(kept[:, some])
    before[known] = (kept - usual)[:, some][known][:, None]
    means -= before
    middle = median_of_last(np.abs(means).transpose(0, 2, 1))
    chance = 4 / length + np.where(np.isfinite(kept).any(), 0, 4 / np.maximum(starts, 1))
    far = (MAD_TO_DEVIATION * np.nan_to_num(middle)) ** 2 - chance
    return np.asarray(LASTING_RANGE * np.sqrt(np.maximum(far, 0)), np.float32)


def _levels(signals: BlockSignals, past: Baseline | None, start: int, length: int) -> Values:
    """Level of the peers over that in the past, by signal and block of a stretch."""
    before = median_of_last(signals.levels[:, :start]) if past is None else past.levels
    levels = signals.levels[:, start : start + length] / before[:, None]
    swings = len(levels) // len(KINDS)
    np.minimum(levels[swings:], 1, out=levels[swings:])  # differences of logarithms do not grow with what they are of
    return np.asarray(np.nan_to_num(levels, nan=1.0), np.float32)


def _deviation(
    rows: Values,
    absent: NDArray[np.bool_],
    kept: Values,
    levels: Values,
    lasting: Values,
    moved: Values,
    own: Values,
    followed: Values,
    *,
    start: int,
    length: int,
    spare: int,
    shortest: int,
    sure: int,
) -> Values:
    """Distance of workers beyond the usual one, for all blocks of a stretch except the spare ones.

    Parameters
    ----------
    rows
        Shape (rows, blocks): differences from the peers, with the sign that makes more further away; the usual one
        where a worker was absent.

    Notes
    -----
    When all workers do less, because one is slow or the job halts, a machine's lasting difference shrinks in
    proportion, or stays. Only a distance that neither explains is a departure.
    """
    stretch = np.where(absent, -np.inf, rows)[:, start : start + length]

    def beyond(base: Values) -> Values:
        expected = base[:, None] + np.maximum(np.maximum(0, base[:, None] * (levels - 1)), followed)
        return np.asarray(np.partition(stretch - expected, spare, axis=1)[:, spare], np.float32)

    known = np.isfinite(kept)
    result = np.zeros(len(rows), np.float32)
    if known.any():
        result[known] = ((beyond(np.where(known, kept, 0)) - moved) / np.maximum(own, 1))[known]
    judged = ~known & ((~absent[:, :start]).sum(axis=1) >= shortest)
    if judged.any():
        before = np.sort(rows[:, :start], axis=1)
        found = np.minimum(beyond(before[:, start // 2]) - moved, beyond(np.zeros_like(kept)) - lasting)
        if start >= sure:
            found = np.maximum(found, beyond(before[:, int(SURE_SHARE * (start - 1))]) - moved)
        own = MAD_TO_DEVIATION * np.median(np.abs(rows[:, :start] - before[:, start // 2, None]), axis=1)
        weight = start / (start + SPREAD_PRIOR)
        result[judged] = (found / np.maximum(np.sqrt(weight * own**2 + 1 - weight), 1))[judged]
    return np.asarray(np.maximum(result, 0), np.float32)
