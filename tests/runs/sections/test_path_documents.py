from __future__ import annotations

import io
import re

import pytest

from benchmarks.simulated_traces import SAMPLES
from dask_efficiency import CriticalPath, critical_path
from dask_efficiency.runs import compare_paths
from dask_efficiency.runs.sections.path import document, what_if_document
from dask_efficiency.show.terminal.coloured import show
from dask_efficiency.show.terminal.plain import plain
from tests.runs.path_samples import hostile, transfers


@pytest.mark.parametrize("width", [1, 40, 80, 200])
@pytest.mark.parametrize("path", [transfers(), hostile()], ids=["transfers", "hostile"])
def test_plain_text_is_ascii_and_not_wider_than_the_screen(path: CriticalPath, width: int) -> None:
    text = plain(document(path), width)
    assert text.isascii()
    assert "\x1b" not in text
    assert all(line == line.rstrip() for line in text.splitlines())
    if width >= 80:
        assert max(map(len, text.splitlines())) <= width


def test_the_headline_comes_before_the_tables() -> None:
    path = transfers()
    text = " ".join(plain(document(path), 500).split())
    places = [path.headline, f"1. {path.findings[0].title}", "What the makespan was spent on", "By task prefix"]
    assert list(map(text.index, places)) == sorted(map(text.index, places))


def test_a_path_is_shown_by_itself() -> None:
    path = transfers()
    assert str(path) == plain(document(path))
    stream = io.StringIO()
    show(document(path), stream)
    assert path.headline[:30] in stream.getvalue()


def test_rich_says_what_plain_text_says() -> None:
    console = pytest.importorskip("rich.console")
    path = transfers()
    screen = io.StringIO()
    console.Console(file=screen, width=80, color_system=None, legacy_windows=False).print(path)
    words = re.findall(r"[\w.%-]+", plain(document(path)))
    assert [word for word in words if word not in screen.getvalue() and not set(word) <= set("-")] == []


def test_a_change_is_shown_with_what_would_bound_the_run_then(capsys: pytest.CaptureFixture[str]) -> None:
    before = transfers()
    after = before.what_if(without=("transfer",))
    show(what_if_document(before, after, "With no transfer"))
    said = " ".join(capsys.readouterr().out.split())
    assert before.headline in said
    assert f"Then: {after.headline}" in said


def test_a_comparison_is_shown_by_itself_in_plain_text_and_in_rich() -> None:
    console = pytest.importorskip("rich.console")
    comparison = compare_paths(transfers(), critical_path(SAMPLES["spilling"]()))
    assert "onto the path" in str(comparison)
    text = str(comparison)
    assert " ".join(text.split()).index(comparison.headline) < text.index("By kind") < text.index("By task prefix")
    assert text.index("By task prefix") < text.index("Before: ") < text.index("Now: ")
    screen = io.StringIO()
    console.Console(file=screen, width=80, color_system=None, legacy_windows=False).print(comparison)
    assert [word for word in re.findall(r"[\w.%-]+", text) if word not in screen.getvalue() and set(word) > {"-"}] == []
