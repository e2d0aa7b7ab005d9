"""How long each worker takes for a task of each prefix."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Float64
from dask_efficiency.runs.replay.durations import prefix_of_runs
from dask_efficiency.runs.trace.run_trace import RunTrace

#: Beyond this value of Welch's t, a worker counts as slower or faster than the others.
DISTINCT = 3.0


def task_times(trace: RunTrace) -> Float64:
    """How long each worker takes for a task of each prefix.

    Workers whose times do not clearly differ from those of the others count as equally fast. They are compared by
    Welch's t of the logarithms of their times.

    Returns
    -------
    array, shape (workers, prefixes + 1)
        Geometric means in nanoseconds, above 0. Where a worker ran no task of a prefix, it is what the others take,
        made slower or faster as this worker is with the rest of its tasks. The last column is for runs without a
        prefix.
    """
    count, total, squares = _logarithms(trace)
    others = count.sum(axis=0) - count
    mean, rest = _by(total, count), _by(total.sum(axis=0) - total, others)
    spread = (_by(squares, count) - mean**2, _by(squares.sum(axis=0) - squares, others) - rest**2)
    own, of_others = (np.maximum(square, 0.0) for square in spread)
    # Where all times are equal, the spread is 0 and any difference counts.
    error = np.sqrt(np.maximum(_by(own, count - 1) + _by(of_others, others), 1e-12))
    known = (count > 1) & (others > 0)
    distinct = known & (np.abs(mean - rest) > DISTINCT * error)
    alike = np.where(distinct, 0.0, count)
    middle = np.array(
        [float(np.median(means[has])) if has.any() else 0.0 for means, has in zip(mean.T, known.T, strict=True)]
    )
    common = np.where(alike.any(axis=0), _by((np.where(distinct, 0.0, total)).sum(axis=0), alike.sum(axis=0)), middle)
    slower = np.where(distinct, mean - common, 0.0)
    ran = count > 0
    rest_of_its_tasks = _by((slower * count).sum(axis=1), count.sum(axis=1))
    found: Float64 = np.exp(common + np.where(ran, slower, rest_of_its_tasks[:, None]))
    return found


def repaired(found: Float64, workers: Collection[int]) -> Float64:
    """The same times, with some workers as fast as the median of the others, if there are others."""
    others = [worker for worker in range(len(found)) if worker not in workers]
    again = found.copy()
    if others and workers:
        again[list(workers)] = np.median(found[others], axis=0)
    return again


def _logarithms(trace: RunTrace) -> tuple[Float64, Float64, Float64]:
    """By worker and prefix: how many runs there are, and the sums of their times' logarithms and of the squares."""
    runs, workers, prefixes = trace.runs, len(trace.workers), len(trace.prefixes)
    took, prefix = runs.stop - runs.start, prefix_of_runs(trace)
    there = (runs.start != MISSING) & (runs.stop != MISSING) & (runs.worker >= 0) & (runs.worker < workers)
    rows = np.flatnonzero(there & (prefix >= 0))
    logs = np.log(np.maximum(took[rows], 1))
    place = runs.worker[rows].astype(np.int64) * (prefixes + 1) + prefix[rows]
    size, shape = workers * (prefixes + 1), (workers, prefixes + 1)
    count, total, squares = (
        np.bincount(place, weights, minlength=size).astype(np.float64).reshape(shape)
        for weights in (np.ones(len(logs)), logs, logs**2)
    )
    return count, total, squares


def _by(total: Float64, count: Float64) -> Float64:
    """The mean, 0 where nothing was counted."""
    found: Float64 = np.divide(total, count, out=np.zeros_like(total), where=count > 0)
    return found
