"""The document as Markdown of GitHub and GitLab, for a comment below a change or the summary of a job."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from dask_efficiency.show.document import Aside, Block, Cell, Document, Section, Spark, Table
from dask_efficiency.show.figures import harmless
from dask_efficiency.show.terminal import blocks_of, written, written_out

#: Characters with a meaning in Markdown, HTML or a comment: names cannot make links, pictures, mentions or tables.
_SPECIAL = re.compile(r"([\\`*_\[\]<#|~@&$]|:(?=[/a-z])|(?<=www)\.)", re.IGNORECASE)
#: Beginnings of mentions, references and addresses, which GitHub and GitLab find without backslashes.
_REFERENCE = re.compile(r"[@~](?=\w)|[#!%$&](?=\d)|:(?=//)")


def markdown(document: Document) -> str:
    """Headline, findings and main figures, and the sections folded."""
    lines = [f"### {_text(document.headline)}", "", f"{_text(document.title)}. {_text(document.context)}".strip()]
    lines += [""] if document.findings else []
    for number, (first, *rest) in enumerate(document.findings, 1):
        lines += [f"{number}. {_text(first)}", *(f"   {_text(text)}" for text in rest)]
    if document.stats:
        lines += ["", *_rows(("", ""), [(name, figure) for name, figure in document.stats], words=(0,))]
    for section in written(document.sections):
        lines += ["", *_section(section)]
    lines += [text for last in document.last for text in ("", _text(last))]
    return "\n".join(lines) + "\n"


def _section(section: Section) -> Iterator[str]:
    folded = section.title and not section.caveat
    yield f"<details><summary>{escape(_unlinked(section.title))}</summary>" if folded else f"**{_text(section.title)}**"
    for block in section.blocks:
        yield ""
        yield from _block(block)
    if folded:
        yield ""
        yield "</details>"


def _block(block: Block) -> Iterator[str]:
    match block:
        case str(text) | Aside(text):
            yield _text(text)
        case Spark(text, shares):
            yield f"{_text(text)}  "
            yield f"`{blocks_of(shares)}`"
        case Table(heads, rows, words):
            yield from _rows(heads, rows, words)


def _rows(
    heads: tuple[str, ...], rows: list[tuple[str, str]] | tuple[tuple[Cell, ...], ...], words: tuple[int, ...]
) -> Iterator[str]:
    yield _row(heads)
    yield _row(["---" if column in words else "---:" for column in range(len(heads))], raw=True)
    for row in rows:
        yield _row([written_out(cell) for cell in row])


def _row(cells: tuple[str, ...] | list[str], *, raw: bool = False) -> str:
    return "| " + " | ".join(cell if raw else _text(cell) for cell in cells) + " |"


def _text(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", _unlinked(text))


def _unlinked(text: str) -> str:
    """Text with a space of no width inside what would be a mention, a reference or an address."""
    return _REFERENCE.sub("\\g<0>\u200b", harmless(" ".join(text.split())))
