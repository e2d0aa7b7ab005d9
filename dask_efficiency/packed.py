"""Tables of whole numbers as text: of the rows that changed, and of each number only the digits that can have changed.

A table has a row of numbers for each of its names. Its writer gives each name a place, says so once, and then sends
the row under its place. Totals are sent modulo a power of 128 that is larger than what any number of the column grew
since a state that the reader has or is past: a reader that holds any state since then finds the one total that fits,
as RFC 3095 (section 4.5.1) compresses counters. So a payload can be lost, and no total can shrink by arriving.

Text, and not bytes, for Dask shows what heartbeats carry as JSON. Digits of base 128 are ASCII, a byte each in msgpack.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.checks import RefusedPayload, short, whole

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
    #: By how much those rows grew; None where rows may be another name's than before, or do not only grow.
    gained: Ints | None
    #: Whether that can be added up in 63 bits.
    small: bool


_ARANGE = np.arange(MAX_ROWS)


# -- writing ---------------------------------------------------------------------------------------


class TableWriter(Generic[Name]):
    """One table as it is, and as it was in the last marked states.

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
        self._rows = np.zeros((0, columns), np.int64)
        #: By place, in which state the row changed last.
        self._changed = np.zeros(0, np.int64)
        #: Places that were given to another name, or to none, and in which state.
        self._renamed: dict[int, int] = {}
        #: The rows of the last marked states, oldest first.
        self._marked: deque[Ints] = deque(maxlen=depth)

    def take(self, rows: Mapping[Name, Sequence[int]], seq: int) -> None:
        """Note the table's state; names that are missing lose their place. Rows must not change afterwards."""
        given = self._given
        changed = [name for name, row in rows.items() if given.get(name) != row]
        self._given = rows
        if changed or len(rows) < len(self._places):
            values = np.fromiter(
                chain.from_iterable(map(rows.__getitem__, changed)), np.int64, len(changed) * self._columns
            )
            self.take_changed(rows, changed, values.reshape(len(changed), self._columns), seq)

    def take_changed(self, names: Collection[Name], changed: Sequence[Name], values: Ints, seq: int) -> None:
        """Note the table's state: all names, and those whose rows changed, or are new, with these."""
        places = self._places
        for name in changed:
            if name not in places:
                self._place(name, seq)
        at = [places[name] for name in changed]
        gone = [places.pop(name) for name in places.keys() - names] if len(places) > len(names) else []
        for place in gone:
            self._free.append(place)
            self._names[place] = None
            self._renamed[place] = seq
        if not at and not gone:
            return
        # Another array each time, as marked states stay what they are.
        known, missing = len(self._rows), len(self._names) - len(self._rows)
        if missing:
            more = np.zeros((missing, self._columns), np.int64)
            now = np.concatenate([self._rows, more])
            self._changed = np.concatenate([self._changed, more[:, 0]])
        else:
            now = self._rows.copy()
        now[at] = values
        self._changed[at] = seq
        if gone:
            now[gone] = 0
            self._changed[gone] = seq
        if self._rising:
            fell = now[:known] < self._rows
            if fell.any():
                self._renamed.update(dict.fromkeys(np.flatnonzero(fell.any(axis=1)).tolist(), seq))
        self._rows = now

    def mark(self) -> None:
        """A payload with this state was sent: later ones may rely on it."""
        self._marked.append(self._rows)

    def write(self, since: int) -> tuple[str, list[object]]:
        """What changed after a state, -1 for all there is, and the names of its places.

        Changes back to the oldest marked state can be told, and no further.
        """
        if since < 0:
            at = np.arange(len(self._rows))
            renamed = list(range(len(self._names)))
        else:
            at = np.flatnonzero(self._changed > since)
            self._renamed = {place: seq for place, seq in self._renamed.items() if seq > since}
            renamed = list(self._renamed)
        values = self._rows[at]
        grown = values
        if self._rising and since >= 0 and self._marked and len(at):
            oldest = self._marked[0]
            if renamed or len(oldest) < len(self._rows):  # of those that are renamed the reader has nothing
                base = np.zeros_like(self._rows)
                base[: len(oldest)] = oldest
                base[renamed] = 0
                oldest = base
            grown = values - oldest[at]
        return _write(at, values, grown), _names(renamed, self._names)

    def place(self, name: Name, default: Default) -> int | Default:
        """The place of a name; the default where it has none."""
        return self._places.get(name, default)

    def _place(self, name: Name, seq: int) -> None:
        if self._free:
            place = self._free.pop()
            self._names[place] = name
        else:
            place = len(self._names)
            self._names.append(name)
        self._places[name] = place
        self._renamed[place] = seq


def _names(renamed: list[int], names: Sequence[Name | None]) -> list[object]:
    """Places and their names in turn."""
    return [each for place in renamed for each in (place, names[place])]


def _write(at: NDArray[np.intp], values: Ints, grown: Ints) -> str:
    count, columns = values.shape
    if not count:
        return str(bytes(_COUNT + 1 + columns), "ascii")
    digits = [*map(_digits, np.bitwise_or.reduce(grown, axis=0).tolist())]
    if at[-1] == count - 1:  # the first ones, without a gap
        head = bytes((count & 127, count >> 7, 0, *digits))
        layout = _layout(head[_COUNT:])
        body = values.take(layout.column - 1, axis=1)
    else:
        table = np.empty((count, 1 + columns), np.int64)
        table[:, 0] = at - _ARANGE[:count]
        table[1:, 0] -= table[:-1, 0].copy()
        table[:, 1:] = values
        head = bytes((count & 127, count >> 7, _digits(int(table[:, 0].max())), *digits))
        layout = _layout(head[_COUNT:])
        body = table.take(layout.column, axis=1)
    body >>= layout.shift
    body &= 127
    return str(head + body.astype(np.uint8).tobytes(), "ascii")


def _digits(number: int) -> int:
    return (number.bit_length() + 6) // 7


# -- reading ---------------------------------------------------------------------------------------


class _Layout(NamedTuple):
    """How the digits of a row lie, for so many of each column; the first column is how far apart rows are."""

    #: Digits of a row; of each, its column and by how much it is shifted.
    width: int
    column: NDArray[np.intp]
    shift: Ints
    #: Columns that have digits, and where those begin.
    columns: NDArray[np.intp]
    starts: NDArray[np.intp]
    #: By column, what a number is told modulo, less one.
    mask: Ints
    #: Whether as many rows as there may be can be added up in 63 bits.
    small: bool


@lru_cache(maxsize=1024)
def _layout(digits: bytes) -> _Layout:
    if max(digits) > MAX_DIGITS or digits[0] > _GAP_DIGITS:
        raise RefusedPayload(f"a table has columns of {list(digits)} digits; expected at most {MAX_DIGITS}")
    each = list(digits)
    column = np.repeat(np.arange(len(digits)), each)
    shift = np.array([7 * i for n in each for i in range(n)], np.int64)
    columns = np.flatnonzero(each)
    starts = np.cumsum([0, *each])[columns]
    mask = np.array([(1 << 7 * n) - 1 for n in each], np.int64)
    return _Layout(len(column), column, shift, columns, starts, mask, max(digits) <= _SAFE_DIGITS)


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
        """The next table's places, and their numbers modulo what their digits hold.

        The numbers are of shape (rows, 1 + columns): before them comes one that is not theirs.
        """
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
        table = np.zeros((count, 1 + columns), np.int64)
        if width and count:
            shifted = np.frombuffer(data, np.uint8, count * width, body).reshape(count, width) << layout.shift
            table[:, layout.columns] = np.add.reduceat(shifted, layout.starts, axis=1)
            if data[begin]:
                at = table[:, 0].cumsum()
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
    check: Callable[[str, object], Name],
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
        Reads a name, or refuses it.

    Raises
    ------
    RefusedPayload
        If a place or a name is out of order, or a number is larger than 63 bits.
    """
    at, numbers, layout = texts.rows(columns)
    if table is None:
        table = Table((), np.zeros((0, columns), np.int64))
    names, free = table.names, table.free
    gained = numbers[:, 1:]
    if renamed:
        new = _renamed(name, renamed, check)
        names = _with_names(name, names, new)
        free = tuple(place for place, each in enumerate(names) if each is None)
        rows = np.zeros((len(names), columns), np.int64)
        rows[: len(table.rows)] = table.rows
        rows[list(new)] = 0
    elif not len(numbers):
        return Change(table, at, gained if rising else None, True)
    else:
        rows = table.rows.copy()
    last = (at.stop if isinstance(at, slice) else int(at[-1]) + 1) - 1
    if last >= len(names):
        raise RefusedPayload(f"{name} has a row at {last}; expected one of {len(names)}")
    if rising:
        base = rows[at]
        gained -= base
        gained &= layout.mask[1:]
        rows[at] = base + gained
    else:
        rows[at] = gained
    if not layout.small and rows.min() < 0:
        raise RefusedPayload(f"{name} has a number of more than 63 bits")
    if free and rows[list(free)].any():
        raise RefusedPayload(f"{name} has a row without a name")
    return Change(Table(names, rows, free), at, None if renamed or not rising else gained, layout.small)


def _with_names(name: str, names: tuple[Name | None, ...], new: Mapping[int, Name | None]) -> tuple[Name | None, ...]:
    """The names with some places renamed."""
    size = max(len(names), max(new) + 1)
    if size > MAX_ROWS:
        raise RefusedPayload(f"{name} has {size} entries; expected at most {MAX_ROWS}")
    found = [*names, *[None] * (size - len(names))]
    for place, each in new.items():
        found[place] = each
    there = [each for each in found if each is not None]
    if len(set(there)) < len(there):
        raise RefusedPayload(f"{name} has a name in two places")
    return tuple(found)


def _renamed(name: str, value: object, check: Callable[[str, object], Name]) -> dict[int, Name | None]:
    if not isinstance(value, (list, tuple)) or len(value) % 2 or len(value) > 2 * MAX_ROWS:
        raise RefusedPayload(f"names of {name} are {short(value)}; expected places and names in turn")
    found: dict[int, Name | None] = {}
    for place, each in zip(value[::2], value[1::2], strict=True):
        found[whole(f"names of {name}", place)] = None if each is None else check(f"names of {name}", each)
    return found


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
