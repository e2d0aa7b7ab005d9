"""A document in a terminal: plain ASCII text, or in colour by rich where it is installed."""

from __future__ import annotations

import math
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, pairwise
from typing import IO, TYPE_CHECKING, Literal

from dask_efficiency.show.document import Aside, ByBucket, Cell, Document, Label, Section, Share, Spark, Table
from dask_efficiency.show.drawn_buckets import COLOURS, DISTINCT_COLOURS, LETTERS, BucketShare, percent_of
from dask_efficiency.show.figures import apportion, shorten

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table as RichTable
    from rich.text import Text

#: Left blocks by eighths of a cell; lower ones, and what stands for these in ASCII.
BLOCKS = " ▏▎▍▌▋▊▉█"
LEVELS, ASCII_LEVELS = " ▁▂▃▄▅▆▇█", " _.:-=+*#"
#: Blocks of a line at most. By eye.
MAX_BLOCKS = 60


@dataclass(frozen=True, slots=True)
class BarCell:
    """One character of the bar: its left eighths belong to one part, by position, the others to the next."""

    left: int
    right: int
    eighths: int

    @property
    def character(self) -> str:
        """The block to print in the left part's colour, on the right part's."""
        return BLOCKS[self.eighths]


def bar_cells(weights: Sequence[int], width: int) -> list[BarCell]:
    """Bar of ``width`` cells, divided in proportion to the weights to an eighth of a cell.

    A cell has two colours; where more than two parts meet in one, the two longest share it.
    """
    eighths = apportion(weights, 8 * width)
    if not any(eighths):
        return []
    ends = [*accumulate(eighths, initial=0)]
    row = []
    for cell in range(width):
        runs = [
            (overlap, part)
            for part, (start, stop) in enumerate(pairwise(ends))
            if (overlap := min(stop, 8 * cell + 8) - max(start, 8 * cell)) > 0
        ]
        longest = sorted(sorted(runs, reverse=True)[:2], key=lambda run: run[1])
        left, right = longest[0], longest[-1]
        eighths_left = 8 if left == right else min(max(round(8 * left[0] / (left[0] + right[0])), 1), 7)
        row.append(BarCell(left[1], right[1], eighths_left))
    return row


def bar_letters(parts: Sequence[BucketShare], width: int) -> str:
    """Bar of one letter a cell, in brackets."""
    counts = apportion([part.nanoseconds for part in parts], width - 2)
    letters = "".join(LETTERS[part.bucket] * count for part, count in zip(parts, counts, strict=True))
    return f"[{letters}]"


def coloured_bar(parts: Sequence[BucketShare], width: int) -> list[tuple[str, str]]:
    """Bar of blocks: each text with its style for rich."""
    colours = [COLOURS[part.bucket] for part in parts]
    return [
        (cell.character * len(list(run)), f"{colours[cell.left]} on {colours[cell.right]}")
        for cell, run in groupby(bar_cells([part.nanoseconds for part in parts], width))
    ]


def blocks_of(shares: Sequence[float], width: int = MAX_BLOCKS, characters: str = LEVELS) -> str:
    """Blocks as high as shares in [0, 1], the highest of neighbours where there is no room for all."""
    cells = min(width, len(shares), MAX_BLOCKS)
    ends = [len(shares) * i // cells for i in range(cells + 1)] if cells > 0 else []
    highest = (max(shares[start:stop]) for start, stop in pairwise(ends))
    return "".join(characters[min(8, math.ceil(8 * share))] for share in highest)


def packed_lines(lengths: Sequence[int], width: int) -> list[list[int]]:
    """Lines of items, by position and two apart, none longer than ``width`` unless a single item is."""
    lines: list[list[int]] = []
    room = 0
    for item, length in enumerate(lengths):
        if not lines or length + 2 > room:
            lines.append([item])
            room = width - length
        else:
            lines[-1].append(item)
            room -= length + 2
    return lines


#: Least width in characters. A guess: no terminal is narrower.
NARROWEST = 40
#: Least width of a column of words. A guess: a cut name stays recognizable.
SHORTEST_WORD = 8
#: Characters of the longest bar in a table. A guess.
BAR_LENGTH = 24


def plain(document: Document, width: int = 80) -> str:
    """The document as ASCII text, without the figures that no text can show; less than 40 columns count as 40."""
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
    """Sections that a text can show, each before those in it; folded ones are left out."""
    for section in sections:
        blocks = tuple(block for block in section.blocks if isinstance(block, str | Aside | Table | Spark))
        if blocks:
            yield replace(section, blocks=blocks)
        yield from written(inner for inner in section.sections if not inner.folded)


def ascii_text(text: str) -> str:
    """Write characters beyond ASCII as escapes."""
    return text.encode("ascii", "backslashreplace").decode("ascii")


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Wrap the text to ASCII lines, at spaces and not at hyphens."""
    lines = textwrap.wrap(ascii_text(text), width - len(indent), break_on_hyphens=False)
    return [indent + line for line in lines]


def _findings(findings: Sequence[Sequence[str]], width: int) -> list[str]:
    lines: list[str] = []
    for number, (first, *rest) in enumerate(findings, 1):
        head, *more = wrapped(first, width - 3)
        lines += [f"{number}. {head}", *(f"   {line}" for line in more)]
        lines += [line for text in rest for line in wrapped(text, width, "   ")]
    return lines


def _bar(parts: Sequence[BucketShare], width: int) -> list[str]:
    items = [f"{LETTERS[part.bucket]} {part.bucket} {percent_of(part)} %" for part in parts]
    legend = ["  ".join(items[i] for i in line) for line in packed_lines([len(item) for item in items], width)]
    return [bar_letters(parts, width), *legend]


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
            case Spark(text, shares):
                blocks = blocks_of(shares, width - len(indent) - 2, ASCII_LEVELS)
                lines += [*wrapped(text, width, indent), f"{indent}[{blocks}]"]
    return lines


def with_bars(table: Table, character: str, width: int) -> Table:
    """Add a table's plain bars as a last column of characters; a text cannot show other drawings.

    All bars shrink together to fit: a bar that was cut would look like a shorter one.
    """
    bars = [drawing.share for drawing in table.drawings if isinstance(drawing, Share)]
    if not bars:
        return table
    columns = zip(table.heads, *table.rows, strict=True)
    rest = sum(max(len(written_out(cell)) + 2 for cell in column) for column in columns)
    longest = min(BAR_LENGTH, max(SHORTEST_WORD, width - rest))
    drawn = (character * math.ceil(longest * share) for share in bars)
    rows = tuple((*row, bar) for row, bar in zip(table.rows, drawn, strict=True))
    return replace(table, heads=(*table.heads, ""), rows=rows, words=(*table.words, len(table.heads)))


def _ruled(table: Table, width: int) -> list[str]:
    """Columns two spaces apart, words to the left and figures to the right; long words are cut."""
    table = with_bars(table, "#", width)
    cells = [[ascii_text(written_out(cell)) for cell in row] for row in (table.heads, *table.rows)]
    widths = column_widths(cells, table.words, width, len)
    lines = [
        "  ".join(
            shorten(cell, size).ljust(size) if column in table.words else cell.rjust(size)
            for column, (cell, size) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    ]
    for position in sorted(table.sums, reverse=True):
        lines.insert(position + 1, "-" * len(lines[0]))
    return lines


def written_out(cell: Cell) -> str:
    """A cell as text; parts are indented."""
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


#: Indent of labels, which holds a coloured label's mark.
MARK = "  "


def show(document: Document, file: IO[str] | None = None) -> None:
    """Print the document: in colour on a terminal that can and where rich is installed, else plain."""
    stream = sys.stdout if file is None else file
    try:
        from rich.console import Console, Group
    except ImportError:
        pass
    else:
        console = Console(file=stream)
        if console.is_terminal and console.color_system and not console.options.ascii_only:
            console.print(Group(*renderables(document, console, console.options)))
            return
    print(plain(document, shutil.get_terminal_size().columns), file=stream)


def renderables(document: Document, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
    """The document as renderables of rich, for a console's own width, encoding and colours.

    Where the encoding is ASCII it is the plain text; where there are less than 256 colours, the bar is of letters.
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
        bar = coloured_bar(parts, width) if coloured else [bar_letters(parts, width)]
        yield Text.assemble(*bar, no_wrap=True, overflow="crop")
        yield _coloured_legend(parts, width, coloured)
    for section in written(document.sections):
        yield Text()
        yield from _coloured_section(section, width, coloured)
    for text in document.last:
        yield Text(f"\n{text}")


def _coloured_legend(parts: tuple[BucketShare, ...], width: int, coloured: bool) -> Text:
    from rich.text import Text

    marks = [("■", COLOURS[part.bucket]) if coloured else LETTERS[part.bucket] for part in parts]
    items = [
        Text.assemble(mark, f" {part.bucket} {percent_of(part)} %") for mark, part in zip(marks, parts, strict=True)
    ]
    lines = packed_lines([len(item) for item in items], width)
    return Text("\n").join(Text("  ").join(items[i] for i in line) for line in lines)


def _coloured_section(section: Section, width: int, coloured: bool) -> Iterator[RenderableType]:
    """A section; what has no title is not indented."""
    from rich.padding import Padding
    from rich.text import Text

    if section.title:
        yield Text(section.title, style="bold yellow" if section.caveat else "bold")
    indent = 2 if section.title else 0
    for block in section.blocks:
        shown: RenderableType = ""
        match block:
            case str(text):
                shown = Text(text)
            case Aside(text):
                shown = Text(text, style="dim")
            case Spark(text, shares):
                shown = Text(f"{text}\n{blocks_of(shares, width - indent)}")
            case Table():
                shown = _rich_table(with_bars(block, "█", width - indent - len(MARK)), width - indent, coloured)
        yield Padding(shown, (0, 0, 0, indent)) if indent else shown


def _rich_table(table: Table, width: int, coloured: bool) -> RichTable:
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
