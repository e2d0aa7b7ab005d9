"""Pace: how long each worker takes for a task of each prefix."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from dask_efficiency.replay.durations import prefix_of_runs
from dask_efficiency.trace.run_trace import RunTrace
from dask_efficiency.trace.tables import MISSING, Float64


def paces(trace: RunTrace) -> Float64:
    """How long each worker takes for a task of each prefix.

    Returns
    -------
    array, shape (workers, prefixes + 1)
        Medians, in nanoseconds, above 0. Where a worker ran none, what the others take, as much slower as it is with
        the rest of its tasks. The last column is for runs without a prefix.
    """
    found = _medians(trace)
    typical = _median(found, axis=0)
    typical[~(typical > 0)] = 1.0
    relative = found / typical
    known = np.isfinite(relative) & (relative > 0)
    slower = np.array(
        [float(np.median(row[has])) if has.any() else 1.0 for row, has in zip(relative, known, strict=True)]
    )
    filled: Float64 = np.where(known, found, typical * slower[:, None])
    return filled


def repaired(found: Float64, workers: Collection[int]) -> Float64:
    """The same with some workers as fast as the others are, by the median; if there are others."""
    others = [worker for worker in range(len(found)) if worker not in workers]
    again = found.copy()
    if others and workers:
        again[list(workers)] = np.median(found[others], axis=0)
    return again


def _medians(trace: RunTrace) -> Float64:
    """By worker and prefix; NaN where none ran."""
    runs, workers, prefixes = trace.runs, len(trace.workers), len(trace.prefixes)
    took, prefix = runs.stop - runs.start, prefix_of_runs(trace)
    rows = np.flatnonzero((runs.start != MISSING) & (took >= 0) & (runs.worker >= 0) & (runs.worker < workers))
    rows = rows[prefix[rows] >= 0]
    rows = rows[np.lexsort((took[rows], runs.worker[rows], prefix[rows]))]
    place = prefix[rows].astype(np.int64) * workers + runs.worker[rows]
    edges = np.flatnonzero(np.diff(place, prepend=-1, append=-1))
    found = np.full((workers, prefixes + 1), np.nan)
    for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        kind, worker = divmod(int(place[first]), workers)
        found[worker, kind] = float(np.median(took[rows[first:last]]))
    return found


def _median(values: Float64, *, axis: int) -> Float64:
    """Without what is not known, and without numpy's warning where nothing is."""
    known = np.isfinite(values).any(axis=axis)
    found = np.full(known.shape, np.nan)
    found[known] = np.nanmedian(values[:, known], axis=axis)
    return found
