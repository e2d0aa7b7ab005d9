"""Columns: assigns the columns of an array to a bounded number of names, least recently used ones first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Name = TypeVar("Name")


class Columns(Generic[Name]):
    """Assigns one of ``size`` columns to each name; if none is free, the one that was unused for longest."""

    def __init__(self, size: int) -> None:
        self._columns: dict[Name, int] = {}
        self._free = list(range(size - 1, -1, -1))
        #: By column, its last use in monotonic nanoseconds.
        self.used_at: NDArray[np.int64] = np.zeros(size, np.int64)

    def __len__(self) -> int:
        return len(self._columns)

    def get(self, name: Name) -> int | None:
        """Column of a name; None if it has none."""
        return self._columns.get(name)

    def of(self, names: Iterable[Name]) -> list[int | None]:
        """Columns of several names; None for each that has none."""
        return list(map(self._columns.get, names))

    @property
    def free(self) -> int:
        """Number of free columns."""
        return len(self._free)

    def quiet(self, *, before: int) -> list[Name]:
        """Names whose columns were not used since an instant, the longest unused first."""
        used = sorted((int(self.used_at[column]), column, name) for name, column in self._columns.items())
        return [name for at, _, name in used if at < before]

    def add(self, name: Name, *, at: int) -> int:
        """Assign a column to a new name."""
        if self._free:
            column = self._free.pop()
        else:
            column = int(np.argmin(self.used_at))
            del self._columns[next(old for old, place in self._columns.items() if place == column)]
        self._columns[name] = column
        self.used_at[column] = at
        return column

    def take_away(self, name: Name) -> int:
        """Remove a name's column, which is unavailable until :meth:`put_back`."""
        return self._columns.pop(name)

    def put_back(self, column: int) -> None:
        """Make a column available again."""
        self._free.append(column)

    def occupied(self) -> NDArray[np.intp]:
        """Columns that have a name, in order."""
        return np.array(sorted(self._columns.values()), np.intp)
