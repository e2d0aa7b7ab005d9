"""What a trace shows of memory and disks: how fast results are spilled, and what a worker uses beside them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dask_efficiency.trace.run_trace import TraceTables
from dask_efficiency.trace.tables import MISSING, Int64

#: Bytes a second that are assumed where a trace shows no spilling: pickled into the page cache of one core, measured
#: with arrays of 10 MB.
BANDWIDTH = 1e9

#: Nanoseconds that opening, writing and closing a file takes at least.
LATENCY = 300_000

#: Shorter spilling is not told from what the recorder itself takes.
MIN_NS = 1_000_000

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


def disk_of(trace: TraceTables) -> Disk:
    """Read from a trace how fast results were spilled and read back.

    A trace says how long a run waited, not how much was moved meanwhile. Once memory is full, each new result pushes
    out about as many bytes as it has; a task that has to read its inputs back mostly has to read the largest.
    """
    runs, nbytes = trace.runs, trace.tasks.nbytes
    wrote = np.flatnonzero((runs.spill_ns >= MIN_NS) & (runs.task != MISSING))
    read = np.flatnonzero((runs.unspill_ns >= MIN_NS) & (runs.task != MISSING))
    largest = np.array([_largest_input(trace, int(task)) for task in runs.task[read].tolist()], np.int64)
    return Disk(
        _rate(np.maximum(nbytes[runs.task[wrote]], 0), runs.spill_ns[wrote]), _rate(largest, runs.unspill_ns[read])
    )


def _largest_input(trace: TraceTables, task: int) -> int:
    inputs = trace.dependencies[trace.dependency_starts[task] : trace.dependency_starts[task + 1]]
    return max(0, int(trace.tasks.nbytes[inputs].max())) if len(inputs) else 0


def _rate(nbytes: Int64, ns: Int64) -> float:
    used = (nbytes > 0) & (ns > LATENCY)
    if not used.any():
        return BANDWIDTH
    return float(nbytes[used].sum() / (ns[used] - LATENCY).sum() * 1e9)


def unmanaged_of(trace: TraceTables) -> Int64:
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
