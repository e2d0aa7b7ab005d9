from __future__ import annotations

import io

import pytest

from dask_efficiency.show.document import Document, Share, Table, section
from dask_efficiency.show.terminal.coloured import renderables
from dask_efficiency.show.terminal.plain import plain

BARS = section(
    "Table",
    "A sentence.",
    Table(("name", "time"), (("a", "1"), ("b", "2")), drawings=(Share(1.0), Share(0.5))),
    section("Moves", Table(("name", "moved", ""), (("a", "onto the path", "new"),), words=(0, 1, 2))),
    section("Folded", "Whoever wants to know.", folded=True),
)
DOCUMENT = Document("Title", "Context", "It took long", (BARS,), ("That is all.",))


def rich_text(document: Document, encoding: str) -> str:
    console = pytest.importorskip("rich.console")
    raw = io.BytesIO()
    screen = io.TextIOWrapper(raw, encoding=encoding)
    shown = console.Console(file=screen, width=60, color_system=None, legacy_windows=False)
    shown.print(console.Group(*renderables(document, shown, shown.options)))
    screen.flush()
    return raw.getvalue().decode(encoding)


def test_everything_is_said_in_order_with_a_full_stop_after_the_headline() -> None:
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
    for text in (plain(DOCUMENT), rich_text(DOCUMENT, "ascii")):
        places = [text.index(words) for words in said]
        assert places == sorted(places)


def test_bars_are_blocks_where_they_can_be_and_words_stay_words() -> None:
    text = rich_text(DOCUMENT, "utf-8")
    assert "████" in text
    assert "#" not in text
    assert "onto the path  new" in text
    assert rich_text(DOCUMENT, "ascii").isascii()


def test_a_bar_is_as_long_as_its_share() -> None:
    lengths = [line.count("#") for line in plain(DOCUMENT).splitlines() if "#" in line]
    assert lengths == [24, 12]


def test_what_is_folded_away_on_a_page_is_not_in_a_text() -> None:
    for text in (plain(DOCUMENT), rich_text(DOCUMENT, "utf-8")):
        assert "Whoever" not in text


def test_without_a_context_there_is_no_line_for_it() -> None:
    assert plain(Document("Title", "", "Verdict", ())) == "Title\n\nVerdict."
    assert rich_text(Document("Title", "", "Verdict", ()), "utf-8") == "Title\nVerdict.\n"


def test_no_width_is_too_narrow() -> None:
    assert plain(DOCUMENT, 1) == plain(DOCUMENT, 40)
