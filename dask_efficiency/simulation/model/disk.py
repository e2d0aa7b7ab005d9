"""What a trace shows of memory and disks: how fast results are spilled, and what a worker uses beside them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Float64, Int32, Int64
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import BLOCKED_BY, Blocked
from dask_efficiency.simulation.model.recently_used import moved

#: Bytes a second that are assumed where a trace shows no spilling: pickled into the page cache of one core, measured
#: with arrays of 10 MB.
BANDWIDTH = 1e9

#: Nanoseconds that opening, writing and closing a file takes at least.
LATENCY = 300_000

#: Shorter spilling is not told from what the recorder itself takes.
MIN_NS = 1_000_000

_SPILLS, _READS_BACK = BLOCKED_BY.index("spill"), BLOCKED_BY.index("unspill")

#: Bytes of a worker's process that are assumed beside results: Dask and a few packages.
UNMANAGED = 150_000_000


@dataclass(frozen=True, slots=True)
class Disk:
    """How long results take to a disk and back.

    Parameters
    ----------
    write, read
        Bytes a second.
    latency
        Nanoseconds of each result, whatever its size.
    """

    write: float = BANDWIDTH
    read: float = BANDWIDTH
    latency: int = LATENCY

    def writing(self, nbytes: int) -> int:
        """Nanoseconds of writing a result."""
        return self.latency + round(nbytes / self.write * 1e9)

    def reading(self, nbytes: int) -> int:
        """Nanoseconds of reading it back."""
        return self.latency + round(nbytes / self.read * 1e9)


def disk_of(trace: RunTrace) -> Disk:
    """Read from a trace how fast results were spilled and read back.

    A trace says for how long a run waited for the disk, not what was moved meanwhile: that is found by keeping its
    results, worker by worker, as Dask does (:mod:`~dask_efficiency.simulation.model.recently_used`).
    """
    runs = trace.runs
    waited = (runs.spill_ns >= MIN_NS) | (runs.unspill_ns >= MIN_NS)
    if not waited.any():
        return Disk()
    workers = np.unique(runs.worker[waited])
    moves = moved(trace, workers.tolist())
    blocked = trace.blocked
    writing, reading = (_took(blocked, workers, cause) for cause in (_SPILLS, _READS_BACK))
    if writing and reading:  # event loops were seen to write and to read, whether a run waited for that or not
        written = moves.stored_bytes + moves.pushed_bytes, moves.stored + moves.pushed
        return Disk(_speed(*written, writing), _speed(moves.read_bytes, moves.read, reading))
    write = _rate(moves.stored_bytes, moves.stored, np.where(runs.spill_ns >= MIN_NS, runs.spill_ns, 0))
    # Reading inputs back pushes others out.
    out = moves.pushed * LATENCY + moves.pushed_bytes / write * 1e9
    back = np.where(runs.unspill_ns >= MIN_NS, runs.unspill_ns, 0)
    left = max(float(back.sum() - out[back > 0].sum()), 0.1 * float(back.sum()))
    return Disk(write, _rate(moves.read_bytes, moves.read, back * (left / max(float(back.sum()), 1.0))))


def _took(blocked: Blocked, workers: Int32, cause: int) -> int:
    """Nanoseconds for which event loops of these workers were blocked by that."""
    rows = (blocked.cause == cause) & np.isin(blocked.worker, workers)
    return int((blocked.stop[rows] - blocked.start[rows]).sum())


def _speed(nbytes: Int64, count: Int64, ns: int) -> float:
    return float(nbytes.sum()) / max(ns - LATENCY * float(count.sum()), 0.1 * ns) * 1e9 or BANDWIDTH


def _rate(nbytes: Int64, count: Int64, ns: Int64 | Float64) -> float:
    """Bytes a second, of all that were moved while somebody waited."""
    used = (count > 0) & (ns > 0)
    moved_bytes, took = float(nbytes[used].sum()), float(ns[used].sum() - LATENCY * count[used].sum())
    if not moved_bytes or took <= 0:
        return BANDWIDTH
    return moved_bytes / took * 1e9


def unmanaged_of(trace: RunTrace) -> Int64:
    """By worker: bytes of its process beside results, the median of its heartbeats.

    Returns
    -------
    array, shape (workers,)
        Where no heartbeat says it, that of the others.
    """
    series = trace.series
    beside = series.memory - np.nan_to_num(series.managed) + np.nan_to_num(series.spilled)
    found = np.full(len(trace.workers), MISSING, np.int64)
    for worker in range(len(trace.workers)):
        of = beside[(series.worker == worker) & ~np.isnan(beside)]
        if len(of):
            found[worker] = max(int(np.median(of)), 0)
    known = found[found != MISSING]
    found[found == MISSING] = int(np.median(known)) if len(known) else UNMANAGED
    return found
