"""Levels: workers whose metrics stay at another level, or swing more, than those of their peers for minutes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.straggler.finding import Evidence, Finding
from dask_efficiency.straggler.lasting import independent
from dask_efficiency.straggler.metric_series import WORSE, Samples, Values, cause_of, samples_of

if TYPE_CHECKING:
    import pandas as pd

    from dask_efficiency.trace.run_trace import TraceTables

#: Samples are put together in blocks of so many seconds, and of this many samples at least.
BLOCK_SECONDS = 15.0
BLOCK_SAMPLES = 3

#: Workers whose median tells what all did at an instant; of more, so many are taken evenly.
MAX_PEERS = 129

#: Fewer workers than this have no majority.
MIN_WORKERS = 3

#: A worker's own level is what it keeps in all but this share of the blocks at either end. Up to so many deviations of
#: it are a difference between machines, and no fault.
OWN_SHARE = 0.1
MAX_OWN = 1.5

#: A stretch whose mean is less than this many deviations away is not looked at any closer.
_MIN_MEAN = 0.8

#: A machine that stands apart draws its peers along: those that begin to within this time are its victims.
FOLLOW_SECONDS = 120.0

#: From the median of absolute deviations to a standard deviation, for a normal distribution.
_MAD = 1.4826

#: Signals of less weight than this share of the strongest are no evidence.
_MIN_WEIGHT = 0.3


@dataclass(frozen=True, slots=True)
class Apart:
    """How far workers are from their peers, in the stretch in which each is furthest.

    Parameters
    ----------
    signals
        Metric, and whether it is the ``level`` or the ``swings`` of it.
    scores
        By worker, in multiples of what is unlikely among so many workers and signals without a fault.
    begins
        By worker, the first block of the first stretch in which it is at least half as far.
    parts
        Shape (signals, workers): what each signal adds, in deviations.
    """

    signals: tuple[tuple[str, str], ...]
    scores: NDArray[np.float32]
    begins: NDArray[np.intp]
    parts: Values


def find_apart(
    run: Samples | TraceTables | pd.DataFrame,
    *,
    threshold: float = 0.8,
    continuity_seconds: float = 270.0,
    share: float = 0.85,
    dominance: float = 0.5,
) -> list[Finding]:
    """Workers whose metrics stay apart from those of their peers.

    Parameters
    ----------
    run
        A recorded run, or a table with the columns ``at`` (seconds), ``worker``, if wanted ``group`` and ``host``, and
        one for each metric.
    threshold
        Of :attr:`Apart.scores`.
    continuity_seconds, share
        For how long a worker must be apart, and for how much of that time, in (0, 1]: four minutes of four and a half.
    dominance
        Workers that score less than this share of the highest score are taken for its victims, in [0, 1]; so are those
        that begin to stand apart within two minutes after another one did, and at once after one that scores more.

    Returns
    -------
    list
        Most certain first; empty for a run that is shorter than the continuity asks for, and where fewer than three
        workers are comparable. Effect and time lost of each are None: metrics do not tell how much longer
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
    for group in samples_of(run).comparable():
        apart = measured(group, continuity_seconds=continuity_seconds, share=share)
        if apart is not None:
            named = culprits(group, apart, threshold=threshold, dominance=dominance)
            findings += [_finding(group, apart, int(worker), threshold) for worker in named]
    return sorted(findings, key=lambda finding: -finding.score)


def measured(samples: Samples, *, continuity_seconds: float, share: float) -> Apart | None:
    """How far each of some comparable workers is from the others; None where there are too few workers or samples."""
    each = _block_samples(samples)
    length = max(round(continuity_seconds / (each * samples.step_seconds)), 1)
    few = samples.values.shape[2] < each * (length + 1)
    if len(samples.workers) < MIN_WORKERS or not samples.metrics or few:
        return None
    signals = [(name, kind) for kind in ("level", "swings") for name in samples.metrics]
    away = _less_own(_smooth(_deviations(np.concatenate(_blocks(samples.values, each)))))
    signs = np.array([WORSE.get(name, 0) if kind == "level" else 1 for name, kind in signals])
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
    return Apart(tuple(signals), np.sqrt(most) / np.float32(usual), begins, parts)


def culprits(samples: Samples, apart: Apart, *, threshold: float, dominance: float) -> NDArray[np.intp]:
    """The workers that are apart and nobody's victims; see :func:`find_apart`."""
    named = np.flatnonzero((apart.scores > threshold) & (apart.scores >= dominance * apart.scores.max()))
    follow = round(FOLLOW_SECONDS / (_block_samples(samples) * samples.step_seconds))
    named = named[independent(apart.begins[named], together=1, follow=follow)]
    begins, scores = apart.begins[named], apart.scores[named]
    weaker_and_later = (begins[:, None] - begins[None] == 1) & (scores[:, None] < scores[None])
    kept: NDArray[np.intp] = named[~weaker_and_later.any(axis=1)]
    return kept


def _block_samples(samples: Samples) -> int:
    return max(BLOCK_SAMPLES, round(BLOCK_SECONDS / samples.step_seconds))


def _blocks(values: Values, each: int) -> tuple[Values, Values]:
    """By block, the mean of what a worker differs from its peers, and the logarithm of the variance of that.

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
    """Over the workers, shape (metrics, 1, instants); NaN where nobody was there."""
    ordered = np.sort(values, axis=1)
    known = np.isfinite(values).sum(axis=1, keepdims=True)
    low = np.take_along_axis(ordered, np.maximum((known - 1) // 2, 0), axis=1)
    high = np.take_along_axis(ordered, np.minimum(known // 2, values.shape[1] - 1), axis=1)
    return np.asarray((low + high) / 2, np.float32)


def _deviations(signals: Values) -> Values:
    """Away from the median of the workers, by the usual deviation of a signal; 0 where a worker was absent."""
    away = signals - _median(signals)
    return _scaled(np.nan_to_num(away, copy=False, posinf=0, neginf=0))


def _scaled(away: Values) -> Values:
    spread = _MAD * np.median(np.abs(away).reshape(len(away), -1), axis=1)
    return np.asarray(away / np.where(spread > 0, spread, np.inf)[:, None, None], np.float32)


def _smooth(away: Values) -> Values:
    """The mean of each two neighbouring blocks: what goes on and off within a minute stays apart all the time."""
    return _scaled((away[:, :, 1:] + away[:, :, :-1]) * np.float32(0.5))


def _less_own(away: Values) -> Values:
    """Without what a worker keeps nearly all the time, within bounds: machines differ."""
    count = away.shape[2]
    tail = int(OWN_SHARE * count)
    ordered = np.sort(away, axis=2)
    low, high = ordered[:, :, tail], ordered[:, :, count - 1 - tail]
    own = np.clip(np.where(low > 0, low, np.minimum(high, 0)), -MAX_OWN, MAX_OWN)
    return _scaled(away - own[:, :, None])


def _lasting(away: Values, signs: NDArray[Any], *, length: int, share: float) -> tuple[Values, tuple[Any, ...]]:
    """What holds for a share of each stretch of blocks.

    Returns
    -------
    tuple
        By worker and stretch, the sum over the signals of the squares of what the worker is away for the share of the
        stretch; and where that is: signals, workers, stretches, deviations.
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


def _finding(samples: Samples, apart: Apart, worker: int, threshold: float) -> Finding:
    strongest = np.argsort(-apart.parts[:, worker], kind="stable")
    least = _MIN_WEIGHT * apart.parts[strongest[0], worker]
    shown = [int(signal) for signal in strongest if apart.parts[signal, worker] >= least][:5]
    start = int(apart.begins[worker]) * _block_samples(samples)
    score = float(apart.scores[worker]) / threshold
    return Finding(
        worker=samples.workers[worker],
        host=samples.hosts[worker],
        cause=cause_of([apart.signals[signal][0] for signal in shown]),
        score=score,
        confidence=confidence_of(score),
        since=samples.start + start * samples.step_seconds,
        effect=None,
        evidence=tuple(_evidence(samples, apart, signal, worker, start) for signal in shown),
    )


def _evidence(samples: Samples, apart: Apart, signal: int, worker: int, start: int) -> Evidence:
    name, kind = apart.signals[signal]
    values = samples.values[samples.metrics.index(name), :, start:].astype(np.float64)
    known = np.isfinite(values)
    counts = np.maximum(known.sum(axis=1), 1)
    of_worker = np.where(known, values, 0).sum(axis=1) / counts
    if kind == "swings":
        of_worker = np.sqrt(np.where(known, (values - of_worker[:, None]) ** 2, 0).sum(axis=1) / counts)
    peers = of_worker[known.any(axis=1) & (np.arange(len(values)) != worker)]
    low, middle, high = np.quantile(peers, (0, 0.5, 1)) if len(peers) else (math.nan,) * 3
    return Evidence(
        name if kind == "level" else f"{name} swings",
        float(of_worker[worker]),
        float(middle),
        float(low),
        float(high),
        float(apart.parts[signal, worker]),
        int(counts[worker]),
    )


def confidence_of(score: float) -> float:
    """How often a finding with this score is right, in [0, 1]; rough.

    Notes
    -----
    Where ``benchmarks.stragglers_minder`` chooses thresholds, it was half of the findings with a score of just over
    1, 9 in 10 of those with 1.1 to 2.5, and 99 % of those with more.
    """
    return float(1 - 0.5 / max(score, 1.0) ** 1.5)
