"""Durations: what lies between the instants of each run, so that they can be put together again at other times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.replay.changes import Changes
from dask_efficiency.trace.causes import Causes
from dask_efficiency.trace.run_trace import TraceTables
from dask_efficiency.trace.tables import MISSING, Bool, Float64, Int32, Int64

#: Standard deviation of the logarithm of computing times that differ at random: enough for another order of tasks.
NOISE = 0.01

_INSTANTS = ("assigned", "received", "ready", "executing", "submitted", "start", "stop", "ended", "reported")


def ordered_instants(trace: TraceTables) -> Int64:
    """The instants of each run, those that are missing set to the one before, so that they never decrease.

    Returns
    -------
    array, shape (9, runs)
        In the order of the columns of :class:`~dask_efficiency.trace.run_trace.Runs`.
    """
    known = np.stack([getattr(trace.runs, name) for name in _INSTANTS])
    found: Int64 = np.maximum.accumulate(np.maximum(known, 0), axis=0)
    return found


@dataclass(frozen=True, slots=True)
class Durations:
    """By run, in nanoseconds, as recorded; changes are applied already, but for what depends on the worker."""

    #: From the scheduler to the worker.
    to_worker: Int64
    #: From there until all inputs were there; the part of it in which they were moved.
    fetch: Int64
    #: From ready to executing where no slot had to be waited for, and from the free slot where one had to.
    before_slot: Int64
    after_slot: Int64
    #: From executing to the start in the thread.
    prepare: Int64
    compute: Int64
    #: From the start until it left its slot, where it seceded; MISSING elsewhere.
    secede: Int64
    #: From the end in the thread until the slot was free, and until it was reported.
    finish: Int64
    report: Int64
    #: Whether it was given a slot, and whether it was reported.
    ran: Bool
    done: Bool


def durations(trace: TraceTables, causes: Causes, moved: Moved, changes: Changes) -> Durations:
    """As recorded, with changes."""
    runs = trace.runs
    assigned, received, ready, executing, submitted, start, stop, ended, reported = ordered_instants(trace)
    scheduler, disk = changes.part("scheduler"), changes.part("spill")
    bound, freed = _slot_waits(trace, causes, ready, executing)
    unspill = np.clip(runs.unspill_ns, 0, submitted - executing)
    spill = np.clip(runs.spill_ns, 0, ended - stop)
    faster = _by_prefix(trace, changes)
    moving = moved.last_stop - np.maximum(moved.first_start, received)
    moving = np.where(moved.any, np.clip(moving, 0, ready - received), 0)
    return Durations(
        to_worker=_scaled(received - assigned, scheduler),
        fetch=ready - received - moving + _scaled(moving, changes.part("transfer")),
        before_slot=np.where(bound, 0, executing - ready),
        after_slot=np.where(bound, executing - freed, 0),
        prepare=start - executing - unspill + _scaled(unspill, disk),
        compute=_scaled(stop - start, faster),
        secede=np.where(runs.seceded != MISSING, _scaled(np.maximum(runs.seceded - start, 0), faster), MISSING),
        finish=ended - stop - spill + _scaled(spill, disk),
        report=_scaled(reported - ended, scheduler),
        ran=(runs.executing != MISSING) | (runs.start != MISSING),
        done=runs.reported != MISSING,
    )


@dataclass(frozen=True, slots=True)
class Moved:
    """The transfers that each run waited for, and the run that each transfer was for first."""

    #: By run: whether there was any, when the first was asked for, and when the last one arrived.
    any: Bool
    first_start: Int64
    last_stop: Int64
    #: By transfer: a run; MISSING where none is known.
    run: Int64


def moved(trace: TraceTables, inputs: tuple[Int64, Int64]) -> Moved:
    """Match transfers with the runs that needed them."""
    runs, transfers, tasks = trace.runs, trace.transfers, len(trace.tasks)
    making, needing = inputs
    received, ready = runs.received[needing], runs.ready[needing]
    keys = runs.worker[needing].astype(np.int64) * tasks + runs.task[making]
    order = np.lexsort((received, keys))
    transfer_keys = transfers.receiver.astype(np.int64) * tasks + transfers.task
    first = np.searchsorted(keys[order], transfer_keys)
    run = np.full(len(transfers), MISSING, np.int64)
    found = first < len(order)
    found[found] = keys[order[first[found]]] == transfer_keys[found]
    run[found] = needing[order[first[found]]]

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
    return Moved(last_stop != MISSING, first_start, last_stop, run)


def _slot_waits(trace: TraceTables, causes: Causes, ready: Int64, executing: Int64) -> tuple[Bool, Int64]:
    """Which runs waited for a slot, and when the one they got was free."""
    runs = trace.runs
    freed = np.where(runs.seceded != MISSING, runs.seceded, runs.ended)
    holder = causes.by_task.latest(runs.after, freed, executing)
    known = holder != MISSING
    known[known] = runs.worker[holder[known]] == runs.worker[known]
    free = np.where(known, freed[holder], MISSING)
    bound = known & (free > ready) & (free <= executing)
    return bound, free


def _by_prefix(trace: TraceTables, changes: Changes) -> Float64:
    """By run: the factor of its computing time."""
    factors = np.array([changes.prefixes.get(name, 1.0) for name in trace.prefixes] + [1.0])[prefix_of_runs(trace)]
    if changes.seed is None:
        return factors
    return factors * np.exp(np.random.default_rng(changes.seed).normal(0.0, NOISE, len(factors)))


def prefix_of_runs(trace: TraceTables) -> Int32:
    """By run: position of its prefix; -1 where it has none."""
    task, tasks = trace.runs.task, trace.tasks
    inside = (task >= 0) & (task < len(tasks))
    prefix = np.full(len(task), -1, np.int32)
    prefix[inside] = tasks.prefix[task[inside]]
    prefix[(prefix < 0) | (prefix >= len(trace.prefixes))] = -1
    return prefix


def _scaled(ns: Int64, factor: float | NDArray[np.float64]) -> Int64:
    """Exact where the factor is 1."""
    if isinstance(factor, float) and factor == 1.0:
        return ns
    return np.where(factor == 1.0, ns, np.rint(ns * factor)).astype(np.int64)
