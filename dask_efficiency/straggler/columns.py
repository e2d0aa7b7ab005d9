"""Columns: assigns the columns of an array to a bounded number of names, least recently used ones first."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Name = TypeVar("Name")


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
