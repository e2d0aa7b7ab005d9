"""Workers that differ from their peers from the start, by far more than these differ among each other."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.fleet.outliers.block_signals import BlockSignals, median_of_last
from dask_efficiency.fleet.outliers.metric_series import KINDS, Values
from dask_efficiency.straggler.peers import MIN_PEERS

#: Multiple of the largest lasting difference among the other workers from which on one is unlike them; among few
#: workers, the largest is smaller, and more is asked: twice as much of eight. Chosen on the tune seeds of
#: ``benchmarks.stragglers_stillness``: of healthy tasks of 8 to 150 machines, 1 to 4 % have one that is so far.
FAR, FEW_PEERS = 2.5, 8

#: Workers that may be at fault at once, and share of all: the others are their peers.
MOST_AT_FAULT = 3
MOST_SHARE_AT_FAULT = 0.25
#: Metrics in which a worker must be unlike its peers: one alone may be a disk that is full and unused.
METRICS_UNLIKE = 2

#: The median squared change of the peers, in multiples of the least that counts, from which on a metric follows the
#: work: what does not move, as memory that is allocated once, differs between healthy workers for good.
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
    at_fault = min(MOST_AT_FAULT, max(1, int(workers * MOST_SHARE_AT_FAULT)))
    largest = np.maximum(np.sort(size, axis=1)[:, -at_fault - 1], signals.least)
    moving = median_of_last(signals.levels[-len(signals.floor) :]) > MOVES * signals.floor
    largest[~np.tile(moving, len(KINDS))] = np.inf
    worse = signals.worse[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.nan_to_num(np.where(worse == 0, size, usual * worse) / largest[:, None]), np.float32)
