"""Segments: the stretches of a critical path, in time order, without gaps."""

from __future__ import annotations

from dataclasses import dataclass

from dask_efficiency.trace.tables import Int8, Int32, Int64, Table


@dataclass(frozen=True, slots=True)
class Segments(Table):
    """A row for each stretch of a path, in time order; each begins where the one before stops."""

    #: Position in :data:`~dask_efficiency.critical_paths.kinds.KINDS`.
    kind: Int8
    #: Nanoseconds since the epoch, on the scheduler's clock.
    start: Int64
    stop: Int64
    #: Positions in the trace: of the task, of the run of it, and of the worker.
    task: Int32
    run: Int32
    worker: Int32
    #: The worker at the other end of a transfer.
    sender: Int32
