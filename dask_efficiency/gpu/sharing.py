"""What a device did in a stretch of time, and the fair share of each task in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.gpu.intervals import Int64, Intervals, difference, length, union
from dask_efficiency.gpu.ranks import ranked
from dask_efficiency.gpu.records import KERNEL
from dask_efficiency.gpu.tasks import NOBODY


@dataclass(frozen=True, slots=True)
class Division:
    """Nanoseconds of one device. The shares add up to ``kernels + copies``."""

    kernels: int
    copies: int
    #: Tasks by number; NOBODY for work that belongs to no task.
    owners: Int64
    #: Their shares while they ran and after they had ended. All of NOBODY's share is in the first.
    during: Int64
    after: Int64


def divide(work: NDArray[np.void], stops: Int64, start: int, stop: int) -> Division:
    """Divide a stretch of a device's time among the tasks that had work on it.

    Parameters
    ----------
    work
        That of one device, of dtype :data:`~dask_efficiency.gpu.attribution.WORK`.
    stops
        When the task of each operation ended.
    start, stop
        The stretch. Work outside of it does not count.

    Returns
    -------
    Division
        Where m tasks have work on the device at once, each gets 1/m of that time; NOBODY counts as a task. Shares
        are rounded to nanoseconds by largest remainders.
    """
    begin, end = np.maximum(work["start"], start), np.minimum(work["end"], stop)
    is_kernel = work["activity"] == KERNEL
    kernels = union(begin[is_kernel], end[is_kernel])
    copies = length(difference(union(begin[~is_kernel], end[~is_kernel]), kernels))
    owners, ranks = ranked(work["owner"])
    whole = length(kernels) + copies
    stops = np.where(work["owner"] == NOBODY, stop, stops)
    groups = _by_group(ranks, begin, end, np.clip(stops, start, stop), start, stop)
    shares = _rounded(_fair(*groups, 2 * len(owners)), whole)
    return Division(length(kernels), copies, owners, shares[0::2], shares[1::2])


def _by_group(
    ranks: NDArray[np.intp], begin: Int64, end: Int64, stops: Int64, start: int, stop: int
) -> tuple[NDArray[np.intp], Intervals]:
    """When each owner had work, before its end (group 2 x rank) and after it (group 2 x rank + 1)."""
    span = stop - start + 1
    late = np.flatnonzero(end > stops)
    groups = np.concatenate([2 * ranks, 2 * ranks[late] + 1])
    # One group after another is laid on one axis, so that one union serves all of them.
    shift = groups * span - start
    laid = union(
        np.concatenate([begin, np.maximum(begin[late], stops[late])]) + shift,
        np.concatenate([np.minimum(end, stops), end[late]]) + shift,
    )
    group = laid.start // span
    return group, Intervals(laid.start - group * span, laid.stop - group * span)


def _fair(groups: NDArray[np.intp], busy: Intervals, count: int) -> NDArray[np.float64]:
    """The share of each group, where every instant is divided equally among the groups that are busy then."""
    if not len(groups):
        return np.zeros(count)
    if (groups == groups[0]).all():
        return np.bincount(groups, busy.lengths, count).astype(np.float64, copy=False)
    edges = np.concatenate(busy)
    order = np.argsort(edges, kind="stable")
    at_once = np.cumsum(np.where(order < len(groups), 1, -1))[:-1]
    each = np.empty(len(edges))
    each[order] = np.concatenate([[0.0], np.cumsum(np.diff(edges[order]) / np.maximum(at_once, 1))])
    return np.bincount(groups, each[len(groups) :] - each[: len(groups)], count).astype(np.float64, copy=False)


def _rounded(shares: NDArray[np.float64], whole: int) -> Int64:
    """Shares as whole numbers that add up to ``whole``: rounded down, and the rest given to those that lost most."""
    given = np.floor(shares).astype(np.int64)
    missing = whole - int(given.sum())
    if missing:
        lost = np.where(shares > 0, shares - given, -1)
        order = np.argsort(-lost if missing > 0 else lost, kind="stable")
        busy = order[shares[order] > 0]
        given[busy[: abs(missing)]] += np.sign(missing)
    return given
