"""Segments of a critical path, in time order and without gaps."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from dask_efficiency.accounts.tables import ColumnTable, Int8, Int32, Int64
from dask_efficiency.runs.path.kinds import KINDS, Kind

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
