"""A comparison in a terminal: plain ASCII for any screen, rich where rich is installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from dask_efficiency.report.compare import Comparison
from dask_efficiency.report.comparison_sections import context, sections, title
from dask_efficiency.report.text import NARROWEST, plain_blocks, plain_section, rich_section, show_either, wrapped

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType


def show(comparison: Comparison, file: IO[str] | None = None) -> None:
    """Print the comparison: in colour on a terminal that can and where rich is installed, else plain.

    Parameters
    ----------
    file
        Standard output by default.
    """
    show_either(comparison, lambda width: render_plain(comparison, width), file)


def render_plain(comparison: Comparison, width: int = 80) -> str:
    """The comparison as ASCII text.

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
    blocks = [
        [*wrapped(title(comparison), width), *wrapped(context(comparison), width)],
        wrapped(comparison.verdict + ".", width),
        *(plain_section(section, width) for section in sections(comparison)),
    ]
    return plain_blocks(blocks)


def render_rich(comparison: Comparison, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
    """The comparison as renderables of rich, for a console's own width and encoding.

    Parameters
    ----------
    console, options
        As rich passes them to ``__rich_console__``. Where the encoding is ASCII the plain text is
        rendered.
    """
    from rich.text import Text

    width = options.max_width
    if options.ascii_only:
        yield Text(render_plain(comparison, width))
        return
    yield Text(title(comparison), style="bold")
    yield Text(context(comparison), style="dim")
    yield Text(comparison.verdict + ".", style="bold")
    for section in sections(comparison):
        yield Text()
        yield from rich_section(section, width)
