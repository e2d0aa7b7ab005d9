"""Names in a sentence: a few of them, and how many more there are."""

from __future__ import annotations

from collections.abc import Sequence

#: Names that a sentence lists.
MAX_NAMES = 5


def listed(names: Sequence[str], what: str = "") -> str:
    """A few names, and how many more there are: ``a, b and 3 more``.

    Parameters
    ----------
    names
        As they are to be read.
    what
        What they are, after the number of the rest.
    """
    more = len(names) - MAX_NAMES
    rest = f" and {more} more {what}".rstrip() if more > 0 else ""
    return ", ".join(names[:MAX_NAMES]) + rest


def not_simulated(names: Sequence[str], what: str) -> tuple[str, ...]:
    """A note on what Ctrl-C left out, if anything."""
    return (f"ended early by Ctrl-C; not simulated: {what} {listed(names)}",) if names else ()
