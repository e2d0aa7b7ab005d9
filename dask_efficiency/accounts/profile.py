"""Where threads were and who kept them waiting, by stack; StackTable adds that up in bounded memory."""

from __future__ import annotations

from typing import Generic, NamedTuple, Protocol, Self, TypeVar

#: Rows that a table keeps apart; a row of 20 frames takes some 500 bytes, for its frames are shared.
MAX_ROWS = 2_000

#: In place of a prefix: the worker's event loop.
EVENT_LOOP = "(event loop)"

#: Frames of a stack that are kept, from the innermost outwards.
MAX_DEPTH = 48


class Frame(NamedTuple):
    """A line of code at work."""

    #: Qualified name, such as ``Series.map``.
    function: str
    file: str
    #: From 1; 0 where it is not known.
    line: int


#: Outermost first.
Stack = tuple[Frame, ...]


class Place(NamedTuple):
    """Where threads spent time, and on what."""

    bucket: str
    #: Empty for a bucket without causes.
    cause: str
    #: Of the tasks.
    prefix: str
    #: Of a task, without what Dask called it by; empty where it is not kept.
    stack: Stack


class Holder(NamedTuple):
    """Who had the GIL while tasks of a prefix waited for it."""

    #: Of the tasks that waited.
    prefix: str
    #: The prefix of the holder's task; in parentheses, what was no task.
    holder: str
    #: The holder's.
    stack: Stack


class Hold(NamedTuple):
    """One stretch of time for which one thread kept others from going on."""

    ns: int
    #: As in :class:`Holder`.
    holder: str
    stack: Stack


class _HasStack(Protocol):
    def __hash__(self) -> int: ...

    def _replace(self, *, stack: Stack) -> Self: ...


_Row = TypeVar("_Row", bound=_HasStack)


class StackTable(Generic[_Row]):
    """Adds up nanoseconds by row.

    A full table adds new stacks without their frames, so that the sums by the other fields stay right.

    Parameters
    ----------
    max_rows
        Rows kept apart, at least 1; the others take at most one row more for each combination of the other fields.
    """

    def __init__(self, max_rows: int = MAX_ROWS) -> None:
        self._max_rows = max_rows
        self._rows: dict[_Row, int] = {}

    def add(self, row: _Row, ns: int) -> None:
        """Add nanoseconds."""
        rows = self._rows
        if row not in rows and len(rows) >= self._max_rows:
            row = row._replace(stack=())
        rows[row] = rows.get(row, 0) + ns

    def rows(self) -> dict[_Row, int]:
        """All rows."""
        return dict(self._rows)
