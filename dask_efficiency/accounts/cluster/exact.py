"""Sums of many workers' numbers, exact however large."""

from __future__ import annotations

from collections.abc import Sequence
from operator import add
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.worker.balance import OTHER

#: What is added up in 64 bits before it goes to whole numbers of any size: a large cluster fills them in a day.
MAX_PENDING = 1 << 62


class ExactSums:
    """A table of sums.

    Parameters
    ----------
    rows, columns
        How many there are; there may be more rows later.
    """

    def __init__(self, rows: int, columns: int) -> None:
        #: What comes on top of ``_whole``, and the most that any of it can be.
        self._pending = np.zeros((0, columns), np.int64)
        self._most = 0
        self._whole: list[list[int]] = []
        self.grow(rows)

    def grow(self, rows: int) -> None:
        """Grow to a number of rows; new ones begin at 0."""
        missing = rows - len(self._whole)
        if missing > 0:
            columns = self._pending.shape[1]
            self._pending = np.concatenate([self._pending, np.zeros((missing, columns), np.int64)])
            self._whole += [[0] * columns for _ in range(missing)]

    def add(self, at: int | NDArray[np.intp], gained: NDArray[np.int64], *, most: int, distinct: bool = True) -> None:
        """Add one row, or several.

        Parameters
        ----------
        at, gained
            The row, or rows, and the numbers to add.
        most
            No sum of a column of ``gained`` may be more.
        distinct
            Whether no row is twice in ``at``.
        """
        if self._most + most >= MAX_PENDING:
            self._settle()
        if most >= MAX_PENDING:
            for row, more in zip(np.atleast_1d(at).tolist(), np.atleast_2d(gained).tolist(), strict=True):
                self._whole[row] = list(map(add, self._whole[row], more))
            return
        self._most += most
        if distinct:
            self._pending[at] += gained
        else:
            np.add.at(self._pending, at, gained)

    def rows(self) -> list[list[int]]:
        """The sums so far."""
        self._settle()
        return self._whole

    def _settle(self) -> None:
        """Move what is pending to the whole sums."""
        if self._most:
            pending = self._pending.tolist()
            self._whole = [list(map(add, *rows)) for rows in zip(self._whole, pending, strict=True)]
            self._pending[:] = 0
            self._most = 0


class NamedSums:
    """Sums by name.

    Parameters
    ----------
    max_names
        Names that are kept apart; later ones are added up under one.
    columns
        Numbers of each.
    """

    def __init__(self, max_names: int, columns: int) -> None:
        self._max_names = max_names
        self._places: dict[str, int] = {}
        self._sums = ExactSums(0, columns)

    def places(self, names: Sequence[str | None]) -> NDArray[np.intp]:
        """Find the rows of names; new ones begin at 0."""
        found: list[int | None] = [*map(self._places.get, cast("Sequence[str]", names))]
        if None in found:
            found = [
                self._place(name or "") if place is None else place for place, name in zip(found, names, strict=True)
            ]
            self._sums.grow(len(self._places))
        return np.array(found, np.intp)

    def _place(self, name: str) -> int:
        if name not in self._places and len(self._places) >= self._max_names:
            name = OTHER
        return self._places.setdefault(name, len(self._places))

    def add(self, places: NDArray[np.intp], gained: NDArray[np.int64], *, most: int) -> None:
        """Add rows, each to a place; no sum of their columns may be more than ``most``."""
        # Where there are too many names, several may have one place.
        self._sums.add(places, gained, most=most, distinct=len(self._places) <= self._max_names)

    def by_name(self) -> dict[str, tuple[int, ...]]:
        """The sums of those names that have any place."""
        rows = self._sums.rows()
        return {name: tuple(rows[place]) for name, place in self._places.items()}
