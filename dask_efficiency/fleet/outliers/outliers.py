"""Outliers: workers whose metrics leave their past and their peers for minutes, begin to swing, or stand still."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.accounts.tables import Bool, Float64
from dask_efficiency.fleet.outliers.block_signals import (
    BLOCK_SAMPLES,
    BLOCK_SECONDS,
    BlockSignals,
    block_samples,
    block_signals,
    strongest,
)
from dask_efficiency.fleet.outliers.departures import CONTINUITY_SECONDS, MAX_CLIPPED, Baseline, departures, past_of
from dask_efficiency.fleet.outliers.metric_series import KINDS, LEVEL, MOVEMENT, MetricSeries, Values, metric_series_of
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.straggler.peers import MAD_TO_DEVIATION, MIN_PEERS, Places, limit, median
from dask_efficiency.straggler.retirements import RETIRE_SHARE

if TYPE_CHECKING:
    import pandas as pd

#: Machines that become outliers within so many seconds of each other have a fault in common, as those behind a switch:
#: a block.
TOGETHER_SECONDS = BLOCK_SECONDS
#: A faulty machine slows its peers: those that become outliers later, within so many seconds, are its victims; a guess.
FOLLOW_SECONDS = 120.0

#: Those that begin within so many seconds of a stronger one count from this share of ``dominance`` on: a machine's
#: fault and its later effects on others only seem to begin that close by chance. With the square of ``dominance`` and
#: 15 s, effects of a third of a fault are named beside it, or, a crowd, silence it, in all of 72 runs in place of 6.
_ALIKE_SECONDS = 10.0
_ALIKE_DOMINANCE = 0.7

#: As many workers, or the share of a fleet that is retired at most, may be at fault at once, and the others are their
#: peers: of more, the job has begun to treat them unlike the others, such as those whose GPUs are capped in a phase of
#: more power. A guess.
CROWD = 2


@dataclass(frozen=True, slots=True)
class OutlierScores:
    """Distances of workers from their peers, in the stretch in which each is furthest."""

    signals: BlockSignals
    #: By worker, in multiples of the distance that chance brings among as many workers and signals without a fault.
    scores: Values
    #: By worker, the first block of the first stretch in which it is at least half as far.
    begins: Places
    #: Shape (signals, workers): contribution of each signal, in deviations.
    parts: Values


def find_outliers(
    run: MetricSeries | RunTrace | pd.DataFrame,
    *,
    history: MetricSeries | RunTrace | pd.DataFrame | None = None,
    threshold: float = 0.8,
    continuity_seconds: float = CONTINUITY_SECONDS,
    share: float = 0.85,
    dominance: float = 0.5,
    same_work: bool | None = None,
) -> list[SlowWorker]:
    """Workers whose metrics have left their own past, and those of their peers.

    Parameters
    ----------
    run
        A recorded run; or a table with the columns ``at`` (seconds) and ``worker``, optionally ``group`` and ``host``,
        and one column for each metric.
    history
        A run or table of a time in which all was well, best just before; workers are known by their names. Without it,
        or for a worker that it lacks, the part of the run before a change is the past, at least two minutes.
    threshold
        The :attr:`OutlierScores.scores` above which a worker is an outlier.
    continuity_seconds, share
        Time for which a worker must be an outlier, and share of it, in (0, 1]. By default about four minutes of four
        and a half.
    dominance
        Workers that score less than this share of the highest score are taken for its victims, in [0, 1]; of those that
        become outliers at the same time, seven tenths of it is enough. Those that become outliers within two minutes
        after another worker, but not within 15 seconds, are its victims, too.
    same_work
        Whether comparable workers do the same work, as in training. Then a worker without a history is also found if
        it is further from the others from the beginning, in two metrics at least, than any of these by far; with a
        lower confidence. By default, of all but recorded runs of Dask, whose workers do what the scheduler gives them.

    Returns
    -------
    list
        The most certain first; empty for a run shorter than the continuity and the past, and where fewer than three
        workers are comparable. Effect and lost time of each are None, as metrics do not tell how much longer the work
        takes. Where several workers share a host, its sensors accuse the host, among at least two others, and no
        worker.
        A confidence is that of machines which share a job. One window cannot tell if they do: of others more findings
        are wrong, and the watch (``dask-efficiency fleet watch``) bounds how many it names.

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
    if same_work is None:
        same_work = not isinstance(run, RunTrace)
    series = metric_series_of(run)
    past = None if history is None else metric_series_of(history)

    def found(part: MetricSeries, before: MetricSeries | None) -> list[SlowWorker]:
        findings: list[SlowWorker] = []
        for group in part.comparable():
            samples = group.values.shape[2]
            short = samples < 2 * block_samples(group) or samples * group.step_seconds < continuity_seconds
            if short or len(group.workers) < MIN_PEERS or not group.metrics:
                continue
            signals = block_signals(group)
            unknown = _without_history(group, before) if same_work else ()
            always = unlike_from_start(signals, unknown, dominance=dominance)
            scores = outlier_scores(signals, before, continuity_seconds=continuity_seconds, share=share)
            departed = []
            if scores is not None:
                named = culprits(scores, threshold=threshold, dominance=dominance)
                for i, at in zip(named.tolist(), _onsets(scores, named).tolist(), strict=True):
                    score = float(scores.scores[i]) / threshold
                    departed.append(signals.finding(i, round(at / group.step_seconds), scores.parts[:, i], score))
            always = [one for one in always if one.worker not in {each.worker for each in departed}]
            # What others do after a fault that is there from the start may be its consequence.
            least = max((one.score for one in always), default=0.0)
            findings += always + [one for one in departed if one.score >= least]
        return findings

    workers, hosts = by_host(series)
    findings = found(workers, past)
    if hosts is not None:
        before = None if past is None else by_host(past)[1]
        for finding in found(hosts, before):  # it is one that all its workers share
            there = tuple(name for name, on in zip(series.workers, series.hosts, strict=True) if on == finding.host)
            findings.append(replace(finding, worker="", workers=there))
    return sorted(findings, key=lambda finding: -finding.score)


def outlier_scores(
    signals: BlockSignals, history: MetricSeries | None = None, *, continuity_seconds: float, share: float
) -> OutlierScores | None:
    """Distances of workers from their past and their peers, by a history of any workers; None with too few samples."""
    length = max(round(continuity_seconds / signals.block_seconds), 1)
    if signals.series.values.shape[2] < signals.block_samples * (length + 1):
        return None
    past = None if history is None else _past(history, signals.series, signals.floor)
    found = departures(signals, past, length=length, share=share)
    if found is None:
        return None
    worst = found.squares.argmax(axis=1)
    workers = np.arange(len(worst))
    count = len(signals.differences)
    parts = np.zeros((count, len(workers)), np.float32)
    at_worst = found.stretch == worst[found.worker]
    parts[found.signal[at_worst], found.worker[at_worst]] = found.deviation[at_worst]
    most = found.squares[workers, worst]
    begins = found.starts[(found.squares >= most[:, None] / 4).argmax(axis=1)]
    return OutlierScores(signals, np.sqrt(most) / np.float32(limit(count * len(workers))), begins, parts)


def _past(history: MetricSeries, series: MetricSeries, floor: Values) -> Baseline | None:
    """Usual figures of the workers' history; None if it is too short, or lacks more than half of them."""
    there = {name: i for i, name in enumerate(history.workers)}
    here = [i for i, name in enumerate(series.workers) if name in there]
    short = history.values.shape[2] < 2 * block_samples(history)
    if short or len(here) < max(MIN_PEERS, len(series.workers) / 2):
        return None
    values = np.full((*series.values.shape[:2], history.values.shape[2]), np.nan, np.float32)
    for j, name in enumerate(series.metrics):
        if name in history.metrics:
            values[j, here] = history.values[history.metrics.index(name), [there[series.workers[i]] for i in here]]
    matched = replace(series, start=history.start, step_seconds=history.step_seconds, values=values)
    past = past_of(block_signals(matched, floor=floor))
    if block_samples(matched) != block_samples(series):
        # variances and changes of blocks of other lengths do not compare
        for values in (past.kept, past.levels, past.spread, past.least, past.own):
            values[len(series.metrics) :] = np.nan
    return past


def _without_history(series: MetricSeries, history: MetricSeries | None) -> set[int]:
    if history is None:
        return set(range(len(series.workers)))
    there: Bool = np.asarray(np.isfinite(history.values).any(axis=(0, 2)))
    known = {name for name, has in zip(history.workers, there.tolist(), strict=True) if has}
    return {i for i, name in enumerate(series.workers) if name not in known}


def culprits(found: OutlierScores, *, threshold: float, dominance: float) -> Places:
    """Outliers that are nobody's victims; see :func:`find_outliers`."""
    enough = dominance * found.scores.max(initial=0)
    named = np.flatnonzero((found.scores > threshold) & (found.scores >= _ALIKE_DOMINANCE * enough))
    if len(named) < 2:
        return named
    series = found.signals.series
    at = _onsets(found, named)
    unsure = 1.5 * series.step_seconds
    strong = found.scores[named] >= enough
    alike = (np.abs(at[:, None] - at[None, strong]) <= max(_ALIKE_SECONDS, unsure)) & (at > 0)[:, None]
    kept = np.flatnonzero(strong | alike.any(axis=1))
    culprit = independent(at[kept], together=max(TOGETHER_SECONDS, unsure), follow=FOLLOW_SECONDS)
    found_ones = np.asarray(named[kept[culprit]], np.intp)
    return found_ones if len(found_ones) <= max(CROWD, RETIRE_SHARE * len(series.workers)) else found_ones[:0]


def _onsets(found: OutlierScores, workers: Places) -> Float64:
    """Times when workers became outliers, in seconds since the first sample."""
    signals, at = found.signals, []
    for worker in workers.tolist():
        names = [signals.name(signal) for signal in strongest(found.parts[:, worker])]
        begin = signals.block_samples * int(found.begins[worker])
        at.append(onset(signals.series, signals.peers, worker, begin, names))
    return np.array(at)


def by_host(series: MetricSeries) -> tuple[MetricSeries, MetricSeries | None]:
    """Metrics of the workers themselves, and those of their hosts; None if no host has several workers."""
    # Each worker reads its host's sensors, at slightly different times, which tells nothing about the worker.
    of_host = np.array([series.meaning(name).of_host for name in series.metrics], np.bool_)
    counts = Counter(host for host in series.hosts if host)
    if not of_host.any() or max(counts.values(), default=0) < 2:
        return series, None
    metrics = tuple(name for name, of in zip(series.metrics, of_host, strict=True) if of)
    own = tuple(name for name, of in zip(series.metrics, of_host, strict=True) if not of)
    names = tuple(counts)
    on = [[i for i, host in enumerate(series.hosts) if host == name] for name in names]
    values = np.stack([_mean(series.values[of_host][:, workers]) for workers in on], axis=1)
    hosts = replace(
        series,
        metrics=metrics,
        workers=names,
        groups=tuple(tuple(sorted({str(series.groups[i]) for i in workers})) for workers in on),
        hosts=names,
        values=values,
    )
    return replace(series, metrics=own, values=series.values[~of_host]), hosts


def _mean(values: Values) -> Values:
    """Mean over the workers, of shape (metrics, workers, samples), without NaN."""
    known = np.isfinite(values)
    counts = known.sum(axis=1)
    sums = np.where(known, values, np.float32(0)).sum(axis=1)
    return np.asarray(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan), np.float32)


#: Samples are averaged over this many seconds, if they are closer: a block has its least number of them.
STEP_SECONDS = BLOCK_SECONDS / BLOCK_SAMPLES
#: Seconds that a fault may take until it shows in full. A guess.
_RAMPS = (5.0, 15.0, 30.0, 45.0, 60.0)
#: Share of the usual swings that smaller ones count as: logarithms of next to nothing, as of a metric in steps, would
#: hide all others. Without it the onset of swings 3 times as large is 33 s off, in place of 22; in steps of .02, 49 in
#: place of 23.
_MIN_SWINGS = 0.01
#: Seconds before and after a guess that an onset is compared with; it is searched in the nearer half of them. A guess.
_COMPARED_SECONDS = 150.0


def onset(series: MetricSeries, peers: Values, worker: int, begin: int, signals: Sequence[tuple[str, str]]) -> float:
    """Time when a worker began to be an outlier, in seconds since the first sample; 0 if it was so from there on."""
    # A change over some seconds is fitted to all its signals (metrics with their kinds) near the sample ``begin``.
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
        if kind == MOVEMENT:
            differs = series.values[j, worker, part]
        steps.append(_means(differs, each) if kind == LEVEL else _swings(differs, each))
    return first * series.step_seconds + step * _change(np.array(steps), (begin - first) // each, step)


def _means(samples: Values, each: int) -> Float64:
    """Means of so many samples each; the value before where all of them are missing."""
    parts = samples[: len(samples) // each * each].reshape(-1, each).astype(np.float64)
    known = np.isfinite(parts)
    counts = known.sum(axis=1)
    means = np.where(known, parts, 0).sum(axis=1) / np.maximum(counts, 1)
    last = np.maximum.accumulate(np.where(counts > 0, np.arange(len(means)), 0))
    return np.asarray(means[last], np.float64)


def _swings(samples: Values, each: int) -> Float64:
    """Logarithms of the mean squared change between samples, which do not depend on the level."""
    squares = _means(np.diff(samples, prepend=samples[:1]) ** 2, each)
    some = squares[squares > 0]
    return np.log(np.maximum(squares, _MIN_SWINGS * np.median(some))) if len(some) else np.zeros(len(squares))


def _change(rows: Float64, guess: int, step: float) -> float:
    """Step from which on the rows change, near a guess: the mean over all likely steps and ramps."""
    steps = np.arange(rows.shape[1])
    reach = round(_COMPARED_SECONDS / 2 / step)
    starts = np.arange(max(guess - reach, 1), min(guess + reach, len(steps) - 2))
    if not len(starts):
        return guess
    noise = MAD_TO_DEVIATION * np.median(np.abs(np.diff(rows, axis=1)), axis=1, keepdims=True)
    scaled = (rows - np.median(rows, axis=1, keepdims=True)) / np.where(noise > 0, noise, np.inf)
    scaled = np.clip(scaled, -MAX_CLIPPED, MAX_CLIPPED)  # a burst does not pass for a change
    ramps = np.maximum(np.array(_RAMPS) / step, 1)
    shapes = np.clip((steps + 0.5 - starts[:, None, None]) / ramps[:, None], 0, 1)
    shapes -= shapes.mean(axis=2, keepdims=True)
    shapes /= np.sqrt((shapes**2).sum(axis=2, keepdims=True))
    explained = ((shapes @ scaled.T) ** 2).sum(axis=2)
    likely = np.exp((explained - explained.max()) / 2)
    return float((likely.sum(axis=1) * starts).sum() / likely.sum())


def independent(begins: NDArray[Any], *, together: float, follow: float) -> Bool:
    """Mark the faults that are no consequence of one that began shortly before, more than ``together`` earlier."""
    kept: list[float] = []
    result = np.zeros(len(begins), np.bool_)
    for i in np.argsort(begins, kind="stable").tolist():
        result[i] = not any(together < begins[i] - earlier <= follow for earlier in kept)
        if result[i]:
            kept.append(float(begins[i]))
    return result


#: Multiple of the largest lasting difference among the other workers from which on one is unlike them; among few
#: workers, the largest is smaller, and more is asked: twice as much of eight. Chosen on the tune seeds of
#: ``benchmarks.studies.stillness``: of healthy tasks of 8 to 150 machines, 1 to 4 % have one that is so far.
FAR, FEW_PEERS = 2.5, 8

#: Workers that may be unlike the others from the start, at most; a guess.
MOST_AT_FAULT = 3
#: Metrics in which a worker must be unlike its peers: one alone may be a disk that is full and unused. A guess.
METRICS_UNLIKE = 2

#: The median squared change of the peers, in multiples of the least that counts, from which on a metric follows the
#: work: what does not move, as memory that is allocated once, differs between healthy workers for good. A guess.
MOVES = 4.0

#: Share of findings that are wrong that are barely flagged: more than where a worker's past is known. A guess on the
#: safe side of what was measured, see :data:`FAR`.
WRONG_FROM_START = 0.7


def unlike_from_start(signals: BlockSignals, workers: Collection[int], *, dominance: float) -> list[SlowWorker]:
    """Workers that are unlike their peers, which do the same work, all the time; of some whose past is not known.

    Some healthy machines differ lastingly by much, so the measure is not their spread, but the largest difference of
    any peer. Those nearer to their peers than the share ``dominance`` of the furthest are its victims.
    """
    count = len(signals.series.workers)
    if count < MIN_PEERS + 1 or not workers:
        return []
    far = _multiples(signals)
    by_metric = np.sort(far.reshape(len(KINDS), -1, count).max(axis=0), axis=0)
    if len(by_metric) < METRICS_UNLIKE:
        return []
    score = by_metric[-METRICS_UNLIKE] / (FAR * (1 + FEW_PEERS / count))
    named = [i for i in np.argsort(-score).tolist() if i in workers and score[i] >= max(1.0, dominance * score.max())]
    return [signals.finding(i, 0, far[:, i], float(score[i]), WRONG_FROM_START) for i in named]


def _multiples(signals: BlockSignals) -> Values:
    """Difference of each worker on the worse side, over the largest of its peers; shape (signals, workers)."""
    usual = signals.usual()
    size = np.abs(usual)
    workers = size.shape[1]
    at_fault = min(MOST_AT_FAULT, max(1, int(workers * RETIRE_SHARE)))
    largest = np.maximum(np.sort(size, axis=1)[:, -at_fault - 1], signals.least)
    moving = median(signals.levels[-len(signals.floor) :]) > MOVES * signals.floor
    largest[~np.tile(moving, len(KINDS))] = np.inf
    worse = signals.worse[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.nan_to_num(np.where(worse == 0, size, usual * worse) / largest[:, None]), np.float32)
