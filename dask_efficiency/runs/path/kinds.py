"""Segments of a critical path, in time order and without gaps, and the kinds of their use."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

import numpy as np

from dask_efficiency.accounts.tables import ColumnTable, Int8, Int32, Int64


class Kind(StrEnum):
    """Use of a segment of the critical path, with its meaning for a reader."""

    #: Phrase that says what goes on in such a segment.
    meaning: str

    def __new__(cls, value: str, meaning: str = "") -> Self:
        """Make a member that equals its value."""
        member = str.__new__(cls, value)
        member._value_, member.meaning = value, meaning
        return member

    CLIENT_SUBMIT = "client-submit", "the client prepares and sends a graph, or your own code is thinking"
    GRAPH_UPDATE = "graph-update", "the scheduler takes a graph in"
    SCHEDULER_TRANSITION = "scheduler-transition", "the scheduler is busy"
    SCHEDULER_QUEUE = "scheduler-queue", "a task waits on the scheduler for a worker with room"
    SCHEDULER_TO_WORKER = "scheduler-to-worker", "the scheduler's message is on its way"
    TRANSFER_QUEUE = "transfer-queue", "an input waits for its turn to be fetched"
    TRANSFER = "transfer", "an input comes from another worker"
    READY_WAIT = "ready-wait", "a task could run, and waits for a slot"
    UNSPILL = "unspill", "inputs are read back from disk"
    SPILL = "spill", "a result is written to disk"
    EXECUTOR_HANDOFF = "executor-handoff", "from a worker's event loop to the thread"
    COMPUTE_CPU = "compute-cpu", "a task's thread computes"
    COMPUTE_NONCPU = "compute-noncpu", "a task runs, but its thread waits: reading, writing, a lock, the GIL or a core"
    GPU_COMPUTE = "gpu-compute", "a task's own work on the GPU"
    GPU_COMMUNICATION = "gpu-communication", "a task's collectives with other processes"
    KERNEL_LAUNCH = "kernel-launch", "a kernel was asked for, and the idle GPU has not begun it"
    KERNEL_GAP = "kernel-gap", "from one kernel to the next, which was asked for already"
    GPU_SYNC = "gpu-sync", "a task waits for the GPU, and no work of the GPU explains it"
    DATA_LOADING = "data-loading", "a task waits for its next batch of data"
    WORKER_LOOP = "worker-loop", "a worker's event loop is busy"
    REPORT = "report", "the message that a task has ended is on its way"
    RESULT_GATHER = "result-gather", "the client fetches results"
    NO_WORKERS = "no-workers", "there is no worker at all, and work waits for one"
    LOST_WORKER = "lost-worker", "lost with a worker that vanished"
    UNATTRIBUTED = "unattributed", "nothing that was recorded explains it"


#: Kinds by position, as :class:`~dask_efficiency.runs.path.kinds.Segments` holds them.
KINDS = tuple(Kind)

#: Kinds in which a task itself runs.
COMPUTE = (
    Kind.COMPUTE_CPU,
    Kind.COMPUTE_NONCPU,
    Kind.GPU_COMPUTE,
    Kind.GPU_COMMUNICATION,
    Kind.KERNEL_LAUNCH,
    Kind.KERNEL_GAP,
    Kind.GPU_SYNC,
    Kind.DATA_LOADING,
)


#: A row of :class:`Segments`, its values in the order of the columns.
SegmentRow = tuple[int, ...]
#: From an instant to another one, in nanoseconds.
TimeRange = tuple[int, int]
#: By kind, its position in :data:`~dask_efficiency.runs.path.kinds.KINDS`.
CODES = {kind: position for position, kind in enumerate(KINDS)}


@dataclass(frozen=True, slots=True, repr=False)
class Segments(ColumnTable):
    """A row for each segment of a path, in time order; each begins where the one before it stops."""

    #: Position in :data:`~dask_efficiency.runs.path.kinds.KINDS`.
    kind: Int8
    #: Nanoseconds since the epoch, on the scheduler's clock.
    start: Int64
    stop: Int64
    #: Positions in the trace: of the task, of its run, and of the worker.
    task: Int32
    run: Int32
    worker: Int32
    #: The worker at the other end of a transfer.
    sender: Int32

    @classmethod
    def from_rows(cls, rows: Iterable[SegmentRow]) -> Self:
        """Make a table of rows."""
        names = cls.dtypes()
        columns = list(zip(*rows, strict=True)) or [()] * len(names)
        return cls(**{name: np.array(c, dtype) for (name, dtype), c in zip(names.items(), columns, strict=True)})

    def rows(self) -> Iterator[SegmentRow]:
        """The rows, in order."""
        return zip(*(column.tolist() for column in self.columns().values()), strict=True)


def relabelled(
    row: SegmentRow, intervals: Sequence[TimeRange], kind: Kind, *, worker: int | None = None
) -> Iterator[SegmentRow]:
    """Cut a row up so that its parts within some sorted, disjoint intervals have another kind."""
    code, start, stop, task, run, own, sender = row
    for first, last in overlaps(intervals, start, stop):
        if start < first:
            yield (code, start, first, task, run, own, sender)
        yield (CODES[kind], first, last, task, run, own if worker is None else worker, sender)
        start = last
    if start < stop:
        yield (code, start, stop, task, run, own, sender)


def overlaps(intervals: Sequence[TimeRange], start: int, stop: int) -> Iterator[TimeRange]:
    """Clip sorted, disjoint intervals to the time between two instants."""
    for i in range(max(bisect_right(intervals, (start, start)) - 1, 0), len(intervals)):
        first, last = intervals[i]
        if first >= stop:
            return
        if last > start:
            yield max(first, start), min(last, stop)
