"""A stretch of time on the devices: the fair share of each task, and what the threads of tasks waited for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.gpu.intervals import (
    NOTHING,
    Int64,
    IntervalArrays,
    difference,
    intersection,
    length,
    overlaps,
    ranked,
    union,
)
from dask_efficiency.gpu.meter import KERNEL
from dask_efficiency.gpu.tasks import NOBODY


def divide(work: NDArray[np.void], stops: Int64, start: int, stop: int) -> tuple[int, int, Int64, Int64]:
    """Divide a stretch of a device's time among the tasks that had work on it.

    ``work`` is of dtype WORK, with the end of the task of each operation in ``stops``. Where m tasks have work on the
    device at once, each gets 1/m of that time; NOBODY counts as a task. Shares are rounded to nanoseconds by largest
    remainder.

    Returns nanoseconds of kernels, and of copies alone; the tasks by number; and their shares, which add up to both, of
    shape (tasks, 2): while they ran, as all of NOBODY's, and after they had ended.
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
    return length(kernels), copies, owners, shares.reshape(-1, 2)


def _by_group(
    ranks: NDArray[np.intp], begin: Int64, end: Int64, stops: Int64, start: int, stop: int
) -> tuple[NDArray[np.intp], IntervalArrays]:
    """Intervals in which each owner had work, before its end (group 2 x rank) and after it (group 2 x rank + 1)."""
    span = stop - start + 1
    late = np.flatnonzero(end > stops)
    groups = np.concatenate([2 * ranks, 2 * ranks[late] + 1])
    # Groups are laid end to end on one axis, so that one union serves all.
    shift = groups * span - start
    laid = union(
        np.concatenate([begin, np.maximum(begin[late], stops[late])]) + shift,
        np.concatenate([np.minimum(end, stops), end[late]]) + shift,
    )
    group = laid.start // span
    return group, IntervalArrays(laid.start - group * span, laid.stop - group * span)


def _fair(groups: NDArray[np.intp], busy: IntervalArrays, count: int) -> NDArray[np.float64]:
    """Share of each group: every instant is divided equally among the groups that are busy then."""
    if not len(groups):
        return np.zeros(count)
    if (groups == groups[0]).all():
        return np.bincount(groups, busy.lengths, count).astype(np.float64, copy=False)
    edges = np.concatenate(busy)
    order = np.argsort(edges, kind="stable")
    at_once = np.cumsum(np.where(order < len(groups), 1, -1))[:-1]
    shares = np.empty(len(edges))
    shares[order] = np.concatenate([[0.0], np.cumsum(np.diff(edges[order]) / np.maximum(at_once, 1))])
    return np.bincount(groups, shares[len(groups) :] - shares[: len(groups)], count).astype(np.float64, copy=False)


def _rounded(shares: NDArray[np.float64], whole: int) -> Int64:
    """Round shares to integers that add up to ``whole``: round down, then give the rest to the largest remainders."""
    given = np.floor(shares).astype(np.int64)
    missing = whole - int(given.sum())
    if missing:
        lost = np.where(shares > 0, shares - given, -1)
        order = np.argsort(-lost if missing > 0 else lost, kind="stable")
        busy = order[shares[order] > 0]
        given[busy[: abs(missing)]] += np.sign(missing)
    return given


#: State of a task on the devices at an instant, whether or not its thread waits. In order: its own kernel runs; only
#: another task's kernel runs, on a device where work of its own is queued; the same, while its own copy runs; only its
#: own copy runs.
OWN_KERNEL, OTHERS_KERNEL, OTHERS_KERNEL_AND_COPY, OWN_COPY = range(4)
#: A stretch of a task's time with one label. The stretches of a task are disjoint.
STRETCH = np.dtype([("start", np.int64), ("end", np.int64), ("owner", np.int64), ("label", np.uint8)])


def label(work: NDArray[np.void], stops: Int64, start: int, stop: int) -> NDArray[np.void]:
    """Label the time of each task in a stretch, up to the task's end: STRETCH rows by label, owner and time.

    ``work``, of dtype WORK, is that of all devices, and includes what runs after the stretch, as it may have been
    queued in it; ``stops`` has the end of the task of each operation.
    """
    attributed = work["owner"] != NOBODY
    work, stops = work[attributed], stops[attributed]
    owners, ranks = ranked(work["owner"])
    span = stop - start + 1
    # Tasks are laid end to end on one axis, so that one set operation serves all.
    shift = ranks * span - start
    begin = np.clip(work["start"], start, stop)
    end = np.clip(np.minimum(work["end"], stops), start, stop)
    is_kernel = work["activity"] == KERNEL
    kernels = union(begin[is_kernel] + shift[is_kernel], end[is_kernel] + shift[is_kernel])
    copies = difference(union(begin[~is_kernel] + shift[~is_kernel], end[~is_kernel] + shift[~is_kernel]), kernels)
    others = difference(_others(work, ranks, start, stop), kernels)
    # In the order of the labels.
    by_label = (kernels, difference(others, copies), intersection(others, copies), difference(copies, others))
    return np.concatenate([_stretches(kind, laid, owners, span, start) for kind, laid in enumerate(by_label)])


def _others(work: NDArray[np.void], ranks: NDArray[np.intp], start: int, stop: int) -> IntervalArrays:
    """Intervals of kernels on a device where work of a task was queued, with tasks laid end to end on one axis."""
    span = stop - start + 1
    starts, ends = [], []
    for device in ranked(work["device"])[0]:
        on = work["device"] == device
        rank = ranks[on]
        if (rank == rank[0]).all():
            continue
        here = work[on]
        begin, end = np.clip(here["start"], start, stop), np.clip(here["end"], start, stop)
        is_kernel = here["activity"] == KERNEL
        kernels = union(begin[is_kernel], end[is_kernel])
        asked = np.clip(here["asked"], start, stop)
        shift = rank * span - start
        due = union(asked + shift, begin + shift)
        shift = due.start // span * span - start
        parts, index = overlaps(IntervalArrays(due.start - shift, due.stop - shift), kernels)
        starts.append(parts.start + shift[index])
        ends.append(parts.stop + shift[index])
    return union(np.concatenate(starts), np.concatenate(ends)) if starts else NOTHING


def _stretches(kind: int, laid: IntervalArrays, owners: Int64, span: int, start: int) -> NDArray[np.void]:
    stretches, rank = np.empty(len(laid.start), STRETCH), laid.start // span
    stretches["start"], stretches["end"] = laid.start - rank * span + start, laid.stop - rank * span + start
    stretches["owner"], stretches["label"] = owners[rank], kind
    return stretches


def blocked(waits: NDArray[np.void], stretches: NDArray[np.void]) -> tuple[Int64, Int64]:
    """Time of the threads of tasks in calls that wait, by what ran meanwhile.

    ``waits``, of dtype WAIT, may overlap and are not empty; ``stretches`` are all of these tasks in that time.

    Returns the tasks by number, and nanoseconds of shape (tasks, 6): the parts kernel, contention, copy and wait, which
    are disjoint; and of all four together, the part in calls that spin, and that in which work of the task itself ran.
    """
    owners, ranks = ranked(waits["owner"])
    start, stop = int(waits["start"].min()), int(waits["end"].max())
    span = stop - start + 1
    shift = ranks * span - start
    calls = union(waits["start"] + shift, waits["end"] + shift)
    spins = waits["spins"]
    spinning = union((waits["start"] + shift)[spins], (waits["end"] + shift)[spins])
    rank = np.minimum(np.searchsorted(owners, stretches["owner"]), len(owners) - 1)
    rows = (owners[rank] == stretches["owner"]) & (stretches["start"] < stop) & (stretches["end"] > start)
    stretches, rank = stretches[rows], rank[rows]
    begin = np.clip(stretches["start"], start, stop) + rank * span - start
    end = np.clip(stretches["end"], start, stop) + rank * span - start
    parts, index = overlaps(IntervalArrays(begin, end), calls)
    sums = np.bincount(rank[index] * 4 + stretches["label"][index], parts.lengths, 4 * len(owners))
    happened = sums.astype(np.int64).reshape(-1, 4)
    kernel, copy = happened[:, OWN_KERNEL], happened[:, OWN_COPY]
    others = happened[:, OTHERS_KERNEL] + happened[:, OTHERS_KERNEL_AND_COPY]
    wait = _by_rank(calls, span, len(owners)) - kernel - others - copy
    busy = kernel + copy + happened[:, OTHERS_KERNEL_AND_COPY]
    return owners, np.stack([kernel, others, copy, wait, _by_rank(spinning, span, len(owners)), busy], axis=1)


def _by_rank(laid: IntervalArrays, span: int, count: int) -> Int64:
    return np.bincount(laid.start // span, laid.lengths, count).astype(np.int64)
