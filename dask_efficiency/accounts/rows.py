"""Rows: whole numbers by name, which are added up, subtracted, and divided without losing one."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import TypeVar

_Name = TypeVar("_Name", bound=Hashable)

#: Stands for names beyond those that are kept apart.
OTHER = "(other)"
#: Names of a kind, such as prefixes, keys or workers that left, that are kept apart in a process or a window. A guess
#: that bounds memory.
MAX_APART = 1_000
#: Likewise where each is sent with much, or in heartbeats: errors, prefixes with sizes, GPUs. A guess.
MAX_SENT = 200
#: Rows of a kind that an answer lists, the longest or costliest first, such as blocks of an event loop and reasons of a
#: peak. A guess: reports show no more.
MAX_LISTED = 10
#: Names of a kind that a worker tells first, of all that it keeps: files, senders, and labels without numbers. A guess.
MAX_NAMED = 20
#: Rows of several names, such as a span and a prefix, that are kept apart in a process or a window: 2.5 MB of a
#: profile, where one takes 500 bytes. A guess.
MAX_ROWS = 5_000
#: Entries of a cache, such as lines by instruction: functions that travel with each task's message are new each time. A
#: guess: some megabytes.
MAX_CACHED = 10_000


def kept_apart(name: str, known: Collection[str], at_most: int) -> str:
    """The name itself if it is known or there is room for it, and else :data:`OTHER`."""
    return name if name in known or len(known) < at_most else OTHER


def add(row: dict[_Name, int], more: Mapping[_Name, int]) -> None:
    """Add to a row."""
    for name, n in more.items():
        row[name] = row.get(name, 0) + n


def growth(now: Mapping[_Name, int], then: Mapping[_Name, int]) -> dict[_Name, int]:
    """The numbers that grew, by how much."""
    return {name: n - then.get(name, 0) for name, n in now.items() if n > then.get(name, 0)}


def in_proportion(weights: Sequence[int], total: int) -> list[int]:
    """Divide a total into whole numbers in proportion to weights, not all 0: differences of floors of running sums."""
    whole = sum(weights)
    found, running, given = [], 0, 0
    for weight in weights:
        running += weight
        upto = running * total // whole
        found.append(upto - given)
        given = upto
    return found


def scale_down(values: Sequence[int], total: int) -> list[int]:
    """Scale whole numbers down to a smaller total, exactly: none grows, and none is off by more than one."""
    whole = sum(values)
    if not 0 <= total <= whole:
        raise ValueError(f"cannot scale a row of {whole} to {total}; expected 0 to {whole}")
    return in_proportion(values, total) if whole else [0] * len(values)


def divide(weights: Mapping[_Name, int], total: int) -> dict[_Name, int]:
    """Divide a total by name in proportion to weights, not all 0."""
    return dict(zip(weights, in_proportion([*weights.values()], total), strict=True))


def cap(row: Mapping[_Name, int], most: int) -> dict[_Name, int]:
    """Scale a row down where its sum is more than ``most``."""
    return divide(row, most) if sum(row.values()) > most else dict(row)
