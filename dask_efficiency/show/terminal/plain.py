"""A document as plain ASCII text."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from dask_efficiency.show.colours import LETTERS
from dask_efficiency.show.document import Aside, ByBucket, Cell, Document, Label, Section, Share, Table
from dask_efficiency.show.figures import shorten
from dask_efficiency.show.parts import Part, percent_of
from dask_efficiency.show.terminal.bar import letters, packed

NARROWEST = 40
SHORTEST_WORD = 8

#: Characters of the longest bar in a table.
BAR_LENGTH = 24


def plain(document: Document, width: int = 80) -> str:
    """The document as ASCII text.

    Parameters
    ----------
    document
        Figures that no text can show are left out.
    width
        In characters; less than 40 counts as 40.

    Returns
    -------
    str
        Lines without trailing spaces and without a newline at the end.
    """
    width = max(width, NARROWEST)
    blocks = [
        [*wrapped(document.title, width), *wrapped(document.context, width)],
        wrapped(f"{document.headline}.", width),
        _findings(document.findings, width),
        _bar(document.figure.parts, width) if isinstance(document.figure, ByBucket) else [],
        *(_section(section, width) for section in written(document.sections)),
        *(wrapped(text, width) for text in document.last),
    ]
    return "\n\n".join("\n".join(map(str.rstrip, map(ascii_text, block))) for block in blocks if block)


def written(sections: Iterable[Section]) -> Iterator[Section]:
    """The sections that a text can show, each before those in it; what is folded away is left out."""
    for section in sections:
        blocks = tuple(block for block in section.blocks if isinstance(block, str | Aside | Table))
        if blocks:
            yield replace(section, blocks=blocks)
        yield from written(inner for inner in section.sections if not inner.folded)


def ascii_text(text: str) -> str:
    """The text with every character beyond ASCII as an escape."""
    return text.encode("ascii", "backslashreplace").decode("ascii")


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """The text as ASCII lines, broken at spaces and not within `thread-seconds`."""
    return textwrap.wrap(
        ascii_text(text), width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )


def _findings(findings: Sequence[Sequence[str]], width: int) -> list[str]:
    lines: list[str] = []
    for number, (first, *rest) in enumerate(findings, 1):
        head, *more = wrapped(first, width - 3)
        lines += [f"{number}. {head}", *(f"   {line}" for line in more)]
        lines += [line for text in rest for line in wrapped(text, width, "   ")]
    return lines


def _bar(parts: Sequence[Part], width: int) -> list[str]:
    items = [f"{LETTERS[part.bucket]} {part.bucket} {percent_of(part)} %" for part in parts]
    legend = ["  ".join(items[i] for i in line) for line in packed([len(item) for item in items], width)]
    return [f"[{letters(parts, width - 2)}]", *legend]


def _section(section: Section, width: int) -> list[str]:
    """A section as lines; what has no title is not indented."""
    indent = "  " if section.title else ""
    lines = [section.title] if section.title else []
    for block in section.blocks:
        match block:
            case str(text) | Aside(text):
                lines += wrapped(text, width, indent)
            case Table():
                lines += [indent + line for line in _ruled(block, width - len(indent))]
    return lines


def with_bars(table: Table, character: str, width: int, measure: Callable[[str], int] = len) -> Table:
    """The table with its plain bars as a last column of characters; other drawings no text can show.

    All bars are shorter where there is less room: one that was cut would look like another.
    """
    bars = [drawing.share for drawing in table.drawings if isinstance(drawing, Share)]
    if not bars:
        return table
    rest = sum(
        max(measure(written_out(row[column])) + 2 for row in (table.heads, *table.rows))
        for column in range(len(table.heads))
    )
    longest = min(BAR_LENGTH, max(SHORTEST_WORD, width - rest))
    drawn = (character * math.ceil(longest * share) for share in bars)
    rows = tuple((*row, bar) for row, bar in zip(table.rows, drawn, strict=True))
    return replace(table, heads=(*table.heads, ""), rows=rows, words=(*table.words, len(table.heads)))


def _ruled(table: Table, width: int) -> list[str]:
    lines = _table(with_bars(table, "#", width), width)
    for position in sorted(table.sums, reverse=True):
        lines.insert(position + 1, "-" * len(lines[0]))
    return lines


def _table(table: Table, width: int) -> list[str]:
    """Columns two spaces apart, words to the left and figures to the right; long words are cut."""
    cells = [[ascii_text(written_out(cell)) for cell in row] for row in (table.heads, *table.rows)]
    widths = column_widths(cells, table.words, width, len)
    return [
        "  ".join(
            shorten(cell, size).ljust(size) if column in table.words else cell.rjust(size)
            for column, (cell, size) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    ]


def written_out(cell: Cell) -> str:
    """A cell as a text shows it: what names a part is indented."""
    return f"  {cell}" if isinstance(cell, Label) and cell.is_part else str(cell)


def column_widths(
    table: Sequence[Sequence[str]], words: Sequence[int], width: int, measure: Callable[[str], int]
) -> list[int]:
    """Widths of columns two apart; a narrow screen cuts words, those of the first column last, and no figures."""
    widths = [max(measure(row[column]) for row in table) for column in range(len(table[0]))]
    for column in sorted(words, key=lambda word: (word == words[0], -widths[word])):
        excess = sum(widths) + 2 * (len(widths) - 1) - width
        widths[column] = max(min(widths[column], SHORTEST_WORD), widths[column] - max(excess, 0))
    return widths
