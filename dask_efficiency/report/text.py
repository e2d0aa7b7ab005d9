"""A report in a terminal: plain ASCII for any screen, rich where rich is installed."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import IO, TYPE_CHECKING, Literal

from dask_efficiency.buckets import Bucket
from dask_efficiency.report.advice import advised
from dask_efficiency.report.bar import cells, letters, packed
from dask_efficiency.report.colours import COLOURS, LETTERS
from dask_efficiency.report.figures import shorten
from dask_efficiency.report.lost_time import LostTime, loss_cells, lost_time, percent_of
from dask_efficiency.report.model import ReportValues
from dask_efficiency.report.section import Section
from dask_efficiency.report.sections import context, not_counted, sections, title
from dask_efficiency.report.verdict import verdict

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table
    from rich.text import Text

#: From this width on, advice stands beside the figures; below it, under them.
WIDE = 120
#: rich's names of the colour systems in which no two buckets look the same.
DISTINCT_COLOURS = ("256", "truecolor")
NARROWEST = 40
SHORTEST_WORD = 8


def show(report: ReportValues, file: IO[str] | None = None) -> None:
    """Print the report: in colour on a terminal that can and where rich is installed, else plain.

    Parameters
    ----------
    file
        Standard output by default.
    """
    show_either(report, lambda width: render_plain(report, width), file)


def show_either(coloured: object, plain: Callable[[int], str], file: IO[str] | None = None) -> None:
    """Print what rich can render where a terminal has colours, and elsewhere its plain text of a width."""
    stream = sys.stdout if file is None else file
    try:
        from rich.console import Console
    except ImportError:
        pass
    else:
        console = Console(file=stream)
        if console.is_terminal and console.color_system and not console.options.ascii_only:
            console.print(coloured)
            return
    print(plain(shutil.get_terminal_size().columns), file=stream)


def render_plain(report: ReportValues, width: int = 80) -> str:
    """The report as ASCII text.

    Parameters
    ----------
    width
        In characters; less than 40 counts as 40.

    Returns
    -------
    str
        Lines without trailing spaces and without a newline at the end.
    """
    width = max(width, NARROWEST)
    table = lost_time(report)
    blocks = [
        [title(report), *wrapped(context(report), width)],
        wrapped(verdict(report) + ".", width),
        _plain_bar(table, width),
        _plain_losses(report, table, width),
        *(plain_section(section, width) for section in sections(report)),
    ]
    return plain_blocks(blocks)


def plain_blocks(blocks: Sequence[Sequence[str]]) -> str:
    """Blocks of lines as ASCII, a blank line between them; empty ones are left out."""
    return "\n\n".join("\n".join(map(str.rstrip, map(ascii_text, block))) for block in blocks if block)


def ascii_text(text: str) -> str:
    """The text with every character beyond ASCII as an escape."""
    return text.encode("ascii", "backslashreplace").decode("ascii")


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """The text as ASCII lines, broken at spaces and not within `thread-seconds`."""
    return textwrap.wrap(
        ascii_text(text), width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )


def _plain_bar(table: LostTime, width: int) -> list[str]:
    if not table.parts:
        return []
    items = [f"{LETTERS[part.bucket]} {part.bucket} {percent_of(part)} %" for part in table.parts]
    legend = ["  ".join(items[i] for i in line) for line in packed([len(item) for item in items], width)]
    return [f"[{letters(table.parts, width - 2)}]", *legend]


def _plain_losses(report: ReportValues, table: LostTime, width: int) -> list[str]:
    if not table.parts and table.running is None:
        return wrapped(not_counted(report), width)
    todo = advised(report)
    heads, rows = loss_cells(table)
    if width >= WIDE and todo:
        rows = [(*row, todo.get(row[0], "")) for row in rows]
        lines = _plain_table((*heads, "what to do"), rows, (0, len(heads)), width)
    else:
        lines = _plain_table(heads, rows, (0,), width)
    # the rows above it add up to the total
    lines.insert(-1, "-" * len(lines[-1].rstrip()))
    lines += wrapped(not_counted(report), width)
    if width < WIDE and todo:
        lines += ["", "What to do"]
        for bucket, line in todo.items():
            lines += wrapped(f"{bucket}: {line}", width, "  ")
    return lines


def plain_section(section: Section, width: int) -> list[str]:
    """A section as lines of ASCII."""
    lines = [section.title]
    for line in section.lines:
        lines += wrapped(line, width, "  ")
    if section.rows:
        table = _plain_table(section.heads, section.rows, section.words, width - 2)
        for position in sorted(section.sums, reverse=True):
            table.insert(position + 1, "-" * len(table[0]))
        lines += ["  " + line for line in table]
    return lines


def _plain_table(heads: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[int], width: int) -> list[str]:
    """Columns two spaces apart, words to the left and figures to the right; long words are cut."""
    table = [[ascii_text(cell) for cell in row] for row in (heads, *rows)]
    widths = _column_widths(table, words, width, len)
    return [
        "  ".join(
            shorten(cell, size).ljust(size) if column in words else cell.rjust(size)
            for column, (cell, size) in enumerate(zip(row, widths, strict=True))
        )
        for row in table
    ]


def _column_widths(
    table: Sequence[Sequence[str]], words: Sequence[int], width: int, measure: Callable[[str], int]
) -> list[int]:
    """Widths of columns two apart; a screen that is too narrow cuts words, never figures."""
    widths = [max(measure(row[column]) for row in table) for column in range(len(table[0]))]
    for column in sorted(words, key=lambda word: -widths[word]):
        excess = sum(widths) + 2 * (len(widths) - 1) - width
        widths[column] = max(min(widths[column], SHORTEST_WORD), widths[column] - max(excess, 0))
    return widths


def render_rich(report: ReportValues, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
    """The report as renderables of rich, for a console's own width, encoding and colours.

    Parameters
    ----------
    console, options
        As rich passes them to ``__rich_console__``. Where the encoding is ASCII the plain text is
        rendered; where there are less than 256 colours, the bar is of letters.
    """
    from rich.text import Text

    width = options.max_width
    if options.ascii_only:
        yield Text(render_plain(report, width))
        return
    coloured = console.color_system in DISTINCT_COLOURS and not console.no_color
    table = lost_time(report)
    yield Text(title(report), style="bold")
    if said := context(report):
        yield Text(said, style="dim")
    yield Text(verdict(report) + ".", style="bold")
    if table.parts:
        yield Text()
        yield _rich_bar(table, width) if coloured else Text(f"[{letters(table.parts, width - 2)}]")
        yield _rich_legend(table, width, coloured)
    if table.parts or table.running is not None:
        yield Text()
        yield from _rich_losses(report, table, width, coloured)
    elif said := not_counted(report):
        yield Text(said, style="dim")
    for section in sections(report):
        yield Text()
        yield from rich_section(section, width)


def _rich_bar(table: LostTime, width: int) -> Text:
    from rich.text import Text

    bar = Text(no_wrap=True, overflow="crop")
    colours = [COLOURS[part.bucket] for part in table.parts]
    for cell, run in groupby(cells([part.nanoseconds for part in table.parts], width)):
        bar.append(cell.character * len(list(run)), style=f"{colours[cell.left]} on {colours[cell.right]}")
    return bar


def _rich_legend(table: LostTime, width: int, coloured: bool) -> Text:
    from rich.text import Text

    items = []
    for part in table.parts:
        mark = ("■", COLOURS[part.bucket]) if coloured else LETTERS[part.bucket]
        items.append(Text.assemble(mark, f" {part.bucket} {percent_of(part)} %"))
    lines = packed([len(item) for item in items], width)
    return Text("\n").join(Text("  ").join(items[i] for i in line) for line in lines)


def _rich_losses(report: ReportValues, table: LostTime, width: int, coloured: bool) -> Iterator[RenderableType]:
    from rich.padding import Padding
    from rich.text import Text

    todo = advised(report)
    beside = width >= WIDE and bool(todo)
    heads, rows = loss_cells(table)
    if beside:
        heads = (*heads, "what to do")
        rows = [(*row, todo.get(row[0], "")) for row in rows]
    if coloured:
        rows = [("  " + row[0], *row[1:]) for row in rows]
    drawn = _rich_table(heads, rows, (0, len(heads) - 1) if beside else (0,), width)
    for row, texts in zip(table.rows, rows, strict=True):
        label = Text(texts[0])
        if coloured and row.label in set(Bucket):
            label = Text.assemble(("■ ", COLOURS[Bucket(row.label)]), row.label)
        if row is table.total:
            drawn.add_section()
        drawn.add_row(label, *map(Text, texts[1:]), style="bold" if row in (table.useful, table.total) else "")
    yield drawn
    if said := not_counted(report):
        yield Text(said, style="dim")
    if todo and not beside:
        yield Text("\nWhat to do", style="bold")
        for bucket, line_of_advice in todo.items():
            yield Padding(Text.assemble((f"{bucket}: ", "bold"), line_of_advice), (0, 0, 0, 2))


def rich_section(section: Section, width: int) -> Iterator[RenderableType]:
    """A section as renderables of rich."""
    from rich.padding import Padding
    from rich.text import Text

    yield Text(section.title, style="bold yellow" if section.caveat else "bold")
    for line in section.lines:
        yield Padding(Text(line), (0, 0, 0, 2))
    if section.rows:
        table = _rich_table(section.heads, section.rows, section.words, width - 2)
        for position, row in enumerate(section.rows):
            is_sum = position in section.sums
            if is_sum:
                table.add_section()
            table.add_row(*map(Text, row), style="bold" if is_sum else "")
        yield Padding(table, (0, 0, 0, 2))


def _rich_table(heads: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[int], width: int) -> Table:
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    # rules under the head and between sections, one space between columns and one of padding
    ruled = box.Box("    \n    \n ── \n    \n ── \n ── \n    \n    \n")
    table = Table(box=ruled, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    widths = _column_widths((heads, *rows), words, width, cell_len)
    for column, (head, size) in enumerate(zip(heads, widths, strict=True)):
        justify: Literal["left", "right"] = "left" if column in words else "right"
        # advice, in the last column, may take two lines
        table.add_column(Text(head), justify=justify, width=size, no_wrap=column < len(heads) - 1, overflow="ellipsis")
    return table
