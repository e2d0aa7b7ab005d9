"""A critical path in a terminal: plain ASCII for any screen, rich where rich is installed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from dask_efficiency.paths.compare import PathComparison
from dask_efficiency.paths.path import CriticalPath
from dask_efficiency.report.path_sections import context, differences, improvements, sections, title, what_if
from dask_efficiency.report.sections import Section, name_of
from dask_efficiency.report.text import NARROWEST, plain_blocks, plain_section, rich_section, show_either, wrapped

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType


def show(path: CriticalPath, file: IO[str] | None = None) -> None:
    """Print a path: in colour on a terminal that can and where rich is installed, else plain.

    Parameters
    ----------
    file
        Standard output by default.
    """
    show_either(path, lambda width: render_plain(path, width), file)


def show_what_if(before: CriticalPath, after: CriticalPath, changes: str) -> None:
    """Print what changes would do to a run.

    Parameters
    ----------
    before, after
        The path as recorded, and of the replay with changes.
    changes
        The changes in words, as the beginning of a sentence.
    """
    said = _Said((title(before), f"{before.verdict}."), what_if(before, after, changes), (f"Then: {after.verdict}.",))
    show_either(said, said.plain, None)


def show_improvements(path: CriticalPath) -> None:
    """Print where an improvement would help most."""
    said = _Said((title(path), f"{path.verdict}."), (improvements(path),), ())
    show_either(said, said.plain, None)


def show_comparison(comparison: PathComparison) -> None:
    """Print what differs between two paths."""
    said = _comparison(comparison)
    show_either(said, said.plain, None)


def render_comparison(comparison: PathComparison, width: int = 80) -> str:
    """What differs between two paths as ASCII text, as :func:`render_plain` does it."""
    return _comparison(comparison).plain(width)


def render_rich_comparison(
    comparison: PathComparison, console: Console, options: ConsoleOptions
) -> Iterator[RenderableType]:
    """What differs between two paths as renderables of rich, as :func:`render_rich` does it."""
    yield from _comparison(comparison).__rich_console__(console, options)


def _comparison(comparison: PathComparison) -> _Said:
    head = (f"{title(comparison.before)}, and of {name_of(comparison.after.trace.name) or 'a run'}",)
    last = (f"Before: {comparison.before.verdict}.", f"Now: {comparison.after.verdict}.")
    return _Said((*head, f"{comparison.verdict}."), differences(comparison), last)


@dataclass(frozen=True, slots=True)
class _Said:
    """Sentences, tables, and sentences."""

    first: tuple[str, ...]
    sections: tuple[Section, ...]
    last: tuple[str, ...]

    def plain(self, width: int) -> str:
        width = max(width, NARROWEST)
        tables = (plain_section(section, width) for section in self.sections)
        return plain_blocks(
            [*(wrapped(text, width) for text in self.first), *tables, *(wrapped(text, width) for text in self.last)]
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich.text import Text

        width = options.max_width
        if options.ascii_only:
            yield Text(self.plain(width))
            return
        for text in self.first:
            yield Text(text, style="bold")
        for section in self.sections:
            yield Text()
            yield from rich_section(_with_blocks(section), width)
        for text in self.last:
            yield Text(f"\n{text}")


def render_plain(path: CriticalPath, width: int = 80) -> str:
    """A path as ASCII text.

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
        [*wrapped(title(path), width), *wrapped(context(path), width)],
        wrapped(f"{path.verdict}.", width),
        *(plain_section(section, width) for section in sections(path)),
    ]
    return plain_blocks(blocks)


def render_rich(path: CriticalPath, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
    """A path as renderables of rich, for a console's own width and encoding.

    Parameters
    ----------
    console, options
        As rich passes them to ``__rich_console__``. Where the encoding is ASCII the plain text is
        rendered.
    """
    from rich.text import Text

    width = options.max_width
    if options.ascii_only:
        yield Text(render_plain(path, width))
        return
    yield Text(title(path), style="bold")
    yield Text(context(path), style="dim")
    yield Text(f"{path.verdict}.", style="bold")
    for section in sections(path):
        yield Text()
        yield from rich_section(_with_blocks(section), width)


def _with_blocks(section: Section) -> Section:
    """The section with bars that are not of ASCII."""
    if section.heads[-1:] != ("",):
        return section
    rows = tuple((*row[:-1], "█" * len(row[-1])) for row in section.rows)
    return Section(section.title, section.lines, section.heads, rows, section.words, section.caveat, section.sums)
