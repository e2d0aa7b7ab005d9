"""Many names in one: ``pc[01-10,12]``, as SLURM and ClusterShell write them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

#: Of one description; a simulation of more takes longer than a lab would have patience for.
MAX_NAMES = 10_000

_RANGED = re.compile(r"(?P<stem>[^\[\]]*)\[(?P<ranges>[^\[\]]+)\](?P<tail>[^\[\]]*)")
_RANGE = re.compile(r"\s*(?P<first>\d{1,9})\s*(?:-\s*(?P<last>\d{1,9})\s*)?", re.ASCII)
_NUMBERED = re.compile(r"(?P<stem>.*?)(?P<number>\d+)", re.DOTALL | re.ASCII)


def names_of(pattern: str) -> list[str]:
    """The names that a pattern stands for; numbers keep their leading zeros.

    Raises
    ------
    ValueError
        That says what was expected.
    """
    if "[" not in pattern and "]" not in pattern:
        return [pattern]
    found = _RANGED.fullmatch(pattern)
    if found is None:
        raise ValueError(f"expected names such as 'pc[01-10,12]', got {pattern[:80]!r}")
    names: list[str] = []
    for part in found["ranges"].split(","):
        limits = _RANGE.fullmatch(part)
        if limits is None:
            raise ValueError(f"expected numbers such as '01-10', got {part[:80]!r} in {pattern[:80]!r}")
        first, last = limits["first"], limits["last"] or limits["first"]
        if not 0 <= int(last) - int(first) < MAX_NAMES - len(names):
            raise ValueError(f"expected 1 to {MAX_NAMES} ascending numbers, got {pattern[:80]!r}")
        numbers = range(int(first), int(last) + 1)
        names += [f"{found['stem']}{number:0{len(first)}}{found['tail']}" for number in numbers]
    return names


def pattern_of(names: Iterable[str]) -> str:
    """Names in short: those that are alike but for a number at the end, and follow each other, are one range."""
    return ", ".join(_pattern(run) for run in _runs(names))


def _runs(names: Iterable[str]) -> Iterator[list[str]]:
    run: list[str] = []
    for name in names:
        if run and _follows(run[-1], name):
            run.append(name)
            continue
        if run:
            yield run
        run = [name]
    if run:
        yield run


def _follows(name: str, after: str) -> bool:
    one, other = _NUMBERED.fullmatch(name), _NUMBERED.fullmatch(after)
    if one is None or other is None or one["stem"] != other["stem"]:
        return False
    # 9 is followed by 10, and 09 too: what a range of either width would write.
    return f"{int(one['number']) + 1:0{len(one['number'])}}" == other["number"]


def _pattern(run: Sequence[str]) -> str:
    first, last = _NUMBERED.fullmatch(run[0]), _NUMBERED.fullmatch(run[-1])
    if len(run) == 1 or first is None or last is None:
        return run[0]
    return f"{first['stem']}[{first['number']}-{last['number']}]"
