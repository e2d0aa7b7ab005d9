"""A document in colour, by rich where it is installed."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import IO, TYPE_CHECKING, Literal

from dask_efficiency.show.colours import COLOURS, DISTINCT_COLOURS, LETTERS
from dask_efficiency.show.document import Aside, ByBucket, Document, Label, Section, Table
from dask_efficiency.show.parts import Part, percent_of
from dask_efficiency.show.terminal.bar import cells, letters, packed
from dask_efficiency.show.terminal.plain import column_widths, plain, with_bars, written, written_out

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table as RichTable
    from rich.text import Text

#: Room for the mark of a label that has a colour.
MARK = "  "


@dataclass(frozen=True, slots=True)
class _Coloured:
    """What rich prints as the document."""

    document: Document

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        return renderables(self.document, console, options)


def show(document: Document, file: IO[str] | None = None) -> None:
    """Print the document: in colour on a terminal that can and where rich is installed, else plain.

    Parameters
    ----------
    document
        What is to be shown.
    file
        Standard output by default.
    """
    stream = sys.stdout if file is None else file
    try:
        from rich.console import Console
    except ImportError:
        pass
    else:
        console = Console(file=stream)
        if console.is_terminal and console.color_system and not console.options.ascii_only:
            console.print(_Coloured(document))
            return
    print(plain(document, shutil.get_terminal_size().columns), file=stream)


def renderables(document: Document, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
    """The document as renderables of rich, for a console's own width, encoding and colours.

    Parameters
    ----------
    document
        What is to be shown.
    console, options
        As rich passes them to ``__rich_console__``. Where the encoding is ASCII the plain text is
        rendered; where there are less than 256 colours, the bar is of letters.
    """
    from rich.padding import Padding
    from rich.text import Text

    width = options.max_width
    if options.ascii_only:
        yield Text(plain(document, width))
        return
    coloured = console.color_system in DISTINCT_COLOURS and not console.no_color
    yield Text(document.title, style="bold")
    if document.context:
        yield Text(document.context, style="dim")
    yield Text(f"{document.headline}.", style="bold")
    for number, (first, *rest) in enumerate(document.findings, 1):
        yield Text(f"{number}. {first}")
        for text in rest:
            yield Padding(Text(text, style="dim"), (0, 0, 0, 3))
    if isinstance(document.figure, ByBucket):
        parts = document.figure.parts
        yield Text()
        yield _bar(parts, width) if coloured else Text(f"[{letters(parts, width - 2)}]")
        yield _legend(parts, width, coloured)
    for section in written(document.sections):
        yield Text()
        yield from _section(section, width, coloured)
    for text in document.last:
        yield Text(f"\n{text}")


def _bar(parts: tuple[Part, ...], width: int) -> Text:
    from rich.text import Text

    bar = Text(no_wrap=True, overflow="crop")
    colours = [COLOURS[part.bucket] for part in parts]
    for cell, run in groupby(cells([part.nanoseconds for part in parts], width)):
        bar.append(cell.character * len(list(run)), style=f"{colours[cell.left]} on {colours[cell.right]}")
    return bar


def _legend(parts: tuple[Part, ...], width: int, coloured: bool) -> Text:
    from rich.text import Text

    items = []
    for part in parts:
        mark = ("■", COLOURS[part.bucket]) if coloured else LETTERS[part.bucket]
        items.append(Text.assemble(mark, f" {part.bucket} {percent_of(part)} %"))
    lines = packed([len(item) for item in items], width)
    return Text("\n").join(Text("  ").join(items[i] for i in line) for line in lines)


def _section(section: Section, width: int, coloured: bool) -> Iterator[RenderableType]:
    """A section; what has no title is not indented."""
    from rich.padding import Padding
    from rich.text import Text

    if not section.title:
        yield from _blocks(section, width, coloured)
        return
    yield Text(section.title, style="bold yellow" if section.caveat else "bold")
    for block in _blocks(section, width - 2, coloured):
        yield Padding(block, (0, 0, 0, 2))


def _blocks(section: Section, width: int, coloured: bool) -> Iterator[RenderableType]:
    from rich.text import Text

    for block in section.blocks:
        match block:
            case str(text):
                yield Text(text)
            case Aside(text):
                yield Text(text, style="dim")
            case Table():
                yield _table(with_bars(block, "█", width - len(MARK)), width, coloured=coloured)


def _table(table: Table, width: int, *, coloured: bool = False) -> RichTable:
    """The table; in colour its first column has a mark where a label has a colour."""
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table as RichTable
    from rich.text import Text

    # rules under the head and between sections, one space between columns and one of padding
    ruled = box.Box("    \n    \n ── \n    \n ── \n ── \n    \n    \n")
    drawn = RichTable(box=ruled, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    mark = MARK if coloured else ""
    texts = [(mark + written_out(row[0]), *map(str, row[1:])) for row in table.rows]
    widths = column_widths((table.heads, *texts), table.words, width, cell_len)
    for column, (head, size) in enumerate(zip(table.heads, widths, strict=True)):
        justify: Literal["left", "right"] = "left" if column in table.words else "right"
        # advice, in the last column, may take two lines
        wrap = column == len(table.heads) - 1
        drawn.add_column(Text(head), justify=justify, width=size, no_wrap=not wrap, overflow="ellipsis")
    for position, (row, text) in enumerate(zip(table.rows, texts, strict=True)):
        first = Text(text[0])
        if coloured and isinstance(row[0], Label) and row[0].colour:
            first = Text.assemble(("■ ", row[0].colour), row[0].text)
        if position in table.sums:
            drawn.add_section()
        bold = position in table.sums or position in table.strong
        is_part = isinstance(row[0], Label) and row[0].is_part
        drawn.add_row(first, *map(Text, text[1:]), style="bold" if bold else "dim" if is_part else "")
    return drawn
