"""Tables of whole numbers as text: of the rows that changed, and of each number only the digits that can have changed.

A table has a row of numbers for each of its names. Its writer gives each name a place, says so once, and then sends
the row under its place. Totals are sent modulo a power of 128 that is larger than what any number of the column grew
since a state that the reader has or is past: a reader that holds any state since then finds the one total that fits,
as RFC 3095 (section 4.5.1) compresses counters. So a payload can be lost, and no total can shrink by arriving.

Text, and not bytes, for Dask shows what heartbeats carry as JSON. Digits of base 128 are ASCII, a byte each in msgpack.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import lt, or_, sub
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.checks import RefusedPayload, short, wholes

Ints = NDArray[np.int64]
#: Some rows of an array, ascending.
Rows = slice | Ints
Name = TypeVar("Name")
Default = TypeVar("Default")

#: Rows of a table: as many as two digits count.
MAX_ROWS = (1 << 14) - 1

#: Digits of the largest number that is sent: 63 bits.
MAX_DIGITS = 9

#: Largest number of digits of which that many numbers can be added up in 63 bits.
_SAFE_DIGITS = 7

#: Digits of how far apart two rows are, at most.
_GAP_DIGITS = 2

#: Characters that say how many rows there are; then come how many digits each column has, and the digits.
_COUNT = 2


@dataclass(frozen=True, slots=True, eq=False)
class Table(Generic[Name]):
    """A table as its reader has it: a row for each name."""

    #: By place; None where it is free.
    names: tuple[Name | None, ...]
    rows: Ints
    #: Places that are free.
    free: tuple[int, ...] = ()


class Change(NamedTuple, Generic[Name]):
    """A table after a payload, and what that added."""

    table: Table[Name]
    #: Places of the rows that the payload had.
    at: Rows
    #: By how much those rows grew, less than 0 where some began anew; None where some are of another name than before,
    #: or do not only grow.
    gained: Ints | None
    #: Whether that can be added up in 63 bits.
    small: bool


#: So many digits are written one by one, for NumPy takes ten microseconds to begin.
MAX_DIGITS_ONE_BY_ONE = 200

_ARANGE = np.arange(MAX_ROWS)


# -- writing ---------------------------------------------------------------------------------------


class TableWriter(Generic[Name]):
    """One table as it is, and what was changed since each of the last marked states.

    Parameters
    ----------
    columns
        Numbers of a row.
    rising
        Whether the numbers are totals that only grow. A row in which one falls all the same is told as a new one.
    depth
        How many marked states are kept, and changes since them can be told.
    """

    def __init__(self, columns: int, *, rising: bool, depth: int) -> None:
        self._columns = columns
        self._rising = rising
        self._places: dict[Name, int] = {}
        self._names: list[Name | None] = []
        self._free: list[int] = []
        #: What was given last.
        self._given: Mapping[Name, Sequence[int]] = {}
        self._rows: list[Sequence[int]] = []
        self._zeros = (0,) * columns
        #: What rows were before they changed, by place; and places whose rows began anew, or that were given to another
        #: name or to none: since each of the marked states, the oldest first.
        self._before: deque[dict[int, Sequence[int]]] = deque([{}], maxlen=depth)
        self._anew: deque[set[int]] = deque([set()], maxlen=depth)

    def take(self, rows: Mapping[Name, Sequence[int]]) -> None:
        """Note the table's state; names that are missing lose their place. Rows must not change afterwards."""
        given = self._given
        changed = [name for name, row in rows.items() if given.get(name) != row]
        self._given = rows
        if changed or len(rows) < len(self._places):
            self.take_changed(rows, changed, map(rows.__getitem__, changed))

    def take_changed(self, names: Collection[Name], changed: Iterable[Name], values: Iterable[Sequence[int]]) -> None:
        """Note the table's state: all names, and those whose rows changed, or are new, with these."""
        places, rows, before, anew = self._places, self._rows, self._before[-1], self._anew[-1]
        for name, row in zip(changed, values, strict=True):
            place = places.get(name)
            if place is None:
                place = self._place(name)
                anew.add(place)
            elif self._rising and any(map(lt, row, rows[place])):
                anew.add(place)
            before.setdefault(place, rows[place])
            rows[place] = row
        if len(places) > len(names):
            for name in places.keys() - names:
                place = places.pop(name)
                self._names[place], rows[place] = None, self._zeros
                self._free.append(place)
                anew.add(place)

    def __len__(self) -> int:
        return len(self._places)

    def mark(self) -> None:
        """A payload with this state was sent: later ones may rely on it."""
        self._before.append({})
        self._anew.append(set())

    def write(self, since: int) -> tuple[str, list[object]]:
        """What changed after the oldest marked state, or all there is where ``since`` is -1; and names of places."""
        rows = self._rows
        if not rows:
            return _write((), (), self._columns), []
        if since < 0:
            told, anew = [*enumerate(rows)], [*range(len(rows))]
            grown: Iterable[Sequence[int]] = rows
        else:
            before: dict[int, Sequence[int]] = {}
            for changes in reversed(self._before):
                before.update(changes)
            anew = sorted(set().union(*self._anew))
            if self._rising:
                before.update(dict.fromkeys(anew, self._zeros))  # of these the reader has nothing
            told = [(place, rows[place]) for place in sorted(before)]
            grown = [[*map(sub, row, before[place])] for place, row in told] if self._rising else [r for _, r in told]
        return _write(told, grown, self._columns), [each for place in anew for each in (place, self._names[place])]

    def place(self, name: Name, default: Default) -> int | Default:
        """The place of a name; the default where it has none."""
        return self._places.get(name, default)

    def _place(self, name: Name) -> int:
        if self._free:
            place = self._free.pop()
            self._names[place] = name
        else:
            place = len(self._names)
            self._names.append(name)
            self._rows.append(self._zeros)
        self._places[name] = place
        return place


def _write(told: Sequence[tuple[int, Sequence[int]]], grown: Iterable[Sequence[int]], columns: int) -> str:
    count = len(told)
    if not count:
        return "\0" * (_COUNT + 1 + columns)
    digits = [_digits(reduce(or_, column)) for column in zip(*grown, strict=True)]
    rows = [row for _, row in told]
    if told[-1][0] == count - 1:  # the first ones, without a gap
        digits.insert(0, 0)
        rows = [(0, *row) for row in rows]
    else:
        last = [-1, *[place for place, _ in told]]
        rows = [(place - before - 1, *row) for (place, row), before in zip(told, last, strict=False)]
        digits.insert(0, _digits(max(row[0] for row in rows)))
    places = [(column, 7 * i) for column, n in enumerate(digits) for i in range(n)]
    if count * len(places) <= MAX_DIGITS_ONE_BY_ONE:
        body = bytes([row[column] >> shift & 127 for row in rows for column, shift in places])
    else:
        column, shift = zip(*places, strict=True)
        body = (np.array(rows)[:, column] >> np.array(shift) & 127).astype(np.uint8).tobytes()
    return (bytes((count & 127, count >> 7, *digits)) + body).decode("ascii")


def _digits(number: int) -> int:
    return (number.bit_length() + 6) // 7


# -- reading ---------------------------------------------------------------------------------------


class _Layout(NamedTuple):
    """How the digits of a row lie: first those of how far apart rows are, then so many of each column."""

    #: Digits of a row.
    width: int
    #: What each digit counts of how far apart rows are; None where they are not.
    gap: NDArray[np.float64] | None
    #: What it counts of each column: of shape (width, columns). Numbers of more digits are told by the second, in
    #: units of the most that the first can tell.
    weights: NDArray[np.float64]
    more: NDArray[np.float64] | None
    #: By column, what a number is told modulo, less one.
    mask: Ints


@lru_cache(maxsize=1024)
def _layout(digits: bytes) -> _Layout:
    if max(digits) > MAX_DIGITS or digits[0] > _GAP_DIGITS:
        raise RefusedPayload(f"a table has columns of {list(digits)} digits; expected at most {MAX_DIGITS}")
    weights, more = np.zeros((2, sum(digits), len(digits)))
    at = 0
    for column, n in enumerate(digits):
        for i in range(n):
            (weights if i < _SAFE_DIGITS else more)[at, column] = float(1 << 7 * (i % _SAFE_DIGITS))
            at += 1
    return _Layout(
        len(weights),
        weights[:, 0] if digits[0] else None,
        np.ascontiguousarray(weights[:, 1:]),
        np.ascontiguousarray(more[:, 1:]) if max(digits) > _SAFE_DIGITS else None,
        np.array([(1 << 7 * n) - 1 for n in digits[1:]], np.int64),
    )


class Texts:
    """The text of a payload, read table by table.

    Raises
    ------
    RefusedPayload
        If it is none of ASCII characters.
    """

    def __init__(self, name: str, value: object) -> None:
        if not isinstance(value, str) or not value.isascii():
            raise RefusedPayload(f"{name} is {short(value)}; expected a text of ASCII characters")
        self._name = name
        self._data = value.encode("ascii")
        self._offset = 0

    def rows(self, columns: int) -> tuple[Rows, Ints, _Layout]:
        """The next table's places, and their numbers modulo what their digits hold."""
        data, begin = self._data, self._offset + _COUNT
        body = begin + 1 + columns
        if body > len(data):
            raise RefusedPayload(f"{self._name} has {len(data)} characters; expected at least {body}")
        layout = _layout(data[begin:body])
        count = data[begin - 2] | data[begin - 1] << 7
        width = layout.width
        self._offset = end = body + count * width
        if end > len(data):
            raise RefusedPayload(f"{self._name} has {len(data)} characters; expected {end} for {count} rows")
        if not (width and count):
            return slice(0, count), np.zeros((count, columns), np.int64), layout
        # A product of matrices of whole numbers below 2**53 is exact, and one call.
        digits = np.frombuffer(data, np.uint8, count * width, body).reshape(count, width).astype(np.float64)
        table: Ints = (digits @ layout.weights).astype(np.int64)
        if layout.more is not None:
            table += (digits @ layout.more).astype(np.int64) << 7 * _SAFE_DIGITS
        if layout.gap is not None:
            at = (digits @ layout.gap).astype(np.int64).cumsum()
            at += _ARANGE[:count]
            return at, table, layout
        return slice(0, count), table, layout

    def end(self) -> None:
        """There is no more."""
        if self._offset != len(self._data):
            raise RefusedPayload(f"{self._name} has {len(self._data)} characters; expected {self._offset}")


def read_table(
    name: str,
    table: Table[Name] | None,
    texts: Texts,
    renamed: object,
    *,
    columns: int,
    rising: bool,
    check: Callable[[str, Sequence[Any]], Sequence[Name]],
) -> Change[Name]:
    """A table after a payload.

    Parameters
    ----------
    name
        How error messages refer to it.
    table
        As it was; None where the payload has all of it.
    texts, renamed
        What :meth:`TableWriter.write` returned; the latter may be None where it was empty.
    columns, rising
        As of the writer.
    check
        Reads names, or refuses them.

    Raises
    ------
    RefusedPayload
        If a place or a name is out of order, or a number is larger than 63 bits.
    """
    at, gained, layout = texts.rows(columns)
    if table is None:
        table = Table((), np.zeros((0, columns), np.int64))
    small = layout.more is None
    new = _renamed(name, renamed, check) if renamed else None
    if new is None and not len(gained):
        return Change(table, at, gained if rising else None, True)
    names, free, before, kept = table.names, table.free, table.rows, True
    if new is not None:
        known = len(names)
        others = {place: each for place, each in new.items() if place >= known or names[place] != each}
        if others:
            kept = all(place >= known or names[place] is None for place in others)
            names, free = _with_names(name, names, others)
            if len(names) > known:
                before = np.zeros((len(names), columns), np.int64)
                before[:known] = table.rows
    rows = before.copy()
    if new is not None:
        for place in new if len(before) else ():  # NumPy takes as long for a list of one as for fifteen of these
            rows[place] = 0
    last = (at.stop if isinstance(at, slice) else int(at[-1]) + 1) - 1
    if last >= len(names):
        raise RefusedPayload(f"{name} has a row at {last}; expected one of {len(names)}")
    if rising:
        base = rows[at] if isinstance(at, slice) else rows.take(at, axis=0)
        gained -= base
        gained &= layout.mask
        rows[at] = base + gained
    else:
        rows[at] = gained
    if not small and rows.min() < 0:
        raise RefusedPayload(f"{name} has a number of more than 63 bits")
    if free and rows.take(free, axis=0).any():
        raise RefusedPayload(f"{name} has a row without a name")
    if new is not None:
        at, gained = slice(0, len(rows)), rows - before
    return Change(Table(names, rows, free), at, gained if rising and kept else None, small)


def _with_names(
    name: str, names: tuple[Name | None, ...], new: Mapping[int, Name | None]
) -> tuple[tuple[Name | None, ...], tuple[int, ...]]:
    """The names with some places renamed, and the free places."""
    size = max(len(names), max(new) + 1)
    if size > MAX_ROWS:
        raise RefusedPayload(f"{name} has {size} entries; expected at most {MAX_ROWS}")
    found = [*names, *[None] * (size - len(names))]
    for place, each in new.items():
        found[place] = each
    distinct = set(found)
    free = [place for place, each in enumerate(found) if each is None] if None in distinct else []
    if len(distinct) < size - len(free) + bool(free):
        raise RefusedPayload(f"{name} has a name in two places")
    return tuple(found), tuple(free)


def _renamed(name: str, value: object, check: Callable[[str, Sequence[Any]], Sequence[Name]]) -> dict[int, Name | None]:
    if not isinstance(value, (list, tuple)) or len(value) % 2 or len(value) > 2 * MAX_ROWS:
        raise RefusedPayload(f"names of {name} are {short(value)}; expected places and names in turn")
    name = f"names of {name}"
    places, names = value[::2], value[1::2]
    wholes(name, places)
    if None not in names:
        return dict(zip(places, check(name, names), strict=True))
    named = iter(check(name, [each for each in names if each is not None]))
    return {place: None if each is None else next(named) for place, each in zip(places, names, strict=True)}


def column_sums(rows: Ints, *, small: bool) -> list[int]:
    """The exact sum of each column; ``small`` if that is less than 63 bits."""
    if not small:
        return [sum(column) for column in rows.T.tolist()]
    sums: list[int] = np.add.reduce(rows, axis=0).tolist()
    return sums


class RowView(Mapping[Name, tuple[int, ...]]):
    """Rows by name; made from the table when they are looked at."""

    __slots__ = ("_found", "_table")

    def __init__(self, table: Table[Name]) -> None:
        self._table = table
        self._found: dict[Name, tuple[int, ...]] | None = None

    @property
    def _rows(self) -> dict[Name, tuple[int, ...]]:
        if self._found is None:
            pairs = zip(self._table.names, self._table.rows.tolist(), strict=True)
            self._found = {name: tuple(row) for name, row in pairs if name is not None}
        return self._found

    def __getitem__(self, name: Name) -> tuple[int, ...]:
        return self._rows[name]

    def __iter__(self) -> Iterator[Name]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)
