"""Section: a titled part of a report for any renderer, with names and sentences that are harmless."""

from __future__ import annotations

from dataclasses import dataclass

from dask_efficiency.report.figures import NAME_LENGTH, harmless, shorten

NAMES_IN_A_LINE = 3
NOTE_LENGTH = 400


@dataclass(frozen=True, slots=True)
class Section:
    """A titled part of a report: sentences, then a table. All names in it are harmless."""

    title: str
    lines: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    #: Positions of the columns that hold words; the others hold figures.
    words: tuple[int, ...] = (0,)
    #: It bears on how far the report can be trusted, so a renderer does not fold it away.
    caveat: bool = False
    #: Positions of the rows that are sums of those above them.
    sums: tuple[int, ...] = ()


def name_of(name: str) -> str:
    """A user's name for display: harmless and bounded."""
    # cut before and after: escaping makes a name longer, and a name may be megabytes long
    return shorten(harmless(shorten(str(name), 4 * NAME_LENGTH)), NAME_LENGTH)


def sentence(text: str) -> str:
    """A user's or a scheduler's sentence for display: harmless and bounded."""
    return shorten(harmless(shorten(str(text), NOTE_LENGTH)), NOTE_LENGTH)


def named(names: tuple[str, ...] | list[str]) -> str:
    """The first of some names, and how many there are more."""
    more = len(names) - NAMES_IN_A_LINE
    return ", ".join(map(name_of, names[:NAMES_IN_A_LINE])) + (f" and {more} more" if more > 0 else "")
