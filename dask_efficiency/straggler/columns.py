"""Columns: gives each of a bounded number of names a column of an array."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Name = TypeVar("Name")


class Columns(Generic[Name]):
    """Gives names a column each.

    Where there is none left, a new name takes the one that was unused for longest, unless somebody else makes room.

    Parameters
    ----------
    size
        How many columns there are.
    """

    def __init__(self, size: int) -> None:
        self._columns: dict[Name, int] = {}
        self._free = list(range(size - 1, -1, -1))
        #: By column, when it was last used, in monotonic nanoseconds.
        self.used_at: NDArray[np.int64] = np.zeros(size, np.int64)

    def __len__(self) -> int:
        return len(self._columns)

    def get(self, name: Name) -> int | None:
        """The column of a name; None where it has none."""
        return self._columns.get(name)

    def of(self, names: Iterable[Name]) -> list[int | None]:
        """The columns of some names; None for each that has none."""
        return list(map(self._columns.get, names))

    @property
    def free(self) -> int:
        """Number of columns that are left."""
        return len(self._free)

    def free_since(self) -> int | None:
        """WindowEnd since which the column that the next name gets is unused; None where it has no name."""
        return None if self._free else int(self.used_at.min())

    def quiet(self, *, before: int) -> list[Name]:
        """Names whose columns were not used since an instant, those first that were unused for longest."""
        used = [(int(self.used_at[column]), column, name) for name, column in self._columns.items()]
        return [name for at, _, name in sorted(used, key=lambda each: each[:2]) if at < before]

    def add(self, name: Name, *, at: int) -> tuple[int, Name | None]:
        """Give a new name a column; returns it with the name that had it before, if one had."""
        displaced = None
        if self._free:
            column = self._free.pop()
        else:
            column = int(np.argmin(self.used_at))
            displaced = next(old for old, place in self._columns.items() if place == column)
            del self._columns[displaced]
        self._columns[name] = column
        self.used_at[column] = at
        return column, displaced

    def take_away(self, name: Name) -> int:
        """Take a column from its name; it is unavailable until :meth:`put_back`."""
        return self._columns.pop(name)

    def put_back(self, column: int) -> None:
        """Make a column available for a new name."""
        self._free.append(column)

    def occupied(self) -> NDArray[np.intp]:
        """The columns that have a name, in order."""
        return np.array(sorted(self._columns.values()), np.intp)
