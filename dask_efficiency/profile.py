"""StackTable: nanoseconds by bucket, cause, prefix and stack, in bounded memory."""

from __future__ import annotations

from typing import Generic, NamedTuple, Protocol, Self, TypeVar

#: Rows that a table keeps apart; a row of 20 frames takes some 500 bytes, for its frames are shared.
MAX_ROWS = 2_000

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

#: Stands for all stacks that a full table could not keep apart.
OTHER_STACK: Stack = (Frame("(other)", "", 0),)


class StackRow(NamedTuple):
    """What a row stands for."""

    bucket: str
    #: "" where the bucket has no causes.
    cause: str
    prefix: str
    stack: Stack


class HolderRow(NamedTuple):
    """Who held the GIL for which others waited."""

    #: The prefix of the tasks that waited.
    waiting: str
    #: The prefix of the task that held it; in parentheses, what was no task.
    holder: str
    #: The holder's.
    stack: Stack


class _HasStack(Protocol):
    def __hash__(self) -> int: ...

    def _replace(self, *, stack: Stack) -> Self: ...


_Row = TypeVar("_Row", bound=_HasStack)


class StackTable(Generic[_Row]):
    """Adds up nanoseconds by row.

    A full table adds new stacks under :data:`OTHER_STACK`, so that the sums by the other fields stay right.

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
            row = row._replace(stack=OTHER_STACK)
        rows[row] = rows.get(row, 0) + ns

    def rows(self) -> list[tuple[_Row, int]]:
        """All rows, the largest first."""
        return sorted(self._rows.items(), key=lambda item: -item[1])
