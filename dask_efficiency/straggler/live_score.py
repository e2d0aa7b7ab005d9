"""LiveScores: residuals of each worker over the last intervals, in units of the spread of healthy workers."""

from __future__ import annotations

import math
from collections.abc import Generator, Hashable, Iterable
from dataclasses import dataclass

import numpy as np

from dask_efficiency.accounts.tables import Bool
from dask_efficiency.straggler.history import History
from dask_efficiency.straggler.peers import Floats, Places, healthy_spread, limit, spread_with_past
from dask_efficiency.straggler.signals import DURATION, GPU_KERNEL, LIVE

#: A worker is judged by the last intervals that hold 20 tasks, and at least 7 of them, as many as it takes to know its
#: own past; where tasks are rare, by the whole window with 5 tasks in 3 intervals. A guess.
WINDOW_TASKS = 20
MIN_INTERVALS = 7
FEW_TASKS = 5
FEW_INTERVALS = 3
#: Share that is nearly all: of those intervals, in which a worker must be worse than its peers; of the window, which
#: must have passed before so few tasks suffice; and of a prefix's workers, for whose tasks the others wait. A guess.
NEARLY_ALL = 0.8
#: A flagged worker is cleared below this part of the limit, or share of the intervals, so that a finding does not
#: flicker; a guess.
CLEARED = 0.5

#: The limit of z in units of sqrt(2 ln(workers x signals)), as far as chance brings one of them. Above 1, because
#: spreads are estimated from few workers: with 1.0 chance brings twice to nine times as many, and nobody more is found
#: (measured: ``benchmarks.who_is_slow heartbeats --tuning``).
SENSITIVITY = 1.1

#: By signal, the least residual of a slow worker, and the least spread that is assumed.
MIN_RESIDUAL = np.array([signal.min_residual for signal in LIVE.values()])
FLOOR = np.array([signal.floor for signal in LIVE.values()])
#: Weight of an interval in the usual spread, and in recent waiting: half after half a minute of 2.5 s intervals. With
#: 0.15, as of a worker's own tasks, 6 of 8 runs of three workers whose speeds change at random by 30 % every 5 s have
#: an alarm, in place of 4.
SPREAD_LEARNING = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class LiveScores:
    """Residuals over the last intervals; shape (signals, workers)."""

    #: Mean residual, and in units of the peers' spread; NaN where there is too little to judge by.
    mean: Floats
    z: Floats
    tasks: Floats
    #: Share of the intervals in which the worker is worse than its peers.
    adverse: Floats
    #: By worker, the standard deviation of the logarithm of the seconds among the tasks of a prefix.
    task_spread: Floats
    #: The z that flags a worker.
    limit: float

    @classmethod
    def of(cls, workers: int, signals: int) -> LiveScores:
        """Empty scores; ``signals`` is the number of signals that are measured."""
        mean, z, tasks, adverse = np.full((4, len(LIVE), workers), np.nan)
        return cls(mean, z, tasks, adverse, np.full(workers, np.nan), _limit(workers, signals))

    def only(self, workers: Bool) -> LiveScores:
        """Some of the workers."""
        mean, z, tasks, adverse = (array[:, workers] for array in (self.mean, self.z, self.tasks, self.adverse))
        return LiveScores(mean, z, tasks, adverse, self.task_spread[workers], self.limit)


class LiveScoring:
    """Scores the workers of a group by their history, and learns how much healthy workers differ."""

    def __init__(self) -> None:
        #: By group, the usual spread of healthy workers in each signal.
        self._spread: dict[Hashable, Floats] = {}

    def keep(self, groups: Iterable[Hashable]) -> None:
        """Forget all other groups."""
        self._spread = {group: self._spread[group] for group in groups if group in self._spread}

    def score(
        self, history: History, group: Hashable, rows: Places, *, kernels: bool, at: int
    ) -> Generator[int, None, LiveScores | None]:
        """Score the workers of a group, signal by signal; None if too few intervals are remembered."""
        order = history.within(at)
        if len(order) < FEW_INTERVALS:
            return None
        long_enough = at - history.begin(len(order)) >= NEARLY_ALL * history.window_ns
        signals = range(len(LIVE) if kernels else GPU_KERNEL)
        scores = LiveScores.of(len(rows), len(signals))
        # A slice is several times as fast, where it holds no other rows.
        whole = rows[-1] - rows[0] + 1 == len(rows)
        place: slice | Places = slice(rows[0], rows[-1] + 1) if whole else rows
        for signal in signals:
            known = np.isfinite(history.residual[order, signal][:, place])
            if not known.any():  # of nobody, as where nothing is spilled or sent, or there is one worker only
                scores.tasks[signal] = 0.0
                yield known.size // 16
                continue
            rings = (history.residual, history.variance, history.tasks)
            residual, variance, tasks = (ring[order, signal][:, place].astype(np.float64) for ring in rings)
            tasks = np.where(known, tasks, 0.0)
            before, number = np.cumsum(tasks, axis=0) - tasks, np.cumsum(known, axis=0) - known
            inside = known & ((before < WINDOW_TASKS) | (number < MIN_INTERVALS))
            weight = np.where(inside, tasks, 0.0)
            total, count = weight.sum(axis=0), inside.sum(axis=0)
            # A GPU's totals come late, and in few intervals where it launches few kernels; alone they flag nobody.
            least = FEW_INTERVALS if signal == GPU_KERNEL else MIN_INTERVALS
            complete = (total >= WINDOW_TASKS) & (count >= least)
            if long_enough:
                complete |= (total >= FEW_TASKS) & (count >= FEW_INTERVALS)
            with np.errstate(divide="ignore", invalid="ignore"):
                share = weight / total
                mean = (share * np.where(inside, residual, 0.0)).sum(axis=0)
                noise = (share**2 * np.where(inside, variance, 0.0)).sum(axis=0)
                if signal == DURATION:
                    among_tasks = np.nan_to_num(history.task_variance[order][:, place].astype(np.float64))
                    scores.task_spread[:] = np.sqrt((share * np.where(inside, among_tasks, 0.0)).sum(axis=0))
                noise = np.maximum(noise, _noise_over_time(residual, mean, share, inside))
                worse = inside & (residual > MIN_RESIDUAL[signal] / 2)
                scores.adverse[signal] = worse.sum(axis=0) / count
                scores.mean[signal] = mean = np.where(complete, mean, np.nan)
                scores.tasks[signal] = total
                scores.z[signal] = mean / np.sqrt(self._scale(group, signal, mean) ** 2 + noise)
            yield residual.size // 16
        self._learn(group, scores)
        return scores

    def _scale(self, group: Hashable, signal: int, mean: Floats) -> float:
        usual = float(self._spread[group][signal]) if group in self._spread else math.nan
        return math.hypot(np.nan_to_num(spread_with_past(healthy_spread(mean), usual)), FLOOR[signal])

    def _learn(self, group: Hashable, scores: LiveScores) -> None:
        """Learn the usual spread from intervals in which nobody seems slow."""
        with np.errstate(invalid="ignore"):
            suspect = (scores.mean >= MIN_RESIDUAL[:, None]) & (scores.adverse >= CLEARED)
        seen = np.array([healthy_spread(row) for row in scores.mean])
        seen[suspect.any(axis=1)] = np.nan
        usual = self._spread.get(group, seen)
        usual = np.where(np.isnan(usual), seen, usual)
        square = usual**2 + SPREAD_LEARNING * (np.where(np.isnan(seen), usual, seen) ** 2 - usual**2)
        self._spread[group] = np.sqrt(square)


def _limit(workers: int, signals: int) -> float:
    """The z that no healthy worker reaches; higher for few workers, as the mean of n peers is uncertain by 1 / n."""
    return SENSITIVITY * limit(workers * signals) * math.sqrt(1 + 1 / max(1, workers - 1))


def _noise_over_time(residual: Floats, mean: Floats, share: Floats, inside: Bool) -> Floats:
    """Variance of the means from the scatter of their intervals: half from the worker's own, half from its peers'."""
    # Without it, where speeds change at random by 30 % every 5 s, 8 of 8 runs of three workers have an alarm, in place
    # of 4.
    squares = (share**2).sum(axis=0)
    scatter = (share * np.where(inside, residual - mean, 0.0) ** 2).sum(axis=0)
    own = np.where(squares < 1, scatter * squares / (1 - squares), np.nan)
    usual = np.median(own[np.isfinite(own)]) if np.isfinite(own).any() else math.nan
    return np.asarray(np.nan_to_num((own + usual) / 2))
