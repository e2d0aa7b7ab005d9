"""Memory limits of workers, read as Dask reads them, from numbers, texts, lists and ranges."""

from __future__ import annotations

import re
from collections.abc import Sequence
from numbers import Real

from dask.utils import parse_bytes

from dask_efficiency.simulation.model.sweeps import doublings

#: Bytes below which a memory limit lacks its unit.
LEAST_MEMORY = 10**6


def parse_memory_limits(memory_limit: str | Sequence[float | str]) -> tuple[int, ...]:
    """Sort memory limits, or parse a list (``"3,6GiB"``) or a range of doublings (``"2..16GiB"``).

    In a text, numbers without a unit have that of the last one.
    """
    if not isinstance(memory_limit, Sequence) or not memory_limit:
        raise TypeError(f"memory_limit is {memory_limit!r:.80}; expected memory limits, such as '2GiB..16GiB'")
    if not isinstance(memory_limit, str):
        return tuple(sorted({*map(parse_memory, memory_limit)}))
    first, is_range, last = memory_limit.partition("..")
    unit = re.sub(r"^[\s\d.]*", "", re.split(r"\.\.|,", memory_limit)[-1])
    if not is_range:
        return parse_memory_limits([_with_unit(each, unit) for each in memory_limit.split(",")])
    smallest, largest = parse_memory(_with_unit(first, unit)), parse_memory(last)
    if smallest > largest:
        raise ValueError(f"{memory_limit!r:.80} is not a range of memory limits such as 2GiB..16GiB")
    return tuple(dict.fromkeys(doublings(smallest, largest)))


def _with_unit(text: str, unit: str) -> str:
    return text + unit if re.fullmatch(r"\s*\d[\d.]*\s*", text) else text


def parse_memory(memory_limit: float | str) -> int:
    """Parse a worker's memory limit, in bytes or with a unit, as Dask does."""
    expected = "expected 1 MB or more for each worker: bytes, or a text with a unit such as '4 GiB'"
    if isinstance(memory_limit, bool) or not isinstance(memory_limit, Real | str):
        raise TypeError(f"memory_limit is {memory_limit!r:.80}; {expected}")
    try:
        nbytes = parse_bytes(memory_limit) if isinstance(memory_limit, str) else int(memory_limit)
    except (ValueError, OverflowError):
        nbytes = 0
    if nbytes < LEAST_MEMORY:
        raise ValueError(f"memory_limit is {memory_limit!r:.80}; {expected}")
    return nbytes
