"""Scores workers of a finished run: how much longer each takes than its peers for the same work, by their spread.

Theory of operation
===================

**The question.** Which worker takes longer *for the same work*? More tasks, larger partitions and other tasks are no
straggling. This module answers for one signal (time in the thread, time for a byte, ...; ``signals.py``) of a run that
is over. What to do with the scores of all signals (flag, name a cause, estimate the cost) is
``runs/stragglers/offline.py``'s; ``live_score.py`` is the counterpart for a run that goes on.

**The steps**, from observations to z-scores::

    observations --> sizes --> cells --> judged --> peers --> level --> scale --> z --> z / tail --> without
                                                      ^                           |                  the worst
                                                      +-- who has z >= 2 leaves --+

1. *Sizes.* Where inputs of one kind of work differ by more than a factor of 2, a power law of size is fitted within
   workers and taken off; a few giants are left out (``observations.py``). Running tasks count if they have already
   taken longer than is usual.
2. *Cells.* A cell is a kind of work on a worker. Its mean is weighted (longer tasks count for more, within a bound) and
   winsorised: observations are clipped to the worker's own median +- 3 x the spread of that work, 0.2 at least.
3. *Judged* are workers with 4 observations, or 2 kinds of work, that enough others have too. A slow worker has fewer
   than its peers, because it is slow.
4. *Level*: the mean over a worker's cells of mean minus reference, where the reference of a peer is the median of the
   *other* peers. It is a logarithm: 0.1 is about 10 % longer.
5. *Scale*: the spread of healthy workers, from the levels below 0 only, where stragglers do not reach, and the signal's
   floor, as the root of the sum of squares.
6. *z* = level / sqrt(scale^2 + the extra variance of a worker with fewer observations than its peers).
7. *Worst*: a worker whose level is mostly its worst single observation is not slow; that task is.

A worker is flagged where z reaches ``factor`` x ``limit(workers x signals)``. Once k workers are flagged, the next one
needs what the (k + 1)-th of them would, as faults come in numbers: a host, a rack, a bad image. The effect must also be
at least 10 % (``offline.py``).

**States of the set of peers.** Steps 4 to 6 need to know who is healthy, and that is what they are to find out. So they
are repeated from a first set of peers until the set is one that was seen before:

=======================  ==============================================================================================
what is known            first set of peers
=======================  ==============================================================================================
history of healthy runs  workers as fast as usual for their work; all that are judged, where too few are
no history, two kinds    the faster workers, if a gap in the faster half is too wide for chance and 3 or more are faster
no history               workers less than 2 spreads above the median
=======================  ==============================================================================================

After each round, judged workers with z < 2 are the peers of the next. If fewer than 2, or than a fifth of the judged,
would be left, it ends. A set is never tried twice, and there are finitely many: so it ends.

**History** (``Usual``, made by ``usual_of`` from runs in which nothing was wrong) adds three things: levels by kind of
work, which tell the healthy minority where more than half are slow; the spread between healthy workers, which bounds
that of this run from below, and from above at 3 times; and the *tail*, how far the furthest healthy worker came, by
which z is divided. The tail is estimated with a prior that is worth four runs.

**Invariants**, in ``tests/straggler/test_score.py`` unless another file is named:

1. A shift of everybody changes no level (``test_a_shift_of_everybody_changes_nothing``).
2. Stragglers do not widen the scale (``test_stragglers_do_not_widen_the_scale``), and it never falls below the floor
   (``test_the_scale_never_falls_below_the_floor``).
3. Of the same level, fewer observations give a smaller z (``test_few_noisy_observations_count_for_less``).
4. Nobody is judged where too few do the same work (``test_no_worker_is_judged_if_too_few_do_the_same_work``).
5. The order of rows and the names of workers do not matter, and more healthy workers neither hide nor make a straggler
   (``test_the_order_of_rows_and_the_names_of_workers_do_not_matter`` and
   ``test_more_healthy_workers_do_not_hide_a_straggler_nor_make_one`` in ``tests/runs/stragglers/test_offline.py``).
6. More than half may be slow where there is history (``test_history_tells_the_healthy_minority``).

**What was tried and rejected**, beside what :mod:`~dask_efficiency.straggler.peers` says of all sources:

- *Flagging by being off the CPU for longer.* It flags nobody whose tasks take no longer.
- *Subtracting the excess on the critical path* as the cost, which forgets that another path is next. The run is
  replayed with the worker repaired.
- *Comparing workers of one host by their waits for its disk.* All of them wait. They are compared with what is usual
  (``disk.py``).

Where more than half are slow and no gap divides them, nobody stands out without history. The constants were chosen on
the first part of FlowBench's runs, where a comment says so; ``python -m benchmarks.who_is_slow tasks`` prints what
they achieve, and with ``--tuning`` on the runs that they were chosen on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dask_efficiency.accounts.tables import Bool, Float64, Int64
from dask_efficiency.show.finding import MOST
from dask_efficiency.straggler.observations import MIN_SPREAD, Observations, medians, sized
from dask_efficiency.straggler.peers import (
    MAD_TO_DEVIATION,
    MIN_PEERS,
    NOISE,
    RARELY,
    THREE_SIGMA,
    TWO_SIGMA,
    healthy_spread,
    limit,
    median,
    median_of_others,
    spread_with_past,
)
from dask_efficiency.straggler.signals import FINISHED, LONGER

#: Observations, or else kinds of work, that are enough to judge a worker by. Of 3, 4 and 5 observations, 3 and 4 found
#: more on the first part of FlowBench's runs, and equally many. Kinds: a guess.
MIN_TASKS = 4
MIN_KINDS = 2
#: Levels this close to 0 are 0: anything from what rounding makes of 0 to the least difference that matters would do.
ROUNDING = 1e-9
#: The spread of n workers is widened by this over n. A guess.
FEW = 3.0

#: The tail is how far the furthest healthy worker of a run comes, as a share of what flags one among normal numbers.
#: Its logarithm is assumed to have this mean and standard deviation, worth four runs; the tail lies two deviations
#: beyond the mean of all, and is no less than the assumed mean. Without any run it is 1. Chosen on the first part of
#: FlowBench's runs.
TAIL_MEAN = -0.5
TAIL_SPREAD = 0.25
TAIL_RUNS = 4
#: Number of signals in the limit that tails are a share of. A guess.
TAIL_SIGNALS = 5
#: Least share of workers that must be healthy. A guess.
MIN_HEALTHY = 0.2


@dataclass(frozen=True, slots=True)
class Usual:
    """One signal in runs in which nothing was wrong."""

    #: By kind of work, the usual median over the workers, and how much it differs between runs.
    level: Mapping[str, float] = field(default_factory=dict)
    spread: Mapping[str, float] = field(default_factory=dict)
    #: Usual spread between workers within a run.
    between: float = math.nan
    #: By kind of work, the usual maximum of an observation.
    high: Mapping[str, float] = field(default_factory=dict)
    #: How far healthy workers come, in multiples of how far normal numbers come.
    tail: float = 1.0


@dataclass(frozen=True, slots=True)
class Scores:
    """One signal of all workers. Shapes (workers,)."""

    signal: str
    #: How far a worker is above its peers, as a logarithm; 0 if it cannot be compared.
    level: Float64
    #: Level in units of the spread of the peers, which is larger for a worker with few observations, and of the tail
    #: that history shows.
    z: Float64
    observations: Int64
    #: Whether they, and the peers, are enough to judge by.
    enough: Bool
    #: One standard deviation of the peers.
    scale: float


@dataclass(frozen=True, slots=True)
class _Cells:
    """Observations by kind of work and worker; shapes (kinds, workers), NaN without any."""

    mean: Float64
    weight: Float64
    count: Int64
    #: Variance of an observation within a worker; shape (kinds,).
    noise: Float64


def score(observations: Observations, workers: int, usual: Usual | None = None) -> Scores:
    """Compare the workers by one signal of a run, as described at the top of this module."""
    observations = sized(_without_short_censored(observations), workers)
    cells = _cells(observations, workers)
    floor = FINISHED[observations.signal].floor
    judged = _judged(cells, usual)
    level, error = _levels(cells, judged)
    between = usual.between if usual is not None else math.nan
    peers = judged if usual is None else _as_fast_as_usual(cells, observations.kinds, judged, usual, floor)
    seen: set[bytes] = set()
    scale = math.hypot(float(np.nan_to_num(healthy_spread(level[judged]))), floor)
    if usual is None and judged.any():
        peers = _faster_kind(level, judged, floor)
        if peers is judged:
            peers = judged & (level - np.median(level[judged]) < TWO_SIGMA * scale)
    z = np.zeros(workers)
    while peers.tobytes() not in seen and peers.any():
        seen.add(peers.tobytes())
        level, error = _levels(cells, peers)
        scale = _scale(level[judged], between, floor, math.sqrt(float(np.median(error[peers]))))
        # The spread is wider for a worker that has fewer observations than its peers.
        z = level / np.sqrt(scale**2 + np.maximum(error - float(np.median(error[peers])), 0.0))
        fewer = judged & (z < TWO_SIGMA)
        if fewer.sum() < max(2, MIN_HEALTHY * judged.sum()):
            break
        peers = fewer
    if usual is not None:
        z = z / usual.tail
    without_worst, _ = _levels(_cells(observations.take(~_worst(observations, workers)), workers), peers)
    z = np.where(without_worst < MOST * level, np.minimum(z, 0.0), z)
    level, z = np.where(judged, [level, z], 0.0)
    return Scores(observations.signal, level, z, cells.count.sum(axis=0), judged, scale)


def usual_of(runs: Sequence[tuple[Observations, int]]) -> Usual:
    """Learn usual figures of one signal from runs (observations, workers) in which nothing was wrong."""
    levels: dict[str, list[float]] = {}
    values: dict[str, list[Float64]] = {}
    between = []
    for observations, workers in runs:
        cells = _cells(sized(observations, workers), workers)
        for name, middle in zip(observations.kinds, median(cells.mean).tolist(), strict=True):
            if math.isfinite(middle):
                levels.setdefault(name, []).append(middle)
        for place, name in enumerate(observations.kinds):
            values.setdefault(name, []).append(observations.value[observations.work == place])
        level, _ = _levels(cells, _judged(cells, None))
        known = np.clip(level[np.isfinite(level)], -1.0, 1.0)
        if len(known):
            between.append(float(np.sqrt(np.mean(known * known))))
    middle, spread = {}, {}
    for name, of_runs in levels.items():
        middle[name] = float(np.median(of_runs))
        deviation = MAD_TO_DEVIATION * float(np.median(np.abs(np.array(of_runs) - middle[name])))
        spread[name] = deviation if len(of_runs) > 2 else math.inf
    together = {name: np.concatenate(parts) for name, parts in values.items()}
    high = {name: float(np.quantile(values, RARELY)) for name, values in together.items() if len(values)}
    usual = Usual(middle, spread, float(np.median(between)) if between else math.nan, high)
    return replace(usual, tail=_tail([score(observations, workers, usual) for observations, workers in runs]))


def _tail(healthy: Sequence[Scores]) -> float:
    """Estimate how far the furthest worker of a healthy run rarely comes, from the furthest one of each run."""
    furthest = [
        math.log(max(float(scored.z.max()), 1e-3) / limit(int(scored.enough.sum()) * TAIL_SIGNALS))
        for scored in healthy
        if scored.enough.sum() >= MIN_PEERS
    ]
    x = np.maximum(np.array(furthest), TAIL_MEAN - 4 * TAIL_SPREAD)
    n = len(x) + TAIL_RUNS
    mean = (float(x.sum()) + TAIL_RUNS * TAIL_MEAN) / n
    squares = float(np.square(x - mean).sum()) + TAIL_RUNS * (TAIL_SPREAD**2 + (TAIL_MEAN - mean) ** 2)
    bound = mean + TWO_SIGMA * math.sqrt(squares / n * (1 + 1 / n))
    return math.exp(max(bound, TAIL_MEAN))


def _without_short_censored(observations: Observations) -> Observations:
    """Drop running tasks that have not yet taken longer than usual for their work."""
    if not observations.censored.any():
        return observations
    ended = ~observations.censored
    middle = medians(observations.value[ended], observations.work[ended], len(observations.kinds))
    with np.errstate(invalid="ignore"):
        return observations.take(ended | (observations.value > middle[observations.work]))


def _cells(observations: Observations, workers: int) -> _Cells:
    kinds = len(observations.kinds)
    shape, size = (kinds, workers), kinds * workers
    place = observations.work * workers + observations.worker
    count = np.bincount(place, minlength=size)
    of_work = medians(observations.value, observations.work, kinds)
    off = observations.value - of_work[observations.work]
    spread = MAD_TO_DEVIATION * medians(np.abs(off), observations.work, kinds)
    own = medians(off, place, size)
    centre = np.where(count >= 3, own, 0.0)[place]
    limit = THREE_SIGMA * np.maximum(spread, MIN_SPREAD)[observations.work]
    off = np.clip(off, centre - limit, centre + limit)
    weight = np.bincount(place, observations.weight, minlength=size).astype(np.float64)
    mean = np.bincount(place, observations.weight * off, minlength=size) / np.where(count > 0, weight, 1.0)
    residual = off - mean[place]
    freedom = np.maximum(count - 1, 0).reshape(shape).sum(axis=1)
    within = np.bincount(observations.work, residual * residual, minlength=kinds)
    noise = np.where(freedom > 0, within / np.maximum(freedom, 1), np.nan_to_num(spread) ** 2 + NOISE)
    means = np.where(count > 0, mean, np.nan).reshape(shape) + of_work[:, None]
    return _Cells(means, weight.reshape(shape), count.reshape(shape), noise)


def _worst(observations: Observations, workers: int) -> Bool:
    """Mark the worst observation of each worker that has enough of them."""
    of_work = medians(observations.value, observations.work, len(observations.kinds))
    off = observations.value - of_work[observations.work]
    order = np.lexsort((off, observations.worker))
    count = np.bincount(observations.worker, minlength=workers)
    worst = np.zeros(len(off), np.bool_)
    worst[order[np.cumsum(count)[count >= MIN_TASKS] - 1]] = True
    return worst


def _judged(cells: _Cells, usual: Usual | None) -> Bool:
    peers = (cells.count > 0).sum(axis=1) - 1
    comparable = cells.count * (peers >= (1 if usual is not None else MIN_PEERS - 1))[:, None]
    judged: Bool = (comparable.sum(axis=0) >= MIN_TASKS) | ((comparable > 0).sum(axis=0) >= MIN_KINDS)
    return judged


def _levels(cells: _Cells, peers: Bool) -> tuple[Float64, Float64]:
    """Mean difference of each worker from its peers over its work, and its variance due to few tasks."""
    among = np.where(peers[None, :], cells.mean, np.nan)
    reference = np.where(peers[None, :], median_of_others(among), median(among)[:, None])
    off = cells.mean - reference
    known = np.isfinite(off)
    weight = np.where(known, cells.weight, 0.0)
    total = np.maximum(weight.sum(axis=0), 1e-30)
    level = (weight * np.where(known, off, 0.0)).sum(axis=0) / total
    error = (weight**2 * np.where(known, cells.noise[:, None] / np.maximum(cells.count, 1), 0.0)).sum(axis=0) / total**2
    return level, error


def _faster_kind(level: Float64, judged: Bool, floor: float) -> Bool:
    """Select the workers below the widest gap in the faster half, if it is too wide for chance; else all judged."""
    ordered = np.sort(level[judged])
    widest, limit = 0.0, math.inf
    for count in range(max(MIN_PEERS, math.ceil(MIN_HEALTHY * len(ordered))), len(ordered) // 2 + 1):
        spread = math.hypot(float(np.std(ordered[:count])) * (1.0 + FEW / count), floor)
        gap = float(ordered[count] - ordered[count - 1])
        if gap > LONGER and gap > max(TWO_SIGMA * spread, widest):
            widest, limit = gap, float(ordered[count])
    return judged & (level < limit) if math.isfinite(limit) else judged


def _scale(level: Float64, between: float, floor: float, sampling: float) -> float:
    """Spread of healthy workers; ``sampling`` is that of equal workers with as few tasks."""
    better = level[level <= ROUNDING]  # stragglers do not widen their root mean square
    spread = float(np.sqrt(np.mean(better * better))) if len(better) else 0.0
    if math.isfinite(between):
        spread = spread_with_past(spread, between)
    else:
        # the spread of a few workers is often small by chance
        spread = max(spread * (1.0 + FEW / max(len(level), 1)), sampling)
    return math.hypot(spread, floor)


def _as_fast_as_usual(cells: _Cells, kinds: Sequence[str], judged: Bool, usual: Usual, floor: float) -> Bool:
    """Select the workers that are as fast as usual; all that are judged, where too few are."""
    level = np.array([usual.level.get(kind, math.nan) for kind in kinds])
    spread = np.array([usual.spread.get(kind, math.inf) for kind in kinds])
    off = cells.mean - level[:, None]
    known = np.isfinite(off) & np.isfinite(spread)[:, None]
    weight = np.where(known, cells.weight, 0.0)
    total = weight.sum(axis=0)
    unsure = (weight * np.where(known, spread[:, None], 0.0)) ** 2
    with np.errstate(invalid="ignore", divide="ignore"):
        far = np.abs((weight * np.where(known, off, 0.0)).sum(axis=0) / total)
        allowed = TWO_SIGMA * np.sqrt(floor**2 + np.nan_to_num(usual.between) ** 2 + unsure.sum(axis=0) / total**2)
    usual_ones: Bool = judged & (total > 0) & (far <= allowed)
    return usual_ones if usual_ones.sum() >= max(2, MIN_HEALTHY * judged.sum()) else judged
