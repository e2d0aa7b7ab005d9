"""Arrays of bounded size: WorkerArrays, with a row for each worker; and Columns, assigned to the names last used."""

from __future__ import annotations

from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

Name = TypeVar("Name")

#: Prefixes, or kernels, that are compared: a few more than the 50 of each that a worker's heartbeats carry, as workers
#: do not all have the same.
MAX_COLUMNS = 64


class Columns(dict[Name, int]):
    """Column of each name, of ``size`` that there are."""

    def __init__(self, size: int) -> None:
        super().__init__()
        #: Columns that no name has and that may be given, the next one last.
        self.free = list(range(size - 1, -1, -1))
        #: By column, its last use in monotonic nanoseconds.
        self.used_at: NDArray[np.int64] = np.zeros(size, np.int64)

    def quiet(self, *, before: int) -> list[Name]:
        """Names whose columns were not used since an instant, the longest unused first."""
        used = sorted((int(self.used_at[column]), column, name) for name, column in self.items())
        return [name for at, _, name in used if at < before]

    def add(self, name: Name, *, at: int) -> int:
        """Assign a column to a new name; if none is free, the one that was unused for longest."""
        if self.free:
            column = self.free.pop()
        else:
            column = int(np.argmin(self.used_at))
            del self[next(old for old, place in self.items() if place == column)]
        self[name] = column
        self.used_at[column] = at
        return column


class WorkerArrays:
    """Arrays in which each worker has a row, whatever the axis is."""

    #: Attribute, the axis of the workers, and the number of a worker of which nothing is known.
    ARRAYS: ClassVar[tuple[tuple[str, int, float], ...]]

    @property
    def nbytes(self) -> int:
        """Size of the arrays in bytes."""
        return sum(getattr(self, name).nbytes for name, _, _ in self.ARRAYS)

    def grow(self, rows: int) -> None:
        """Make room for this many workers."""
        for name, axis, blank in self.ARRAYS:
            array = getattr(self, name)
            shape = list(array.shape)
            shape[axis] = rows
            # The new part of zeros stays untouched: with thousands of workers it would take longer than all the rest.
            grown = np.full(shape, blank, array.dtype) if blank else np.zeros(shape, array.dtype)
            grown[tuple(map(slice, array.shape))] = array
            setattr(self, name, grown)

    def reset(self, row: int) -> None:
        """Clear a row, which another worker has now."""
        for name, axis, blank in self.ARRAYS:
            np.moveaxis(getattr(self, name), axis, 0)[row] = blank
