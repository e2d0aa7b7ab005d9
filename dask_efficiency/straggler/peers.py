"""Peers: what all who ask who is slow have in common: levels against peers, the spread of the healthy, and one limit.

Theory of operation
===================

**The question.** Which worker takes longer *for the same work*, or is away from its peers and its past? It is asked of
four sources, each of which is made of *cells*: a worker, a signal and a time, with a weight and with what it may be
compared with.

=======================  ===============================  ========================  ================================
source                   a cell                           comparable                lasting means
=======================  ===============================  ========================  ================================
tasks of a finished run  mean of a kind of work, by task  kind of work, group       not mostly its worst observation
(``score.py``)
heartbeats               growth of an interval, by        prefix, kernel, other     worse in 4 of 5 of 7 intervals,
(``live_score.py``)      prefix, transfer or process      end of a transfer; group  or of 4 minutes
metrics                  a block of 15 s of a level, its  group, time               85 % of a stretch of 4.5 minutes
(``fleet/outliers``)     swings or its movement                                     beyond what the past explains
measurements             the best of some repetitions     group, component          turns beside a good worker, or
(``preflights/judge``)                                                              each of its pairs
=======================  ===============================  ========================  ================================

Minder is no fifth one: the distances between what its autoencoders make of windows are metrics.

**The steps** are the same::

    cells --> level against peers --> z in the spread of the healthy --> limit --> lasting? --> name, cause, since when
                     ^                       ^           |
                     |                       +-- past    |
                     +---- who is far is no peer --------+

1. *Level.* A difference of logarithms where times are compared, so that 0.1 is about 10 %. The reference is the median
   of the *other* workers (:func:`median_of_others`): a mean follows the straggler, so that (N - 1) / sqrt(N) bounds a
   z-score of mean and standard deviation, 1.5 for 4 workers; and with few workers each one moves its own reference.
   *Within* a worker it is a mean, as a median misses contention that comes and goes.
2. *Spread.* Only the healthy side counts (:func:`healthy_spread`), where stragglers do not reach; what is known of the
   past bounds it (:func:`spread_with_past`), and what does not matter anyway, the floor of the signal, is added as the
   root of the sum of squares. Few observations widen it by their own noise.
3. *Limit* (:func:`limit`). Among n workers and k signals, sqrt(2 ln(n k)) is about how far the most extreme of as many
   normal numbers comes.
4. *Lasting.* Nobody is named by an instant. Without it Minder's F1 on the three generators of fleets is .00, .39 and
   .10, in place of .38, .72 and .15 (``python -m benchmarks.studies.minder``).
5. *An effect that matters*, a tenth for tasks, as a healthy spread can be very small.

**What a limit means.** Of n x k normal numbers, so many are beyond it in one look, and in a day of looks that share no
data, one in four minutes:

=================  ====================  ============================  =============================
workers x signals  limit                 by chance, in a look; a day   1.1 times the limit: look; day
=================  ====================  ============================  =============================
8 x 2              2.35                  .15; 53                       .08; 28
24 x 9             3.28                  .11; 41                       .03; 12
1000 x 9           4.27                  .09; 32                       .01; 4
=================  ====================  ============================  =============================

So the limit keeps the alarms of a look from growing with the cluster, and does not make them rare: continuity and the
least effect do. ``python -m benchmarks.who_is_slow`` counts them: none in 24 simulated runs of 15 minutes with 24
workers, in 8 recorded ones of a busy machine, in 41 to 57 windows of a fleet's metrics one or two, in 200 simulated
preflights none, and in 3 of 91 finished runs.

**What stays apart, as it loses when it is merged** (F1 on tuning seeds and runs, as it is and merged):

- *The spread about the median of all* for finished runs, in place of that below the peers: .85 becomes .74, and without
  history .74 becomes .52, as there half of the workers may be slow, and the set of peers is what must be found.
- *Without the past's bound on the spread* .85 becomes .78 for finished runs, and by heartbeats nobody is found where
  more than half become slow.
- *The spread below the median* for a metric over time, in place of its median absolute deviation: .92 becomes .81, as
  bursts go both ways, and are no slowness.
- *When it began* by sums above half of the level, as for finished runs, in place of a change fitted to the strongest
  metrics: with three of 48 machines at fault at once .82 becomes .74, as faults come within a minute, and 15 seconds
  tell a common fault from a consequence.
- *The median as the reference* of a preflight, in place of that of the fastest half: of 40 links 1.3 times as slow it
  names 3 in place of 9; and *a limit for many comparisons*, 3.7 among 1000, in place of 3 spreads, names none. What
  seems slow is measured again until it is sure, which chance alone does not survive.
- *Spread and limit* for who is unlike the others from the start, in place of the largest lasting difference of any
  peer: .77 becomes .63, as some healthy machines differ lastingly by much.
- *Fourteen intervals* of heartbeats, as many as make up the minutes that metrics are looked at, in place of seven: a
  worker that takes 1.5 times as long is named after 181 s in place of 97, and of seven recorded faults three are found
  in place of four. Metrics come more rarely, and bursts fill minutes.
- *The tail* that healthy runs have, learnt for finished runs: without it 10 % of the runs without a fault have an alarm
  in place of 3 %. The others have no runs of which it is known that nothing was wrong.
- *Why* a worker is slow is one table with a rule for each source (``causes.py``).
- *Numbers that look alike* were united, and guards left out, as no F1 fell. Runs with one thing wrong showed the cost:
  without a least difference of sizes 27 of 40 healthy runs had an alarm, without a bound on a task's weight 25 in place
  of 2, without the scatter of intervals 8 of 8 in place of 4. One rule of what explains what, for heartbeats and
  preflights, had a disk 10 times as slow called contention in 4 of 4 runs; one least slowness for two of disks, a
  contended host a slow disk in 12 of 12; one span for common faults and for victims, a fault silenced in 18 of 18; one
  median for the evidence and for most peers, three workers of five accused. All are apart again.
- *Minder's own way*, a score for each window and one metric after the other, has .68; its distances as metrics .90.

**What was tried and rejected**, with F1 where it was measured:

- *The fastest peer* of NVIDIA's resiliency extension as the reference, as one outlier is everybody's measure: .37 on
  FlowBench's runs at as many false alarms, in place of .85 (``python -m benchmarks.stragglers``).
- *Mahalanobis distance* of metrics: .23, .58 and .42 on the three generators, where levels, swings and movement against
  peers and past have .93, .96 and .62 (``python -m benchmarks.studies.minder``).
- *Duration alone*, and *the ratio to the median* of DLRover's check: a worker whose tasks wait is seen late or never.
- *Totals per worker.* Work stealing changes them; rates for a kind of work stay.
- *The median of absolute deviations over workers* grows when many are slow.

**Limits.** Of two workers without a past nobody is blamed: there is a ratio, and no telling who of both is unusual.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.ma  # np.median imports it when it is first called, which would hold a scheduler up for 10 ms
from numpy.typing import NDArray

from dask_efficiency.accounts.slow_worker import Evidence

Floats = NDArray[np.float64]
Real = TypeVar("Real", np.float32, np.float64)
Places = NDArray[np.intp]

#: Least number of workers to compare: of two, either may be the slow one.
MIN_PEERS = 3
#: Variance that is assumed of the logarithm of a time, among tasks, launches or transfers that are alike: 0.2 squared.
#: A guess.
NOISE = 0.04
#: Standard deviation of a normal distribution over its median absolute deviation, and over its mean absolute one.
MAD_TO_DEVIATION = 1 / statistics.NormalDist().inv_cdf(0.75)
MEAN_TO_DEVIATION = math.sqrt(math.pi / 2)
#: Standard deviations within which 19 of 20 normal numbers are, and beyond which one in 700 is, on one side. Who is
#: within two is like the others; a number beyond three is clipped, or is far.
TWO_SIGMA = 2.0
THREE_SIGMA = 3.0
#: Quantile that counts as the usual maximum; a guess.
RARELY = 0.95
#: Ended tasks of a prefix, or launches of a kernel, that a worker needs to be compared by it, or a prefix to be judged,
#: and transfers that a receiver needs on average; a guess.
MIN_ALIKE = 3
#: Share of a time of which a part says too little to be compared, or mentioned: busy, with threads that want a core, on
#: prefixes that can be compared, or of a task alone. A guess.
LITTLE = 0.05
#: Share of a time on the CPU, or with transfers, below which there is as good as none; a guess.
MIN_SHARE = 0.02


def median_of_others(values: Floats) -> Floats:
    """Median of all other workers, of shape (rows, workers); NaN where the worker has no value, or no other one has."""
    missing = np.isnan(values)
    count = values.shape[1] - missing.sum(axis=1)
    ordered = np.sort(values, axis=1)  # NaN come last
    rows = np.arange(len(values))
    middle = count // 2

    def at(position: Places) -> Floats:
        picked: Floats = ordered[rows, np.clip(position, 0, np.maximum(count - 1, 0))]
        return picked[:, None]

    below, this, above = at(middle - 1), at(middle), at(middle + 1)
    with np.errstate(invalid="ignore"):
        of_odd = np.where(values < this, this + above, np.where(values > this, below + this, below + above)) / 2
        of_even = np.where(values <= below, this, below)
        others = np.where((count % 2 == 1)[:, None], of_odd, of_even)
    others[missing | (count < 2)[:, None]] = np.nan
    return others


def median(values: NDArray[Real], axis: int = -1, *, keepdims: bool = False) -> NDArray[Real]:
    """Median over an axis without its NaN; NaN where there is nothing else. Several times as fast as NumPy's."""
    if not values.shape[axis]:
        return np.full(values.sum(axis=axis, keepdims=keepdims).shape, np.nan, values.dtype)
    ordered = np.sort(values, axis=axis)  # NaN come last
    count = values.shape[axis] - np.isnan(values).sum(axis=axis, keepdims=True)
    low = np.take_along_axis(ordered, np.maximum(count - 1, 0) // 2, axis=axis)
    high = np.take_along_axis(ordered, np.minimum(count // 2, values.shape[axis] - 1), axis=axis)
    middle: NDArray[Real] = np.asarray((low + high) / 2, values.dtype)
    return middle if keepdims else middle.squeeze(axis)


def healthy_spread(values: Floats, about: float | None = None) -> float:
    """Standard deviation of those below the median, which stragglers do not widen; NaN for fewer than 3 workers.

    Where up to half may be slow, it is that of those below the reference (``about``) that they are compared with.
    """
    known = values[np.isfinite(values)]
    if len(known) < MIN_PEERS:
        return float("nan")
    middle = np.median(known) if about is None else about
    better = known[known <= middle] - middle
    return float(np.sqrt(np.mean(better * better)))


#: Bound on the present spread of healthy workers, in multiples of the usual one. A guess.
MAX_SPREAD = 3.0


def spread_with_past(now: float, usual: float) -> float:
    """Spread of healthy workers: the present one, within bounds by what is usual; NaN if neither is known.

    With too few workers for a present one it is the upper bound.
    """
    return float(np.fmax(usual, np.fmin(now, MAX_SPREAD * usual)))


def limit(comparisons: int, *, named: int = 0) -> float:
    """About how far, in standard deviations, the most extreme of so many normal numbers comes.

    After some are named, it is that of as many fewer numbers as make the next one as likely by chance: the levels of
    Benjamini and Hochberg (1995), from the strictest on.
    """
    return math.sqrt(2 * math.log(max(comparisons / (named + 1), 2)))


def beside_peers(signal: str, figures: Floats, who: int, *, z: float, tasks: int) -> Evidence:
    """Figure of a worker, with the median, the least and the most of its peers; NaN are left out."""
    # Quicker than NumPy's among few, of which a preflight compares many.
    others = sorted(figure for i, figure in enumerate(figures.tolist()) if i != who and math.isfinite(figure))
    low, middle, high = (others[0], statistics.median(others), others[-1]) if others else (math.nan,) * 3
    return Evidence(signal, float(figures[who]), middle, low, high, z, tasks)


#: Numbers compared in one piece: about 2 ms; and workers looked at in one piece, where each is by itself.
PIECE = 3_000
WORKERS_AT_ONCE = 100


@dataclass(eq=False, slots=True)
class WeightedSums:
    """Weighted sums by worker over prefixes or kernels, of which :meth:`mean` makes one number each."""

    weight: Floats
    value: Floats
    variance: Floats
    tasks: Floats
    seconds: Floats
    #: Sums of the squared weights alone, times the value, and times its square, to see how much prefixes disagree.
    weight2: Floats
    value2: Floats
    square2: Floats

    @classmethod
    def of(cls, workers: int) -> WeightedSums:
        """Empty sums."""
        return cls(*(np.zeros(workers) for _ in range(8)))

    def add(self, value: Floats, variance: Floats, weight: Floats, tasks: Floats, seconds: Floats) -> None:
        """Add some prefixes. All arrays have shape (prefixes, workers); NaN values are skipped."""
        known = np.isfinite(value) & (weight > 0)
        weight = np.where(known, weight, 0.0)
        self.weight += weight.sum(axis=0)
        value = np.where(known, value, 0.0)
        self.value += (weight * value).sum(axis=0)
        squares = weight**2
        self.variance += (squares * np.where(known, variance, 0.0)).sum(axis=0)
        self.weight2 += squares.sum(axis=0)
        self.value2 += (squares * value).sum(axis=0)
        self.square2 += (squares * value**2).sum(axis=0)
        self.tasks += np.where(known, tasks, 0.0).sum(axis=0)
        self.seconds += np.where(known, seconds, 0.0).sum(axis=0)

    def mean(self) -> tuple[Floats, Floats, Floats]:
        """Mean, its variance, and the number of tasks; mean and variance are NaN without any."""
        # A slow worker is slow at everything: where prefixes disagree, the work is the reason, and the variance larger.
        whole = np.where(self.weight > 0, self.weight, np.nan)
        mean = self.value / whole
        disagreement = np.maximum(self.square2 - 2 * mean * self.value2 + mean**2 * self.weight2, 0.0)
        return mean, np.maximum(self.variance, disagreement) / whole**2, self.tasks


def variance_of_difference(known: NDArray[np.bool_]) -> Floats:
    """Variance of a value's difference from the others' median over that of the value, by prefix."""
    others = np.maximum(known.sum(axis=1, keepdims=True) - 1, 1)
    return np.asarray(1.0 + math.pi / 2 / others)


def in_pieces(columns: Places, workers: int) -> Iterator[Places]:
    """Columns in pieces of at most :data:`PIECE` numbers, for this many workers."""
    width = max(1, PIECE // max(1, workers))
    for first in range(0, len(columns), width):
        yield columns[first : first + width]
