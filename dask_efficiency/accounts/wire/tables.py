"""Tables in heartbeats: rows of whole numbers, each at a place that its name was given once.

A table travels as two lists: the rows that changed after some state, each led by its place; and the places whose names
changed, each followed by its name. Numbers are totals, so applying the lists to that state, or to any later one, gives
the present table, whatever was lost or repeated in between.

Lists, and not bytes: Dask shows what heartbeats carry as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.checks import MAX_NAMES, MAX_NANOSECONDS, RefusedPayload, short, wholes

Ints = NDArray[np.int64]
Name = TypeVar("Name")
Default = TypeVar("Default")
#: A column of numbers below this can be summed in 63 bits.
_MAX_SMALL = (1 << 63) // (MAX_NAMES + 1)


# -- writing ---------------------------------------------------------------------------------------


class TableWriter(Generic[Name]):
    """A table, and the state of the last change of each row and name."""

    def __init__(self, columns: int) -> None:
        self._nothing: Sequence[int] = (0,) * columns
        self._places: dict[Name, int] = {}
        self._names: list[Name | None] = []
        self._rows: list[Sequence[int]] = []
        self._free: list[int] = []
        #: By place, the state in which its row changed last, and its name.
        self._changed: list[int] = []
        self._named: list[int] = []

    def __len__(self) -> int:
        return len(self._places)

    def place(self, name: Name, default: Default) -> int | Default:
        """Place of a name, or the default."""
        return self._places.get(name, default)

    def take(self, seq: int, rows: Mapping[Name, Sequence[int]], names: Collection[Name] | None = None) -> None:
        """Take rows that may have changed, and must not change later; all but ``names`` lose their places."""
        places, held = self._places, self._rows
        for name, row in rows.items():
            place = places.get(name)
            if place is None:
                self._set(self._new_place(name), name, row, seq)
            elif held[place] != row:
                held[place], self._changed[place] = row, seq
        names = rows if names is None else names
        if len(places) > len(names):
            for name in places.keys() - names:
                place = places.pop(name)
                self._set(place, None, self._nothing, seq)
                self._free.append(place)

    def write(self, since: int) -> tuple[list[int], list[object]]:
        """Rows that changed after a state, led by their places; and changed names, each after its place."""
        rows = [n for place, seq in enumerate(self._changed) if seq > since for n in (place, *self._rows[place])]
        named: list[object] = []
        for place, seq in enumerate(self._named):
            if seq > since:
                named += (place, self._names[place])
        return rows, named

    def _new_place(self, name: Name) -> int:
        if not self._free:
            self._free.append(len(self._names))
            self._names.append(None)
            self._rows.append(self._nothing)
            self._changed.append(0)
            self._named.append(0)
        self._places[name] = place = self._free.pop()
        return place

    def _set(self, place: int, name: Name | None, row: Sequence[int], seq: int) -> None:
        self._names[place], self._rows[place] = name, row
        self._changed[place] = self._named[place] = seq


# -- reading ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class WireTable(Generic[Name]):
    """A table on its reader's side: a row for each name."""

    #: By place; None where it is free.
    names: tuple[Name | None, ...]
    rows: Ints

    @property
    def by_name(self) -> dict[Name, tuple[int, ...]]:
        """Rows by name."""
        pairs = zip(self.names, self.rows.tolist(), strict=True)
        return {name: tuple(row) for name, row in pairs if name is not None}


class TableChange(NamedTuple, Generic[Name]):
    """A table after a payload, and the changes in it."""

    table: WireTable[Name]
    #: Places of the rows in the payload, ascending, and their growth, which may be negative.
    at: Ints
    gained: Ints
    #: True if each old name is still at its place.
    kept: bool


def read_table(
    name: str,
    table: WireTable[Name] | None,
    rows: object,
    named: object,
    *,
    columns: int,
    check: Callable[[str, Sequence[Any]], Sequence[Name]],
) -> TableChange[Name]:
    """Apply a payload, as of :meth:`TableWriter.write`, to a table, None if it is complete; ``check`` reads names."""
    at, sent = _rows(name, rows, columns)
    if table is None:
        table = WireTable((), np.zeros((0, columns), np.int64))
    names, before, kept = table.names, table.rows, True
    if named:
        new = _named(name, named, check)
        kept = all(place >= len(names) or names[place] in (None, each) for place, each in new.items())
        names = _with_names(name, names, new)
        before = np.zeros((len(names), columns), np.int64)
        before[: len(table.rows)] = table.rows
    if not len(at):
        return TableChange(WireTable(names, before) if named else table, at, sent, kept)
    if at[-1] >= len(names):
        raise RefusedPayload(f"{name} has a row at {at[-1]}; expected one of {len(names)}")
    after = before.copy()
    after[at] = sent
    if None in names and after[[place for place, each in enumerate(names) if each is None]].any():
        raise RefusedPayload(f"{name} has a row without a name")
    return TableChange(WireTable(names, after), at, sent - before[at], kept)


def _rows(name: str, value: object, columns: int) -> tuple[Ints, Ints]:
    """Places and numbers of the rows in a payload."""
    width = columns + 1
    if not isinstance(value, (list, tuple)) or len(value) % width or len(value) > width * MAX_NAMES:
        raise RefusedPayload(f"{name} is {short(value)}; expected rows of a place and {columns} numbers")
    # Without a call for each number: heartbeats are full of them.
    if not {*map(type, value)} <= {int}:
        wholes(name, value)
    try:
        found = np.array(value, np.int64).reshape(-1, width)
    except OverflowError:
        raise RefusedPayload(f"{name} has {short(max(value, key=abs))}; expected at most 2**62") from None
    if len(found) and (found.min() < 0 or found.max() > MAX_NANOSECONDS):
        wholes(name, value)
    at = found[:, 0]
    if len(at) > 1 and (at[1:] <= at[:-1]).any():
        raise RefusedPayload(f"{name} has rows at {short(at.tolist())}; expected ascending places")
    return at, found[:, 1:]


def _named(name: str, value: object, check: Callable[[str, Sequence[Any]], Sequence[Name]]) -> dict[int, Name | None]:
    if not isinstance(value, (list, tuple)) or len(value) % 2 or len(value) > 2 * MAX_NAMES:
        raise RefusedPayload(f"names of {name} are {short(value)}; expected places and names in turn")
    name = f"names of {name}"
    places, names = value[::2], value[1::2]
    wholes(name, places)
    checked = iter(check(name, [each for each in names if each is not None]))
    return {place: None if each is None else next(checked) for place, each in zip(places, names, strict=True)}


def _with_names(name: str, names: tuple[Name | None, ...], new: Mapping[int, Name | None]) -> tuple[Name | None, ...]:
    size = max(len(names), max(new) + 1)
    if size > MAX_NAMES:
        raise RefusedPayload(f"{name} has {size} entries; expected at most {MAX_NAMES}")
    found = [*names, *[None] * (size - len(names))]
    for place, each in new.items():
        found[place] = each
    there = [each for each in found if each is not None]
    if len(set(there)) < len(there):
        raise RefusedPayload(f"{name} has a name in two places")
    return tuple(found)


def column_sums(rows: Ints) -> list[int]:
    """The exact sum of each column of numbers that are not negative."""
    if rows.max(initial=0) >= _MAX_SMALL:
        return [sum(column) for column in rows.T.tolist()]
    sums: list[int] = np.add.reduce(rows, axis=0).tolist()
    return sums
