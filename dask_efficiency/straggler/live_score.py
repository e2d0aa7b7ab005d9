"""LiveScores: each worker's distance from its peers over the last intervals, in units of the spread of healthy ones."""

from __future__ import annotations

import math
from collections.abc import Generator, Hashable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.straggler.history import History
from dask_efficiency.straggler.peers import Floats, healthy_spread
from dask_efficiency.straggler.signals import DURATION, GPU_KERNEL, LIVE

#: A worker is judged by the last intervals that hold this many tasks, and by no fewer intervals than these; or, where
#: tasks are rare, by the whole window if it holds so few of them.
WINDOW_TASKS = 20
MIN_INTERVALS = 7
FEW_TASKS = 5
FEW_INTERVALS = 3

#: The part of the window that must have gone by before so few tasks do.
LONG_ENOUGH = 0.8

#: Of those intervals, the share in which the worker must be worse than its peers; and below which it is cleared.
PERSISTENT = 0.8
CLEARED = 0.5

#: How far from its peers a worker must be, in units of their spread, times sqrt(2 ln(workers x signals)), which is as
#: far as chance brings one of them. The factor is there because spreads are estimated from few workers.
SENSITIVITY = 1.1

#: With few workers it takes more: sqrt(1 + this / peers) times as much.
FEW_WORKERS = 1.0

#: By signal, how much worse than its peers a worker must be, and the least spread that is assumed.
MIN_RESIDUAL = np.array([signal.min_residual for signal in LIVE.values()])
FLOOR = np.array([signal.floor for signal in LIVE.values()])

#: Weight of an interval in the history of the spread, and how much wider than it the spread may seem.
SPREAD_LEARNING = 0.05
MAX_SPREAD = 3.0


@dataclass(frozen=True, slots=True, eq=False)
class LiveScores:
    """Distances from the peers over the last intervals; shape (signals, workers)."""

    #: How much worse than its peers a worker is, and the same in units of their spread; NaN where there is too little
    #: to judge by.
    mean: Floats
    z: Floats
    tasks: Floats
    #: The share of the intervals in which it is worse than its peers.
    adverse: Floats
    #: By worker, the standard deviation of the logarithm of the seconds among the tasks of a prefix.
    task_spread: Floats
    #: The z that flags a worker.
    limit: float

    @classmethod
    def of(cls, workers: int, signals: int) -> LiveScores:
        """Make empty scores of so many workers, for so many signals of which anything is known."""
        mean, z, tasks, adverse = np.full((4, len(LIVE), workers), np.nan)
        return cls(mean, z, tasks, adverse, np.full(workers, np.nan), _limit(workers, signals))

    def only(self, workers: NDArray[np.bool_]) -> LiveScores:
        """Select some of the workers."""
        mean, z, tasks, adverse = (array[:, workers] for array in (self.mean, self.z, self.tasks, self.adverse))
        return LiveScores(mean, z, tasks, adverse, self.task_spread[workers], self.limit)


class LiveScoring:
    """Scores the workers of a group by their history, and learns how much healthy workers differ.

    Parameters
    ----------
    window_ns
        How far back it looks.
    """

    def __init__(self, window_ns: int) -> None:
        self._window_ns = window_ns
        #: By group, the usual spread of healthy workers in each signal.
        self._spread: dict[Hashable, Floats] = {}

    def keep(self, groups: Iterable[Hashable]) -> None:
        """Forget all groups but these."""
        there = set(groups)
        self._spread = {group: spread for group, spread in self._spread.items() if group in there}

    def score(
        self, history: History, group: Hashable, rows: NDArray[np.intp], *, kernels: bool, at: int
    ) -> Generator[int, None, LiveScores | None]:
        """Score the workers of a group by one signal after the other.

        Parameters
        ----------
        rows
            Of the workers, in order.
        kernels
            Whether kernels of GPUs are known.
        at
            Monotonic nanoseconds.

        Yields
        ------
        int
            How large each piece was, in numbers that were compared.

        Returns
        -------
        LiveScores or None
            None where too few intervals are remembered.
        """
        order = history.within(at=at, window_ns=self._window_ns)
        if len(order) < FEW_INTERVALS:
            return None
        long_enough = at - history.begin(len(order)) >= LONG_ENOUGH * self._window_ns
        signals = range(len(LIVE) if kernels else GPU_KERNEL)
        scores = LiveScores.of(len(rows), len(signals))
        # A slice is several times as fast, where it holds no other rows.
        whole = rows[-1] - rows[0] + 1 == len(rows)
        place: slice | NDArray[np.intp] = slice(rows[0], rows[-1] + 1) if whole else rows
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
        """Spread of healthy workers."""
        usual = float(self._spread[group][signal]) if group in self._spread else math.nan
        bounded = np.fmin(healthy_spread(mean), MAX_SPREAD * usual)
        return math.hypot(np.nan_to_num(np.fmax(usual, bounded)), FLOOR[signal])

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
    """The z that none of so many healthy workers reaches; higher for few workers, whose spread is less known."""
    by_chance = math.sqrt(2 * math.log(max(2, workers) * signals))
    return SENSITIVITY * by_chance * math.sqrt(1 + FEW_WORKERS / max(1, workers - 1))


def _noise_over_time(residual: Floats, mean: Floats, share: Floats, inside: NDArray[np.bool_]) -> Floats:
    """Variance of the means as their intervals show it: half from the worker's own, half from its peers'.

    It holds whatever the tasks are like, and whatever the system does to all of them for a while.
    """
    squares = (share**2).sum(axis=0)
    scatter = (share * np.where(inside, residual - mean, 0.0) ** 2).sum(axis=0)
    own = np.where(squares < 1, scatter * squares / (1 - squares), np.nan)
    usual = np.median(own[np.isfinite(own)]) if np.isfinite(own).any() else math.nan
    return np.asarray(np.nan_to_num((own + usual) / 2))
