"""Disk and memory of recorded workers: the speed of spilling, and the memory other than results."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Float64, Int64
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import BLOCKED_BY, STATES, RunOutcome

#: Share of the memory limit from which results are spilled, if the trace does not tell: Dask's default.
TARGET = 0.6
#: Events of a result on a worker, in the order in which those of one instant happen.
_DROP, _PUT, _USE = range(3)


@dataclass(frozen=True, slots=True)
class SpillMoves:
    """Results, and their bytes, that were moved for each run; shape (2, runs)."""

    #: Written to store its result; read back as its inputs; and written to make room for those.
    stored: Int64
    read: Int64
    pushed: Int64


def spill_moves(trace: RunTrace, workers: Sequence[int]) -> SpillMoves:
    """Work out the spilling of some workers, whose least recently used results leave memory first; 0 for other runs."""
    moves = SpillMoves(*np.zeros((3, 2, len(trace.runs)), np.int64))
    share = trace.config.get("distributed.worker.memory.target", TARGET)
    for worker in workers:
        limit = trace.workers[worker].memory_limit * share if share else 0
        if limit:
            _follow_results(trace, worker, float(limit), moves)
    return moves


def _follow_results(trace: RunTrace, worker: int, target: float, moves: SpillMoves) -> None:
    """Follow the results of one worker through memory and disk."""
    sizes = np.maximum(trace.tasks.nbytes, 0).tolist()
    tasks, starts = trace.runs.task.tolist(), trace.dependency_starts.tolist()
    needed = trace.dependencies.tolist()
    memory: OrderedDict[int, int] = OrderedDict()
    disk: dict[int, int] = {}
    total = 0

    def put(task: int, run: int, moved: Int64) -> None:
        nonlocal total
        memory[task] = sizes[task]
        total += sizes[task]
        while total > target and memory:
            oldest, size = memory.popitem(last=False)
            disk[oldest] = size
            total -= size
            if run != MISSING:
                moved[:, run] += 1, size

    for kind, task, run in _events(trace, worker):
        if kind == _DROP:
            total -= memory.pop(task, 0)
            disk.pop(task, None)
        elif kind == _PUT:
            if task not in memory and task not in disk:
                put(task, run, moves.stored)
        else:
            of = tasks[run]
            for other in needed[starts[of] : starts[of + 1]]:
                if other in memory:
                    memory.move_to_end(other)
                elif other in disk:
                    moves.read[:, run] += 1, disk.pop(other)
                    put(other, run, moves.pushed)


def _events(trace: RunTrace, worker: int) -> Iterator[tuple[int, int, int]]:
    """Yield the events of a worker's results in order: kind, task, run."""
    runs, transfers, transitions = trace.runs, trace.transfers, trace.transitions
    of = np.flatnonzero((runs.worker == worker) & (runs.task != MISSING))
    stored = of[(runs.outcome[of] == RunOutcome.SUCCEEDED) & (runs.stop[of] != MISSING)]
    used = of[runs.executing[of] != MISSING]
    came = np.flatnonzero((transfers.receiver == worker) & transfers.arrived & (transfers.task != MISSING))
    gone = [STATES.index("released"), STATES.index("forgotten")]
    left = np.flatnonzero(np.isin(transitions.finish, gone) & (transitions.task != MISSING))
    parts = [
        (transitions.at[left], _DROP, transitions.task[left], np.full(len(left), MISSING)),
        (runs.stop[stored], _PUT, runs.task[stored], stored),
        (transfers.stop[came], _PUT, transfers.task[came], np.full(len(came), MISSING)),
        (runs.executing[used], _USE, runs.task[used], used),
    ]
    at = np.concatenate([part[0] for part in parts])
    kind = np.repeat([part[1] for part in parts], [len(part[0]) for part in parts])
    task, run = (np.concatenate([part[i] for part in parts]) for i in (2, 3))
    order = np.lexsort((kind, at))
    yield from zip(kind[order].tolist(), task[order].tolist(), run[order].tolist(), strict=True)


#: Assumed bytes a second if a trace shows no spilling: measured on one core with arrays of 10 MB, pickled into the page
#: cache.
BANDWIDTH = 1e9
#: Nanoseconds of opening and closing a file: measured with empty ones.
LATENCY = 300_000
#: Nanoseconds of spilling of a run that count: shorter ones may be the recorder's own cost.
MIN_NS = 1_000_000

_SPILLS, _READS_BACK = BLOCKED_BY.index("spill"), BLOCKED_BY.index("unspill")
#: Assumed bytes of a worker's process without results, if no heartbeat tells: Dask and a few packages.
UNMANAGED = 150_000_000


@dataclass(frozen=True, slots=True)
class Disk:
    """Speed of a disk for results: bytes a second, and nanoseconds of each result, whatever its size."""

    write: float = BANDWIDTH
    read: float = BANDWIDTH
    latency: int = LATENCY

    def writing(self, nbytes: int) -> int:
        """Nanoseconds to write a result."""
        return self.latency + round(nbytes / self.write * 1e9)

    def reading(self, nbytes: int) -> int:
        """Nanoseconds to read it back."""
        return self.latency + round(nbytes / self.read * 1e9)


def read_disk(trace: RunTrace) -> Disk:
    """Estimate from a trace how fast results were spilled and read back; the bytes follow from :func:`spill_moves`."""
    runs = trace.runs
    waited = (runs.spill_ns >= MIN_NS) | (runs.unspill_ns >= MIN_NS)
    if not waited.any():
        return Disk()
    workers = np.unique(runs.worker[waited])
    moves = spill_moves(trace, workers.tolist())
    blocked = trace.blocked.take(np.isin(trace.blocked.worker, workers))
    took = blocked.stop - blocked.start
    writing, reading = (int(took[blocked.cause == cause].sum()) for cause in (_SPILLS, _READS_BACK))
    if writing and reading:  # all writing and reading of the event loops was recorded, not only what runs waited for
        return Disk(_speed(moves.stored + moves.pushed, writing), _speed(moves.read, reading))
    write = _rate(moves.stored, np.where(runs.spill_ns >= MIN_NS, runs.spill_ns, 0))
    # Reading inputs back pushes others out.
    out = moves.pushed[0] * LATENCY + moves.pushed[1] / write * 1e9
    back = np.where(runs.unspill_ns >= MIN_NS, runs.unspill_ns, 0)
    left = max(float(back.sum() - out[back > 0].sum()), 0.1 * float(back.sum()))
    return Disk(write, _rate(moves.read, back * (left / max(float(back.sum()), 1.0))))


def _speed(moved: Int64, ns: int) -> float:
    count, nbytes = moved.sum(axis=1)
    return float(nbytes) / max(ns - LATENCY * float(count), 0.1 * ns) * 1e9 or BANDWIDTH


def _rate(moved: Int64, ns: Int64 | Float64) -> float:
    """Bytes a second of those that were moved while a run waited."""
    (count, nbytes), used = moved, (moved[0] > 0) & (ns > 0)
    moved_bytes, took = float(nbytes[used].sum()), float(ns[used].sum() - LATENCY * count[used].sum())
    return moved_bytes / took * 1e9 if moved_bytes and took > 0 else BANDWIDTH


def read_unmanaged(trace: RunTrace) -> Int64:
    """By worker: bytes of its process without results, the median of its heartbeats, or of other workers'."""
    series = trace.series
    unmanaged = series.memory - np.nan_to_num(series.managed) + np.nan_to_num(series.spilled)
    by_worker = np.full(len(trace.workers), MISSING, np.int64)
    for worker in range(len(trace.workers)):
        of = unmanaged[(series.worker == worker) & ~np.isnan(unmanaged)]
        if len(of):
            by_worker[worker] = max(int(np.median(of)), 0)
    known = by_worker[by_worker != MISSING]
    by_worker[by_worker == MISSING] = int(np.median(known)) if len(known) else UNMANAGED
    return by_worker
