"""Checks of plain data from other processes; a bad value is refused, with its field and value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from sys import intern
from typing import Any

#: Entries of one mapping or list; more are refused. A guess, far above any real worker's.
MAX_NAMES = 10_000
#: Characters of a name; a longer one is refused. A guess: keys of Dask have some 50.
MAX_NAME_LENGTH = 1_000
#: Largest number accepted: 146 years of nanoseconds, below msgpack's limit of 2**64.
MAX_NANOSECONDS = 1 << 62


class RefusedPayload(ValueError):
    """A payload that must not be recorded; names the field, its value and what was expected."""


def short(value: object) -> str:
    """A value's repr for a message, at most 80 characters."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deeply, or a number of too many digits
        return f"a {type(value).__name__} too large to show"
    return text if len(text) <= 80 else text[:77] + "..."


def whole(name: str, value: object) -> int:
    """A whole number, not negative."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_NANOSECONDS:
        raise RefusedPayload(f"{name} is {short(value)}; expected a whole number from 0 to 2**62")
    return value


def wholes(name: str, values: Sequence[Any]) -> None:
    """Check that all values are whole numbers, not negative."""
    if values and ({*map(type, values)} != {int} or min(values) < 0 or max(values) > MAX_NANOSECONDS):
        for each in values:
            whole(name, each)


def text(name: str, value: object) -> str:
    """A text that is not too long."""
    if not isinstance(value, str) or len(value) > MAX_NAME_LENGTH:
        raise RefusedPayload(f"{name} is {short(value)}; expected at most {MAX_NAME_LENGTH} characters")
    return value


def shared_texts(name: str, values: Sequence[Any]) -> list[str]:
    """Check many texts and intern them: workers send the same ones."""
    # Without a call for each: heartbeats are full of them.
    if not {*map(type, values)} <= {str} or max(map(len, values), default=0) > MAX_NAME_LENGTH:
        values = [str(text(name, each)) for each in values]
    return [*map(intern, values)]


def mapping(name: str, value: object) -> Mapping[Any, Any]:
    """A mapping of not too many keys."""
    if not isinstance(value, Mapping):
        raise RefusedPayload(f"{name} is {short(value)}; expected a mapping")
    if len(value) > MAX_NAMES:
        raise RefusedPayload(f"{name} has {len(value)} entries; expected at most {MAX_NAMES}")
    return value


def listed(name: str, value: object) -> list[Any] | tuple[Any, ...]:
    """A list that is not too long."""
    if not isinstance(value, (list, tuple)) or len(value) > MAX_NAMES:
        raise RefusedPayload(f"{name} is {short(value)}; expected a list of at most {MAX_NAMES}")
    return value


def counts(name: str, value: object, known: frozenset[str] | None = None) -> dict[str, int]:
    """A mapping of names to whole numbers; any other name than ``known`` is refused."""
    found = {}
    for key, n in mapping(name, value).items():
        if type(n) is not int or not 0 <= n <= MAX_NANOSECONDS:
            whole(f"{name}[{short(key)}]", n)
        found[text(name, key)] = n
    if known is not None and not found.keys() <= known:
        raise RefusedPayload(f"{name} has {short(sorted(found.keys() - known))}; expected only {sorted(known)}")
    return found


def row(name: str, values: object, length: int) -> tuple[int, ...]:
    """A row of ``length`` whole numbers."""
    if not isinstance(values, (list, tuple)) or len(values) != length:
        raise RefusedPayload(f"a row of {name} is {short(values)}; expected {length} numbers")
    # All at once, for a scheduler reads thousands of these a second; then one by one, to say which is wrong.
    if {*map(type, values)} == {int} and min(values) >= 0 and max(values) <= MAX_NANOSECONDS:
        return tuple(values)
    return tuple(whole(name, value) for value in values)
