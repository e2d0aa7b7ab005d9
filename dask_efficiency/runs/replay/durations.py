"""Durations of the parts of each run, and the mean time of each worker for a task of each prefix."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Float64, Int32, Int64
from dask_efficiency.runs.replay.changes import Changes
from dask_efficiency.runs.trace.run_causes import RunCauses
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import RUN_INSTANTS, values_at

#: Standard deviation of the random changes to the logarithm of computing times: enough to reorder tasks, and far below
#: what runs differ by.
NOISE = 0.01


@dataclass(frozen=True, slots=True)
class Durations:
    """By run, in nanoseconds: durations of its parts. All changes are in, except repairs of workers."""

    #: From being assigned until its message reached the worker.
    to_worker: Int64
    #: From then until all inputs were on the worker.
    fetch: Int64
    #: From ready to executing if the run did not wait for a slot, else 0.
    before_slot: Int64
    #: From its slot being free to executing if the run waited for a slot, else 0.
    after_slot: Int64
    #: From executing to the start in the thread.
    prepare: Int64
    compute: Int64
    #: From the start in the thread until it seceded; MISSING where it did not.
    secede: Int64
    #: From the end in the thread until its slot was free.
    finish: Int64
    #: From then until the scheduler knew of its end.
    report: Int64
    #: True if it got a slot.
    ran: Bool
    #: True if it was reported.
    done: Bool


def durations(trace: RunTrace, causes: RunCauses, moved: RunTransfers, changes: Changes) -> Durations:
    """Compute the recorded durations with changes."""
    runs = trace.runs
    known = np.stack([getattr(runs, name) for name in RUN_INSTANTS])
    # A missing instant is set to the one before it, so that they never decrease.
    in_order = np.maximum.accumulate(np.maximum(known, 0), axis=0)
    assigned, received, ready, executing, submitted, start, stop, ended, reported = in_order
    scheduler, disk = changes.part("scheduler"), changes.part("spill")
    # The run that held the slot before, and when that was free.
    left = np.where(runs.seceded != MISSING, runs.seceded, runs.ended)
    holder = causes.by_task.latest(runs.after, left, executing)
    freed = np.where((holder != MISSING) & (runs.worker[holder] == runs.worker), left[holder], MISSING)
    bound = (freed > ready) & (freed <= executing)
    unspill = np.clip(runs.unspill_ns, 0, submitted - executing)
    spill = np.clip(runs.spill_ns, 0, ended - stop)
    faster = np.array([changes.prefixes.get(name, 1.0) for name in trace.prefixes] + [1.0])[prefix_of_runs(trace)]
    if changes.seed is not None:
        faster *= np.exp(np.random.default_rng(changes.seed).normal(0.0, NOISE, len(faster)))
    moving = moved.last_stop - np.maximum(moved.first_start, received)
    moving = np.where(moved.any, np.clip(moving, 0, ready - received), 0)
    return Durations(
        to_worker=scaled(received - assigned, scheduler),
        fetch=ready - received - moving + scaled(moving, changes.part("transfer")),
        before_slot=np.where(bound, 0, executing - ready),
        after_slot=np.where(bound, executing - freed, 0),
        prepare=start - executing - unspill + scaled(unspill, disk),
        compute=scaled(stop - start, faster),
        secede=np.where(runs.seceded != MISSING, scaled(np.maximum(runs.seceded - start, 0), faster), MISSING),
        finish=ended - stop - spill + scaled(spill, disk),
        report=scaled(reported - ended, scheduler),
        ran=(runs.executing != MISSING) | (runs.start != MISSING),
        done=runs.reported != MISSING,
    )


@dataclass(frozen=True, slots=True)
class RunTransfers:
    """Transfers that each run waited for, and the run that each transfer was for."""

    #: By run: True if it waited for a transfer.
    any: Bool
    #: By run: instants at which its first transfer was asked for, and its last one arrived.
    first_start: Int64
    last_stop: Int64
    #: By transfer: the first run that needed it; MISSING if none is known.
    run: Int64


def run_transfers(trace: RunTrace, inputs: tuple[Int64, Int64]) -> RunTransfers:
    """Match transfers with the runs that needed them."""
    runs, transfers, tasks = trace.runs, trace.transfers, len(trace.tasks)
    making, needing = inputs
    received, ready = runs.received[needing], runs.ready[needing]
    keys = runs.worker[needing].astype(np.int64) * tasks + runs.task[making]
    order = np.lexsort((received, keys))
    transfer_keys = transfers.receiver.astype(np.int64) * tasks + transfers.task
    first = np.searchsorted(keys[order], transfer_keys)
    run = np.full(len(transfers), MISSING, np.int64)
    needed = first < len(order)
    needed[needed] = keys[order[first[needed]]] == transfer_keys[needed]
    run[needed] = needing[order[first[needed]]]

    by_key = np.argsort(transfer_keys, kind="stable")
    row = np.searchsorted(transfer_keys[by_key], keys)
    hit = row < len(by_key)
    row[hit] = by_key[row[hit]]
    hit[hit] = transfer_keys[row[hit]] == keys[hit]
    hit[hit] = (transfers.stop[row[hit]] > received[hit]) & (transfers.stop[row[hit]] <= ready[hit])
    row, needing = row[hit], needing[hit]
    began = np.where(transfers.queued[row] != MISSING, transfers.queued[row], transfers.start[row])
    first_start = np.full(len(runs), np.iinfo(np.int64).max)
    last_stop = np.full(len(runs), MISSING, np.int64)
    np.minimum.at(first_start, needing, began)
    np.maximum.at(last_stop, needing, transfers.stop[row])
    return RunTransfers(last_stop != MISSING, first_start, last_stop, run)


def prefix_of_runs(trace: RunTrace) -> Int32:
    """By run: the position of its prefix; MISSING where it has none."""
    return values_at(trace.tasks.prefix, trace.runs.task).astype(np.int32)


def scaled(ns: Int64, factor: float | NDArray[np.float64]) -> Int64:
    """Nanoseconds times a factor; exact where the factor is 1."""
    if isinstance(factor, float) and factor == 1.0:
        return ns
    return np.where(factor == 1.0, ns, np.rint(ns * factor)).astype(np.int64)


#: Welch's t beyond which a worker counts as slower or faster than the others: about 3 standard errors, the usual bar.
DISTINCT = 3.0


def task_times(trace: RunTrace) -> Float64:
    """Estimate each worker's time for a task of each prefix: nanoseconds, shape (workers, prefixes + 1).

    Geometric means. Workers whose times do not clearly differ from the others', by Welch's t of the logarithms, count
    as equally fast. Where a worker ran no task of a prefix, it is what the others take, made slower or faster as this
    worker is with the rest of its tasks. The last column is for runs without a prefix.
    """
    count, total, squares = _logarithms(trace)
    others = count.sum(axis=0) - count
    mean, rest = _mean(total, count), _mean(total.sum(axis=0) - total, others)
    spread = (_mean(squares, count) - mean**2, _mean(squares.sum(axis=0) - squares, others) - rest**2)
    own, of_others = (np.maximum(square, 0.0) for square in spread)
    # Where all times are equal, the spread is 0 and any difference counts.
    error = np.sqrt(np.maximum(_mean(own, count - 1) + _mean(of_others, others), 1e-12))
    known = (count > 1) & (others > 0)
    distinct = known & (np.abs(mean - rest) > DISTINCT * error)
    alike = np.where(distinct, 0.0, count)
    columns = zip(mean.T, known.T, strict=True)
    middle = np.array([float(np.median(means[has])) if has.any() else 0.0 for means, has in columns])
    common = np.where(alike.any(axis=0), _mean((np.where(distinct, 0.0, total)).sum(axis=0), alike.sum(axis=0)), middle)
    slower = np.where(distinct, mean - common, 0.0)
    ran = count > 0
    rest_of_its_tasks = _mean((slower * count).sum(axis=1), count.sum(axis=1))
    times: Float64 = np.exp(common + np.where(ran, slower, rest_of_its_tasks[:, None]))
    return times


def repaired(times: Float64, workers: Collection[int]) -> Float64:
    """Set the times of some workers to the median of the others, if there are others."""
    others = [worker for worker in range(len(times)) if worker not in workers]
    again = times.copy()
    if others and workers:
        again[list(workers)] = np.median(times[others], axis=0)
    return again


def _logarithms(trace: RunTrace) -> tuple[Float64, Float64, Float64]:
    """By worker and prefix: number of runs, and sums of the logarithms of their times and of the squares."""
    runs, workers, prefixes = trace.runs, len(trace.workers), len(trace.prefixes)
    took, prefix = runs.stop - runs.start, prefix_of_runs(trace)
    ran = (runs.start != MISSING) & (runs.stop != MISSING) & (runs.worker != MISSING)
    rows = np.flatnonzero(ran & (prefix != MISSING))
    logs = np.log(np.maximum(took[rows], 1))
    sums = np.zeros((3, workers, prefixes + 1))
    for table, weights in zip(sums, (1.0, logs, logs**2), strict=True):
        np.add.at(table, (runs.worker[rows], prefix[rows]), weights)
    return sums[0], sums[1], sums[2]


def _mean(total: Float64, count: Float64) -> Float64:
    mean: Float64 = np.divide(total, count, out=np.zeros_like(total), where=count > 0)
    return mean
