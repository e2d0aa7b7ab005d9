"""Outliers: workers whose metrics stay at another level than those of their peers for minutes, or swing more."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.straggler.finding import Finding
from dask_efficiency.straggler.lasting import independent
from dask_efficiency.straggler.metric_series import (
    MetricSeries,
    Values,
    evidence_of,
    finding_of,
    metric_series_of,
    worse_direction,
)
from dask_efficiency.straggler.peers import MAD_TO_DEVIATION, MIN_PEERS

if TYPE_CHECKING:
    import pandas as pd

    from dask_efficiency.trace.run_trace import TraceTables

#: Samples are averaged in blocks of so many seconds, and of this many samples at least.
BLOCK_SECONDS = 15.0
BLOCK_SAMPLES = 3

#: How many workers the median at an instant is taken of; of more workers, so many are taken evenly.
MAX_PEERS = 129

#: A worker's own level is what it keeps in all blocks but this share of the lowest and of the highest. Up to so many
#: deviations of it are a difference between machines, and no fault.
OWN_SHARE = 0.1
MAX_OWN = 1.5

#: A stretch is not looked at any closer if its mean is less than this many deviations away.
_MIN_MEAN = 0.8

#: A faulty machine slows its peers: those that become outliers within this time after it are its victims.
FOLLOW_SECONDS = 120.0

#: Signals that are weaker than this share of the strongest are no evidence.
_MIN_WEIGHT = 0.3

#: Signals of a finding, at most.
MAX_EVIDENCE = 5


@dataclass(frozen=True, slots=True)
class OutlierScores:
    """How far workers are from their peers, in the stretch in which each is furthest.

    Parameters
    ----------
    signals
        The metric, and whether it is its ``level`` or its ``swings``.
    scores
        By worker, as multiples of what chance brings among so many workers and signals without a fault.
    begins
        By worker, the first block of the first stretch in which it is at least half as far.
    parts
        Shape (signals, workers): what each signal contributes, in deviations.
    """

    signals: tuple[tuple[str, str], ...]
    scores: NDArray[np.float32]
    begins: NDArray[np.intp]
    parts: Values


def find_outliers(
    run: MetricSeries | TraceTables | pd.DataFrame,
    *,
    threshold: float = 0.8,
    continuity_seconds: float = 270.0,
    share: float = 0.85,
    dominance: float = 0.5,
) -> list[Finding]:
    """Workers whose metrics stay away from those of their peers.

    Parameters
    ----------
    run
        A recorded run; or a table with the columns ``at`` (seconds) and ``worker``, optionally ``group`` and ``host``,
        and one column for each metric.
    threshold
        The :attr:`OutlierScores.scores` above which a worker is an outlier.
    continuity_seconds, share
        For how long a worker must be an outlier, and for how much of that time, in (0, 1]. By default it is about four
        minutes of four and a half.
    dominance
        Workers that score less than this share of the highest score are taken for its victims, in [0, 1]. So are those
        that become outliers within two minutes after another worker did, and those that do so right after one that
        scores more.

    Returns
    -------
    list
        The most certain first; empty for a run that is shorter than the continuity asks for, and where fewer than three
        workers are comparable. The effect and the time lost of each are None, as metrics do not tell how much longer
        the work takes.

    Raises
    ------
    ValueError
        If there is no sample, or an option is not in its range.
    """
    if not (threshold > 0 and continuity_seconds > 0 and 0 < share <= 1 and 0 <= dominance <= 1):
        raise ValueError(
            f"threshold {threshold!r}, continuity_seconds {continuity_seconds!r}, share {share!r}, "
            f"dominance {dominance!r}; expected positive numbers, and shares of at most 1"
        )
    findings = []
    for group in metric_series_of(run).comparable():
        found = outlier_scores(group, continuity_seconds=continuity_seconds, share=share)
        if found is not None:
            named = culprits(group, found, threshold=threshold, dominance=dominance)
            findings += [_finding(group, found, worker, threshold) for worker in named.tolist()]
    return sorted(findings, key=lambda finding: -finding.score)


#: The former name of :func:`find_outliers`.
find_apart = find_outliers


def outlier_scores(series: MetricSeries, *, continuity_seconds: float, share: float) -> OutlierScores | None:
    """How far comparable workers are from each other; None where there are too few workers or samples."""
    each = _block_samples(series)
    length = max(round(continuity_seconds / (each * series.step_seconds)), 1)
    few = series.values.shape[2] < each * (length + 1)
    if len(series.workers) < MIN_PEERS or not series.metrics or few:
        return None
    signals = [(name, kind) for kind in ("level", "swings") for name in series.metrics]
    away = _less_own(_smooth(_deviations(np.concatenate(_blocks(series.values, each)))))
    signs = np.array([worse_direction(name) if kind == "level" else 1 for name, kind in signals])
    squares, parts_at = _lasting(away, signs, length=length, share=share)
    worst = squares.argmax(axis=1)
    workers = np.arange(len(worst))
    usual = math.sqrt(2 * math.log(max(len(signals) * len(workers), 2)))
    parts = np.zeros((len(signals), len(workers)), np.float32)
    signal, worker, window, value = parts_at
    at_worst = window == worst[worker]
    parts[signal[at_worst], worker[at_worst]] = value[at_worst]
    most = squares[workers, worst]
    begins = (squares >= most[:, None] / 4).argmax(axis=1)
    return OutlierScores(tuple(signals), np.sqrt(most) / np.float32(usual), begins, parts)


def culprits(series: MetricSeries, found: OutlierScores, *, threshold: float, dominance: float) -> NDArray[np.intp]:
    """The outliers that are nobody's victims; see :func:`find_outliers`."""
    named = np.flatnonzero((found.scores > threshold) & (found.scores >= dominance * found.scores.max()))
    follow = round(FOLLOW_SECONDS / (_block_samples(series) * series.step_seconds))
    named = named[independent(found.begins[named], together=1, follow=follow)]
    begins, scores = found.begins[named], found.scores[named]
    weaker_and_later = (begins[:, None] - begins[None] == 1) & (scores[:, None] < scores[None])
    kept: NDArray[np.intp] = named[~weaker_and_later.any(axis=1)]
    return kept


def _block_samples(series: MetricSeries) -> int:
    return max(BLOCK_SAMPLES, round(BLOCK_SECONDS / series.step_seconds))


def _blocks(values: Values, each: int) -> tuple[Values, Values]:
    """By block, the mean of a worker's difference from its peers, and the logarithm of the variance of it.

    Notes
    -----
    The sums are products with a matrix of zeros and ones, which is several times faster than sums over short axes.
    """
    metrics, workers, instants = values.shape
    count = instants // each
    peers = np.unique(np.linspace(0, workers - 1, min(workers, MAX_PEERS)).astype(int))
    differs = (values - _median(values[:, peers]))[:, :, : count * each].reshape(metrics * workers, -1)
    known = np.isfinite(differs)
    whole = bool(known.all())
    if not whole:
        differs[~known] = 0
    belongs = np.repeat(np.eye(count, dtype=np.float32), each, axis=0)
    numbers = np.full((1, count), each, np.float32) if whole else known.astype(np.float32) @ belongs
    least = np.maximum(numbers, 1)
    means = (differs @ belongs) / least
    np.square(differs, out=differs)
    variances = (differs @ belongs) / least - means**2
    floor = np.finfo(np.float32).eps * np.maximum(means**2, np.float32(1e-30))
    spreads = np.log(np.maximum(variances, floor))
    if not whole:
        means[numbers < BLOCK_SAMPLES] = spreads[numbers < BLOCK_SAMPLES] = np.nan
    shape = (metrics, workers, count)
    return means.reshape(shape), spreads.reshape(shape)


def _median(values: Values) -> Values:
    """The median over the workers, of shape (metrics, 1, instants); NaN where nobody was there."""
    ordered = np.sort(values, axis=1)
    known = np.isfinite(values).sum(axis=1, keepdims=True)
    low = np.take_along_axis(ordered, np.maximum((known - 1) // 2, 0), axis=1)
    high = np.take_along_axis(ordered, np.minimum(known // 2, values.shape[1] - 1), axis=1)
    return np.asarray((low + high) / 2, np.float32)


def _deviations(signals: Values) -> Values:
    """Differences from the median of the workers, in usual deviations of a signal; 0 where a worker was absent."""
    away = signals - _median(signals)
    return _scaled(np.nan_to_num(away, copy=False, posinf=0, neginf=0))


def _scaled(away: Values) -> Values:
    spread = MAD_TO_DEVIATION * np.median(np.abs(away).reshape(len(away), -1), axis=1)
    return np.asarray(away / np.where(spread > 0, spread, np.inf)[:, None, None], np.float32)


def _smooth(away: Values) -> Values:
    """The mean of each two neighbouring blocks, so that what goes on and off within a minute stays away."""
    return _scaled((away[:, :, 1:] + away[:, :, :-1]) * np.float32(0.5))


def _less_own(away: Values) -> Values:
    """Without what a worker keeps nearly all the time, within bounds, as machines differ."""
    count = away.shape[2]
    tail = int(OWN_SHARE * count)
    ordered = np.sort(away, axis=2)
    low, high = ordered[:, :, tail], ordered[:, :, count - 1 - tail]
    own = np.clip(np.where(low > 0, low, np.minimum(high, 0)), -MAX_OWN, MAX_OWN)
    return _scaled(away - own[:, :, None])


def _lasting(away: Values, signs: NDArray[Any], *, length: int, share: float) -> tuple[Values, tuple[Any, ...]]:
    """How far workers stay away for a share of each stretch of blocks.

    Returns
    -------
    tuple
        By worker and stretch, the sum over the signals of the squared deviation that the worker has for the share of
        the stretch; and what that is made of: signals, workers, stretches, deviations.
    """
    sums = np.zeros((*away.shape[:2], away.shape[2] + 1), np.float32)
    np.cumsum(away, axis=2, out=sums[:, :, 1:])
    means = (sums[:, :, length:] - sums[:, :, :-length]) / length
    signs = signs[:, None, None]
    signal, worker, window = np.nonzero(np.where(signs == 0, np.abs(means), signs * means) > _MIN_MEAN)
    stretches = np.lib.stride_tricks.sliding_window_view(away, length, axis=2)[signal, worker, window]
    stretches = stretches * np.sign(means[signal, worker, window])[:, None]
    spare = length - math.ceil(share * length - 1e-9)
    least = np.maximum(np.partition(stretches, spare, axis=1)[:, spare], 0)
    squares = np.zeros(means.shape[1:], np.float32)
    np.add.at(squares, (worker, window), least**2)
    return squares, (signal, worker, window, least)


def _finding(series: MetricSeries, found: OutlierScores, worker: int, threshold: float) -> Finding:
    strongest = np.argsort(-found.parts[:, worker], kind="stable")
    least = _MIN_WEIGHT * found.parts[strongest[0], worker]
    shown = [signal for signal in strongest.tolist() if found.parts[signal, worker] >= least][:MAX_EVIDENCE]
    start = int(found.begins[worker]) * _block_samples(series)
    evidence = []
    for signal in shown:
        metric, kind = found.signals[signal]
        z = float(found.parts[signal, worker])
        evidence.append(evidence_of(series, metric, worker, start, z, swings=kind == "swings"))
    return finding_of(series, worker, start, float(found.scores[worker]) / threshold, evidence)
