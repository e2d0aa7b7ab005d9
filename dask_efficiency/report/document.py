"""Document: a title, a verdict and sections in a terminal; plain ASCII for any screen, rich where rich is installed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING

from dask_efficiency.report.section import Section
from dask_efficiency.report.text import NARROWEST, plain_blocks, plain_section, rich_section, show_either, wrapped

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType


@dataclass(frozen=True, slots=True)
class Document:
    """What is said in a terminal, from the top to the bottom."""

    title: str
    #: How much it covers; may be empty.
    context: str
    #: One sentence, without a full stop.
    verdict: str
    sections: tuple[Section, ...]
    #: Sentences below the sections.
    last: tuple[str, ...] = ()

    def show(self, file: IO[str] | None = None) -> None:
        """Print it: in colour on a terminal that can and where rich is installed, else plain.

        Parameters
        ----------
        file
            Standard output by default.
        """
        show_either(self, self.plain, file)

    def plain(self, width: int = 80) -> str:
        """ASCII text.

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
            [*wrapped(self.title, width), *wrapped(self.context, width)],
            wrapped(f"{self.verdict}.", width),
            *(plain_section(section, width) for section in self.sections),
            *(wrapped(text, width) for text in self.last),
        ]
        return plain_blocks(blocks)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich.text import Text

        width = options.max_width
        if options.ascii_only:
            yield Text(self.plain(width))
            return
        yield Text(self.title, style="bold")
        if self.context:
            yield Text(self.context, style="dim")
        yield Text(f"{self.verdict}.", style="bold")
        for section in self.sections:
            yield Text()
            yield from rich_section(_with_blocks(section), width)
        for text in self.last:
            yield Text(f"\n{text}")


def _with_blocks(section: Section) -> Section:
    """The section with bars, which are in a last column without a name, that are not of ASCII."""
    if section.heads[-1:] != ("",):
        return section
    return replace(section, rows=tuple((*row[:-1], "█" * len(row[-1])) for row in section.rows))
