"""Calibration: what each part of a task's way costs, read from a trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.replay.task_times import task_times
from dask_efficiency.simulation.network import Constant
from dask_efficiency.trace.run_trace import TraceTables
from dask_efficiency.trace.schema import Outcome
from dask_efficiency.trace.tables import MISSING, Float64, Int64

#: Nanoseconds that are assumed where a trace shows nothing of the kind: a message on its way, what a scheduler and a
#: worker take to handle one, and what a worker takes around a task.
_MESSAGE, _SCHEDULER, _WORKER, _AROUND = 500_000, 300_000, 150_000, 300_000

#: Dask's own assumption: ``distributed.scheduler.bandwidth``.
_BANDWIDTH = 100e6

#: Bytes of a message from which its size counts, not only its way.
_LARGE = 500_000


@dataclass(frozen=True, slots=True)
class Calibration:
    """What each part of a task's way costs; all durations in nanoseconds."""

    #: By task: its time in the thread, on a worker that is as fast as the middle of all recorded ones.
    compute: Int64
    #: By task: CPU of its thread, as a share of that time.
    cpu: Float64
    #: By task: from when it has a slot until its start in the thread, without reading inputs back from disk.
    prepare: Int64
    #: By task: from its end in the thread until its slot is free, without writing to disk.
    finish: Int64
    #: By task: from its start in the thread until it seceded; MISSING where it did not.
    secede: Int64
    #: By task: how often it fails before it succeeds; -1 is always.
    failures: Int64
    #: By task: size of its result.
    nbytes: Int64
    #: By recorded worker and prefix: how many times as long as in the middle a task takes;
    #: shape (workers, prefixes + 1).
    pace: Float64
    #: A message from the scheduler to a worker and back, where nothing has to wait.
    to_worker: int
    to_scheduler: int
    #: What the scheduler takes for a message from a worker, and a worker for one from the scheduler.
    scheduler: int
    worker: int
    #: What a transfer takes beside the network, and the network that the transfers show.
    transfer: int
    network: Constant


def calibrate(trace: TraceTables) -> Calibration:
    """Read the costs from a trace."""
    runs, count = trace.runs, len(trace.tasks)
    times = task_times(trace)
    pace = times / np.median(times, axis=0)
    rows = _first_runs(trace)
    has = rows != MISSING
    worker, prefix = runs.worker[rows], trace.tasks.prefix
    took = _between(runs.start, runs.stop, rows)
    compute = took.astype(np.float64)
    own = has & (took != MISSING) & (worker >= 0)
    compute[own] /= pace[worker[own], prefix[own]]
    unspill, spill = _part(runs.unspill_ns, rows), _part(runs.spill_ns, rows)
    prepare = _between(runs.executing, runs.start, rows)
    finish = _between(runs.stop, runs.ended, rows)
    secede = _between(runs.start, runs.seceded, rows)
    transfer, network = _transfers(trace)
    return Calibration(
        compute=_known(np.where(own, np.rint(compute), MISSING).astype(np.int64), prefix, _AROUND),
        cpu=np.clip(_part(runs.cpu_ns, rows) / np.maximum(took, 1), 0.0, 1.0),
        prepare=_known(np.where(prepare != MISSING, np.maximum(prepare - unspill, 0), MISSING), prefix, _AROUND),
        finish=_known(np.where(finish != MISSING, np.maximum(finish - spill, 0), MISSING), prefix, _AROUND),
        secede=secede,
        failures=_failures(trace, count),
        nbytes=np.maximum(trace.tasks.nbytes, 0),
        pace=pace,
        to_worker=_low(runs.assigned, runs.received, _MESSAGE),
        to_scheduler=_low(runs.ended, runs.reported, _MESSAGE),
        scheduler=_gap(np.unique(runs.reported[runs.reported != MISSING]), _SCHEDULER),
        worker=_worker_gap(trace),
        transfer=transfer,
        network=network,
    )


def _first_runs(trace: TraceTables) -> Int64:
    """By task: its first run that succeeded, or else its last run; MISSING where it had none."""
    runs, count = trace.runs, len(trace.tasks)
    row = np.full(count, MISSING, np.int64)
    inside = np.flatnonzero((runs.task >= 0) & (runs.task < count) & (runs.start != MISSING))
    row[runs.task[inside]] = inside
    good = inside[runs.outcome[inside] == Outcome.SUCCEEDED][::-1]
    row[runs.task[good]] = good
    return row


def _between(start: Int64, stop: Int64, rows: Int64) -> Int64:
    """By task: from one instant of its run to another; MISSING where one is."""
    if not len(start):
        return np.full(len(rows), MISSING, np.int64)
    known = (rows != MISSING) & (start[rows] != MISSING) & (stop[rows] != MISSING)
    return np.where(known, np.maximum(stop[rows] - start[rows], 0), MISSING)


def _part(ns: Int64, rows: Int64) -> Int64:
    return np.where(rows != MISSING, ns[rows], 0) if len(ns) else np.zeros(len(rows), np.int64)


def _known(values: Int64, prefix: NDArray[Any], otherwise: int) -> Int64:
    """The values, and where there is none the median of the prefix's, of all, or what is assumed."""
    missing = np.flatnonzero(values == MISSING)
    if not len(missing):
        return values
    there = values != MISSING
    found, general = values.copy(), int(np.median(values[there])) if there.any() else otherwise
    for name in np.unique(prefix[missing]).tolist():
        alike = there & (prefix == name)
        found[missing[prefix[missing] == name]] = int(np.median(values[alike])) if alike.any() else general
    return found


def _failures(trace: TraceTables, count: int) -> Int64:
    runs = trace.runs
    inside = (runs.task >= 0) & (runs.task < count)
    failed = np.bincount(runs.task[inside & (runs.outcome == Outcome.FAILED)], minlength=count)
    succeeded = np.bincount(runs.task[inside & (runs.outcome == Outcome.SUCCEEDED)], minlength=count)
    return np.where((failed > 0) & (succeeded == 0), -1, failed)


def _low(start: Int64, stop: Int64, otherwise: int) -> int:
    """What a way takes where nothing has to wait: a low quantile."""
    known = (start != MISSING) & (stop != MISSING)
    return max(int(np.quantile((stop - start)[known], 0.1)), 0) if known.any() else otherwise


def _gap(at: Int64, otherwise: int) -> int:
    """What a process takes for one message: a low quantile of the time between two."""
    gaps = np.diff(np.sort(at))
    gaps = gaps[(gaps > 0) & (gaps < 5_000_000)]
    return int(np.quantile(gaps, 0.25)) if len(gaps) >= 10 else otherwise


def _worker_gap(trace: TraceTables) -> int:
    runs = trace.runs
    found = [
        _gap(np.unique(runs.received[(runs.worker == i) & (runs.received != MISSING)]), 0)
        for i in range(len(trace.workers))
    ]
    found = [ns for ns in found if ns]
    return int(np.median(found)) if found else _WORKER


def _transfers(trace: TraceTables) -> tuple[int, Constant]:
    """What a transfer takes whatever its size, and the bandwidth of large ones."""
    transfers = trace.transfers
    known = transfers.arrived & (transfers.start != MISSING) & (transfers.stop > transfers.start)
    if not known.any():
        return 2 * _MESSAGE, Constant(_bandwidth(trace))
    rows = np.stack([transfers.receiver, transfers.sender, transfers.start, transfers.stop])[:, known]
    messages, of = np.unique(rows, axis=1, return_inverse=True)
    nbytes = np.bincount(of.ravel(), transfers.nbytes[known], minlength=messages.shape[1])
    took = (messages[3] - messages[2]).astype(np.float64)
    small = nbytes < _LARGE
    latency = float(np.median(took[small])) if small.any() else float(took.min())
    large = ~small & (took > latency)
    bandwidth = float(np.median(nbytes[large] / (took[large] - latency)) * 1e9) if large.any() else _bandwidth(trace)
    return round(latency), Constant(bandwidth)


def _bandwidth(trace: TraceTables) -> float:
    return float(trace.config.get("bandwidth", 0)) or _BANDWIDTH
