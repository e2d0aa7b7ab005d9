from __future__ import annotations

import io

import pytest

from dask_efficiency.report.document import Document
from dask_efficiency.report.section import Section

BARS = Section("Table", ("A sentence.",), ("name", "time", ""), (("a", "1", "####"), ("b", "2", "##")), words=(0, 2))
WORDS = Section("Moves", (), ("name", "moved"), (("a", "onto the path"),), words=(0, 1))
DOCUMENT = Document("Title", "Context", "It took long", (BARS, WORDS), ("That is all.",))


def rich_text(document: Document, encoding: str) -> str:
    console = pytest.importorskip("rich.console")
    raw = io.BytesIO()
    screen = io.TextIOWrapper(raw, encoding=encoding)
    console.Console(file=screen, width=60, color_system=None, legacy_windows=False).print(document)
    screen.flush()
    return raw.getvalue().decode(encoding)


def test_everything_is_said_in_order_with_a_full_stop_after_the_verdict() -> None:
    said = [
        "Title",
        "Context",
        "It took long.",
        "Table",
        "A sentence.",
        "####",
        "Moves",
        "onto the path",
        "That is all.",
    ]
    for text in (DOCUMENT.plain(), rich_text(DOCUMENT, "ascii")):
        places = [text.index(words) for words in said]
        assert places == sorted(places)


def test_bars_are_blocks_where_they_can_be_and_words_stay_words() -> None:
    text = rich_text(DOCUMENT, "utf-8")
    assert "████" in text
    assert "#" not in text
    assert "onto the path" in text
    assert rich_text(DOCUMENT, "ascii").isascii()


def test_without_a_context_there_is_no_line_for_it() -> None:
    assert Document("Title", "", "Verdict", ()).plain() == "Title\n\nVerdict."
    assert rich_text(Document("Title", "", "Verdict", ()), "utf-8") == "Title\nVerdict.\n"


def test_no_width_is_too_narrow() -> None:
    assert DOCUMENT.plain(1) == DOCUMENT.plain(40)
