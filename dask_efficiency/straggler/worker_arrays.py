"""WorkerArrays: base of what keeps numbers of each worker in arrays that grow with the cluster."""

from __future__ import annotations

from typing import ClassVar

import numpy as np


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
