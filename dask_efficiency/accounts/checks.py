"""Checks of plain data from other processes; a bad value is refused, with its field and value."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import Any

#: Entries of one mapping, list or table; more are refused. A guess, far above any real worker's.
MAX_NAMES = 10_000
#: Characters of a name; a longer one is refused. A guess: keys of Dask have some 50.
MAX_NAME_LENGTH = 1_000
#: Largest number accepted: 146 years of nanoseconds, below msgpack's limit of 2**64.
MAX_NANOSECONDS = 1 << 62
#: Largest size of a float in what is read: sums and products of a few stay finite.
MAX_FLOAT = 1e300


class RefusedPayload(ValueError):
    """A payload that must not be recorded; names the field, its value and what was expected."""


def short(value: object) -> str:
    """A value's repr for a message, at most 80 characters."""
    try:
        text = repr(value)
    except Exception:  # nested too deeply, a number of too many digits, or of a class of the user's
        return f"a {type(value).__name__} too large to show"
    return text if len(text) <= 80 else text[:77] + "..."


def whole(name: str, value: object) -> int:
    """A whole number, not negative."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_NANOSECONDS:
        raise RefusedPayload(f"{name} is {short(value)}; expected a whole number from 0 to 2**62")
    return value


def seconds(name: str, value: object) -> float:
    """A duration in seconds, not negative."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= MAX_NANOSECONDS / 1e9:
        raise RefusedPayload(f"{name} is {short(value)}; expected seconds, from 0 to {MAX_NANOSECONDS / 1e9:.2g}")
    return value


def flag(name: str, value: object) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise RefusedPayload(f"{name} is {short(value)}; expected True or False")
    return value


def amount(name: str, value: object, most: float) -> float:
    """A number from 0 to ``most``."""
    if type(value) not in (int, float) or not 0 <= value <= most:  # type: ignore[operator]  # of one of these types
        raise RefusedPayload(f"{name} is {short(value)}; expected a number from 0 to {most:g}")
    return value  # type: ignore[return-value]  # likewise


def wholes(name: str, values: Sequence[Any]) -> Sequence[int]:
    """Whole numbers, not negative."""
    if values and ({*map(type, values)} != {int} or min(values) < 0 or max(values) > MAX_NANOSECONDS):
        for each in values:
            whole(name, each)
    return values


def text(name: str, value: object) -> str:
    """A text that is not too long, and that UTF-8 can hold."""
    if not isinstance(value, str) or len(value) > MAX_NAME_LENGTH or not _is_utf8(value):
        raise RefusedPayload(f"{name} is {short(value)}; expected at most {MAX_NAME_LENGTH} characters of UTF-8")
    return value


def _is_utf8(value: str) -> bool:
    """False for lone surrogates, which Python reads in names that are no UTF-8; they could not travel on."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


#: Characters of the texts that workers share; beyond, sharing begins anew. A guess: some megabytes, and the prefixes,
#: kernels and addresses of any cluster.
MAX_SHARED = 4_000_000


class SharedTexts:
    """Checks texts and keeps one object of each, as workers send the same ones.

    Not ``sys.intern``: from Python 3.12 on what is interned is never freed.
    """

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        #: Characters of all of them.
        self._size = 0

    def __call__(self, name: str, values: Sequence[Any]) -> list[str]:
        """Check the texts of a field, and return the objects that are kept."""
        # Without a call of Python's own for each: heartbeats are full of them.
        if (
            not {*map(type, values)} <= {str}
            or max(map(len, values), default=0) > MAX_NAME_LENGTH
            or not all(map(str.isascii, values))
        ):
            values = [str(text(name, each)) for each in values]
        known = self._known
        before = len(known)
        found = [*map(known.setdefault, values, values)]
        if len(known) > before:
            self._size += sum(map(len, islice(reversed(known), len(known) - before)))
            if self._size > MAX_SHARED:
                self._known, self._size = {}, 0
        return found


#: That of all workers of a scheduler.
shared_texts = SharedTexts()


def mapping(name: str, value: object) -> Mapping[Any, Any]:
    """A mapping of not too many keys."""
    if not isinstance(value, Mapping):
        raise RefusedPayload(f"{name} is {short(value)}; expected a mapping")
    if len(value) > MAX_NAMES:
        raise RefusedPayload(f"{name} has {len(value)} entries; expected at most {MAX_NAMES}")
    return value


def listed(name: str, value: object, most: int = MAX_NAMES) -> list[Any] | tuple[Any, ...]:
    """A list that is not too long."""
    if not isinstance(value, (list, tuple)) or len(value) > most:
        raise RefusedPayload(f"{name} is {short(value)}; expected a list of at most {most}")
    return value


def keys(name: str, value: object) -> Collection[Any]:
    """Keys of tasks, of which there may be any number."""
    if not isinstance(value, list | tuple | set | frozenset):
        raise RefusedPayload(f"{name} is {short(value)}; expected keys of tasks")
    try:
        hash(tuple(value))
    except (RecursionError, TypeError) as error:
        raise RefusedPayload(f"{name} is {short(value)}; expected keys of tasks ({error})") from error
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
