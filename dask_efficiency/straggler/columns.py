"""Columns: which column of an array each of a bounded number of names has."""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Name = TypeVar("Name")


class Columns(Generic[Name]):
    """Gives names a column each; where there is none left, a new name takes the one that was unused for longest.

    Parameters
    ----------
    size
        How many columns there are.
    """

    def __init__(self, size: int) -> None:
        self._columns: dict[Name, int] = {}
        #: By column, when it was last used, in monotonic nanoseconds.
        self.used_at: NDArray[np.int64] = np.zeros(size, np.int64)

    def __len__(self) -> int:
        return len(self._columns)

    def get(self, name: Name) -> int | None:
        """The column of a name; None where it has none."""
        return self._columns.get(name)

    def free_since(self) -> int | None:
        """Since when the column that the next name gets is unused; None where it never had a name."""
        return int(self.used_at.min()) if len(self._columns) == len(self.used_at) else None

    def add(self, name: Name, *, at: int) -> tuple[int, Name | None]:
        """Give a new name a column; returns it with the name that had it before, if one had."""
        column, displaced = len(self._columns), None
        if column == len(self.used_at):
            column = int(np.argmin(self.used_at))
            displaced = next(old for old, place in self._columns.items() if place == column)
            del self._columns[displaced]
        self._columns[name] = column
        self.used_at[column] = at
        return column, displaced

    def occupied(self) -> NDArray[np.intp]:
        """The columns that have a name, in order."""
        return np.array(sorted(self._columns.values()), np.intp)
