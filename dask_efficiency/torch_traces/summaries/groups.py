"""Groups: rows with equal numbers put together, and their sums, for the tables of a summary."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import count
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, ColumnTable, Int32, Int64
from dask_efficiency.torch_traces.path.lanes import rank_pairs

#: Bytes of one event above which a number is damage, so that the sums of a million events fit into 64 bits: 8 TiB.
MOST_BYTES = 1 << 43

AnyTable = TypeVar("AnyTable", bound=ColumnTable)


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of rows that have equal numbers in some columns, in the order of these numbers."""

    #: Rows by group, in their order within each.
    order: NDArray[np.intp]
    #: Where each group begins in that.
    begins: NDArray[np.intp]

    @classmethod
    def of(cls, *columns: NDArray[np.integer]) -> Self:
        """Group by columns of equal length."""
        number = reduce(rank_pairs, columns[1:], rank_pairs(columns[0], columns[0]))
        order = np.argsort(number, kind="stable")
        return cls(order, np.flatnonzero(np.diff(number[order], prepend=-1)))

    @property
    def first(self) -> NDArray[np.intp]:
        """First row of each group."""
        return self.order[self.begins]

    @property
    def sizes(self) -> Int64:
        """Number of rows in each group."""
        return np.diff(np.append(self.begins, len(self.order))).astype(np.int64)

    def sums(self, values: NDArray[Any]) -> NDArray[Any]:
        """Sum over each group, exact for whole numbers."""
        return np.add.reduceat(values[self.order], self.begins) if len(self.begins) else values[:0]

    def largest(self, values: NDArray[Any]) -> NDArray[Any]:
        """Largest value of each group."""
        return np.maximum.reduceat(values[self.order], self.begins) if len(self.begins) else values[:0]

    def smallest(self, values: NDArray[Any]) -> NDArray[Any]:
        """Smallest value of each group."""
        return np.minimum.reduceat(values[self.order], self.begins) if len(self.begins) else values[:0]


def in_common(names: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], list[Int32]]:
    """Every name of several lists once, and the places of those of each list; MISSING stays."""
    numbers: defaultdict[str, int] = defaultdict(count().__next__)
    places = [np.array([*(numbers[name] for name in listed), MISSING], np.int32) for listed in names]
    return tuple(numbers), places


def joined(tables: Sequence[AnyTable]) -> AnyTable:
    """Rows of several tables, one after another; there is at least one."""
    kind = type(tables[0])
    return kind(**{name: np.concatenate([getattr(table, name) for table in tables]) for name in kind.dtypes()})


def summed(table: AnyTable, *keys: str, constant: Sequence[str] = ()) -> AnyTable:
    """A row for rows with equal keys: the least ``shortest``, the largest ``longest`` and sums of other columns."""
    groups = Groups.of(*(getattr(table, key) for key in keys))
    columns = {}
    for name, column in table.columns().items():
        if name in keys or name in constant:
            columns[name] = column[groups.first]
        elif name == "shortest":
            columns[name] = groups.smallest(column)
        else:
            columns[name] = groups.largest(column) if name == "longest" else groups.sums(column)
    return type(table)(**columns)
