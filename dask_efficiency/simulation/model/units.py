"""Quantities and lists of names in text: bandwidths, times and sizes with a unit, and ``a, b and 3 more``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import inf, nan
from typing import NoReturn

_NUMBER = re.compile(r"\s*(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(?P<unit>.*?)\s*", re.DOTALL)

_PREFIXES = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
#: By unit: bytes a second. Network cards have rates in bits ("1 Gbit", "1 Gbps"), programs rates in bytes.
BANDWIDTHS = {f"{prefix}{unit}": factor / 8 for prefix, factor in _PREFIXES.items() for unit in ("bit", "bit/s", "bps")}
BANDWIDTHS |= {f"{prefix}B/s": float(factor) for prefix, factor in (_PREFIXES | _BINARY).items()}

#: By unit: seconds.
TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
#: By unit: bytes.
SIZES = {f"{prefix}{unit}": float(n) for prefix, n in (_PREFIXES | _BINARY).items() for unit in ("B", "")}


def parse_bandwidth(text: str) -> float:
    """Parse a bandwidth above 0, in bytes a second."""
    expected = "a bandwidth above 0 with its unit, such as '1 Gbit', '100 Mbit/s' or '125 MB/s'"
    return _value(text, BANDWIDTHS, expected) or _refuse(text, expected)


def parse_seconds(text: str) -> float:
    """Parse a time in seconds, at least 0."""
    return _value(text, TIMES, "a time with its unit, such as '50 us' or '0.1 ms'")


def parse_nbytes(text: str) -> int:
    """Parse a size in whole bytes, at least 0."""
    return round(_value(text, SIZES, "a size, such as '16 GB' or '16 GiB'"))


def parse_int(text: str, least: int = 0) -> int:
    """Parse a whole number of at most six digits."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 6 and int(text) >= least):
        _refuse(text, f"a whole number of at least {least}")
    return int(text)


def _value(text: str, units: Mapping[str, float], expected: str) -> float:
    parsed = _NUMBER.fullmatch(text)
    value = float(parsed["number"]) * units.get(parsed["unit"], nan) if parsed else nan
    return value if 0 <= value < inf else _refuse(text, expected)


def _refuse(text: str, expected: str) -> NoReturn:
    raise ValueError(f"expected {expected}, got {text[:80]!r}")


def shown_bandwidth(bandwidth: float) -> str:
    """Format bytes a second as for network cards: ``1 Gbit``."""
    bits = 8 * bandwidth
    for prefix in ("T", "G", "M", "k"):
        if bits >= _PREFIXES[prefix]:
            return f"{bits / _PREFIXES[prefix]:.4g} {prefix}bit"
    return f"{bits:.4g} bit"


def shown_seconds(seconds: float) -> str:
    """Format a latency: ``50 us``."""
    for unit in ("s", "ms", "us"):
        if seconds >= TIMES[unit]:
            return f"{seconds / TIMES[unit]:.4g} {unit}"
    return f"{seconds / TIMES['ns']:.4g} ns" if seconds else "0 s"


#: Names that a sentence lists.
MAX_NAMES = 5


def few_names(names: Sequence[str], what: str = "") -> str:
    """List a few names, and the number of the others: ``a, b and 3 more``, followed by a word for these."""
    more = len(names) - MAX_NAMES
    rest = f" and {more} more {what}".rstrip() if more > 0 else ""
    return ", ".join(names[:MAX_NAMES]) + rest


def note_not_simulated(names: Sequence[str], what: str) -> tuple[str, ...]:
    """Note what Ctrl-C left out, if anything."""
    return (f"ended early by Ctrl-C; not simulated: {what} {few_names(names)}",) if names else ()
