from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from markupsafe import escape

from dask_efficiency.runs.sections.path_kinds import KIND_COLOURS, TORCH_MEANINGS
from dask_efficiency.show.html.render import fragment, page
from dask_efficiency.torch_traces.sections import path as sections
from dask_efficiency.torch_traces.sections.data import to_dict
from tests.torch_traces.path.samples import recorded
from tests.torch_traces.sections.test_path import hostile


@pytest.mark.parametrize("name", ["simple_add", "h100", "dlrm"])
def test_a_page_has_headline_bar_tables_and_data(tmp_path: Path, name: str) -> None:
    path = recorded(name)
    path.to_html(tmp_path / "a.html")
    html = (tmp_path / "a.html").read_text()
    assert escape(path.headline) in html
    for text in ("What the window was spent on", "By kernel and operator", "Longest path", "What would help"):
        assert text in html
    for kind, seconds in path.seconds().items():
        if seconds > 0.01 * path.window_seconds:
            assert KIND_COLOURS[kind] in html  # type: ignore[index]  # a text is equal to its kind
            assert str(escape(TORCH_MEANINGS[kind])) in html  # type: ignore[index]
    (data,) = re.findall(r'<script[^>]*id="data"[^>]*>(.*?)</script>', html, flags=re.DOTALL)
    assert json.loads(data) == json.loads(json.dumps(to_dict(path)))


@pytest.mark.parametrize(
    "render", [lambda: page(sections.page(hostile())), lambda: fragment(sections.document(hostile()))]
)
def test_no_name_becomes_markup(render: object) -> None:
    html = render()  # type: ignore[operator]
    for smuggled in ("<script>alert", "<img", 'onerror=alert(1)>"', "\x1b", "\u202e"):
        assert smuggled not in html


def test_a_notebook_shows_a_fragment_without_script() -> None:
    html = recorded("dlrm")._repr_html_()
    assert "<script" not in html
    assert "Who waited for whom" in html
