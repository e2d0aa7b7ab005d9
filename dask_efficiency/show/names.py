"""The order in which a reader expects names with numbers in them."""

from __future__ import annotations

import re


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts ``worker-2`` before ``worker-10``."""
    # Bounded, because a name may be megabytes long, and Python refuses to read a number of 5,000 digits.
    parts = re.split(r"(\d{1,18})", name[:200])
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts if part]
