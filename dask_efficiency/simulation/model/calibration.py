"""Calibration: costs of each part of a task's way, read from a trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Float64, Int64
from dask_efficiency.runs.replay.durations import task_times
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import RunOutcome
from dask_efficiency.simulation.model.disk import Disk, read_disk, read_unmanaged
from dask_efficiency.simulation.model.overheads import Overheads, overheads
from dask_efficiency.simulation.model.thread_waits import (
    core_waits,
    few_cores,
    read_gil,
    shares_of_others,
    waits_for_others,
)
from dask_efficiency.simulation.model.topology import NetworkSpec
from dask_efficiency.simulation.model.transfer_costs import TransferCosts, transfer_costs

#: Quantile above which recorded costs include waiting for a core: where processes had a core each, and where they had
#: less. With the first, a table's shuffle on one worker is predicted 1 to 2 % too short; with all costs, 6 to 10 % too
#: long. With the second, thirteen programs on two workers and two cores are predicted 1.5 % too short in the mean; with
#: the first, 3 % too long.
RARE, RARE_WITH_FEW_CORES = 0.9, 0.75
#: Assumed nanoseconds of a task in its thread if a trace shows none: a guess, as such a trace has no run.
_COMPUTE = 300_000


@dataclass(frozen=True, slots=True)
class Calibration:
    """Costs of each part of a task's way; durations in nanoseconds."""

    #: By task: its time in the thread if no other thread holds Python's lock (GIL), on a worker of median speed.
    compute: Int64
    #: By task: CPU of its thread, as a share of that time.
    cpu: Float64
    #: By task: the share of that time in which it holds Python's lock (GIL).
    held: Float64
    #: By prefix: mean number of other threads of the process that held the lock while its tasks ran.
    crowd: Float64
    #: By task: the share of that time in which it uses the GPU.
    gpu: Float64
    #: By task: from its start in the thread until it seceded; MISSING where it did not.
    secede: Int64
    #: Of :func:`failures`.
    failures: Int64
    #: By task: size of its result.
    nbytes: Int64
    #: By recorded worker and prefix: a task's time as a multiple of the median worker's; shape (workers, prefixes + 1).
    pace: Float64
    overheads: Overheads
    transfers: TransferCosts
    #: Speed of spilling, and by recorded worker: bytes of its process other than results.
    disk: Disk
    unmanaged: Int64
    #: Quantile above which costs include waiting for a core.
    rare: float = 1.0
    #: Assumptions, a sentence each.
    notes: tuple[str, ...] = ()


def calibrate(
    trace: RunTrace,
    gil: Mapping[str, float] | None = None,
    network: NetworkSpec | None = None,
    cores: Mapping[str, float] | None = None,
    *,
    others: bool = True,
) -> Calibration:
    """Read the costs from a trace; on the recorded network, its share of the transfers' time is no cost of theirs.

    Without ``others``, waiting for cores that other processes took is no cost.
    """
    known = {**(cores or {}), **{worker.host: worker.cores for worker in trace.workers if 0 < worker.cores < inf}}
    gone = {} if others else shares_of_others(trace)
    rare = 1.0 if not cores else RARE_WITH_FEW_CORES if few_cores(trace, known) else RARE
    runs, prefix = trace.runs, trace.tasks.prefix
    times = task_times(trace)
    pace = times / np.median(times, axis=0)
    rows = _first_runs(trace)
    # Without waiting for a core, but at least as long as they computed.
    waits = np.maximum(core_waits(trace, known), waits_for_others(trace)) if gone else core_waits(trace, known)
    waited = np.rint(waits).astype(np.int64)
    worker, lock = runs.worker[rows], read_gil(trace, gil, waits)
    alone = np.maximum(lock.alone - waited, np.minimum(np.maximum(runs.cpu_ns, 0), lock.alone))
    took = _of_run(np.where(lock.alone == MISSING, MISSING, alone), rows, MISSING)
    compute = took.astype(np.float64)
    own = (rows != MISSING) & (took != MISSING) & (worker >= 0)
    compute[own] /= pace[worker[own], prefix[own]]
    seceded = (runs.start != MISSING) & (runs.seceded != MISSING)
    return Calibration(
        compute=_filled_in(np.where(own, np.rint(compute), MISSING).astype(np.int64), prefix, _COMPUTE),
        cpu=np.clip(_of_run(runs.cpu_ns, rows, 0) / np.maximum(took, 1), 0.0, 1.0),
        held=_of_run(lock.held, rows, 0.0),
        crowd=lock.crowd,
        gpu=np.clip(_of_run(runs.gpu_ns, rows, 0) / np.maximum(took, 1), 0.0, 1.0),
        secede=_of_run(np.where(seceded, np.maximum(runs.seceded - runs.start, 0), MISSING), rows, MISSING),
        failures=failures(trace),
        nbytes=np.maximum(trace.tasks.nbytes, 0),
        pace=pace,
        overheads=overheads(trace),
        # For the rest of the costs, no core was free.
        rare=rare * (1.0 - max(gone.values(), default=0.0)),
        transfers=transfer_costs(trace, network),
        disk=read_disk(trace),
        unmanaged=read_unmanaged(trace),
        notes=lock.notes,
    )


def _first_runs(trace: RunTrace) -> Int64:
    """By task: its first run that succeeded, or else its last run; MISSING if it had none."""
    runs, count = trace.runs, len(trace.tasks)
    row = np.full(count, MISSING, np.int64)
    inside = np.flatnonzero((runs.task >= 0) & (runs.task < count) & (runs.start != MISSING))
    row[runs.task[inside]] = inside
    good = inside[runs.outcome[inside] == RunOutcome.SUCCEEDED][::-1]
    row[runs.task[good]] = good
    return row


def _of_run(values: NDArray[Any], rows: Int64, otherwise: float) -> NDArray[Any]:
    """By task: value of its run, or another one if it has none."""
    return np.where(rows != MISSING, values[rows], otherwise)


def _filled_in(values: Int64, prefix: NDArray[Any], otherwise: int) -> Int64:
    """Fill in missing values by the median of the prefix, of all, or an assumption."""
    missing = np.flatnonzero(values == MISSING)
    if not len(missing):
        return values
    known = values != MISSING
    filled, general = values.copy(), int(np.median(values[known])) if known.any() else otherwise
    for name in np.unique(prefix[missing]).tolist():
        alike = known & (prefix == name)
        filled[missing[prefix[missing] == name]] = int(np.median(values[alike])) if alike.any() else general
    return filled


def failures(trace: RunTrace) -> Int64:
    """By task: number of failures before it succeeds; -1 is always."""
    runs, count = trace.runs, len(trace.tasks)
    inside = (runs.task >= 0) & (runs.task < count)
    failed, succeeded = (
        np.bincount(runs.task[inside & (runs.outcome == outcome)], minlength=count)
        for outcome in (RunOutcome.FAILED, RunOutcome.SUCCEEDED)
    )
    return np.where((failed > 0) & (succeeded == 0), -1, failed)
