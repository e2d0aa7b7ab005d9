import json
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape

from dask_efficiency import compare
from dask_efficiency.report.compare import Comparison
from dask_efficiency.report.sections.comparison import page
from dask_efficiency.show.html import render
from tests.report.samples import HOSTILE_NAMES, by_hand, report_of, seconds

SPILLS = compare(
    [report_of(seconds(thread_cpu=10, spill=spill, idle=4), name="old", cluster_seconds=4.0) for spill in (1.5, 2)],
    report_of(seconds(thread_cpu=10, spill=6), name="new", cluster_seconds=3.0, notes=("a note",)),
)


def document(comparison: Comparison) -> str:
    return render.page(page(comparison))


def fragment(comparison: Comparison) -> str:
    return render.fragment(page(comparison))


def hostile() -> Any:
    by_prefix = {name: seconds(thread_cpu=2, spill=i) for i, name in enumerate(HOSTILE_NAMES)}
    texts = dict.fromkeys(HOSTILE_NAMES, "</script><script>alert(2)</script>")
    after = by_hand(by_prefix=by_prefix, notes=HOSTILE_NAMES, environment=texts, tasks=dict.fromkeys(HOSTILE_NAMES, 1))
    return compare([by_hand(name=name) for name in HOSTILE_NAMES], after)


@pytest.mark.parametrize("render", [document, fragment])
def test_everything_in_text_is_in_html(render: Any) -> None:
    html = render(SPILLS)
    assert escape(SPILLS.headline) in html
    assert escape(SPILLS.findings[0].lines[0]) in html
    assert "after: a note" in html
    for title in ("Thread time by cause", "The run", "Factors of the efficiency", "Mind when comparing"):
        assert title in html


@pytest.mark.parametrize("render", [document, fragment])
def test_no_name_becomes_markup(render: Any) -> None:
    html = render(hostile())
    for smuggled in ("<script>alert", "<img", 'onerror=alert(1)>"', "\x1b", "\u202e"):
        assert smuggled not in html


def test_the_representation_in_a_notebook_is_the_fragment() -> None:
    assert SPILLS._repr_html_() == fragment(SPILLS)


def test_a_comparison_of_nothing_has_no_bars() -> None:
    html = document(compare(report_of(), report_of()))
    assert "Nothing to compare" in html
    assert "<rect" not in html


class Opened:
    """A page of a file in a browser, with everything that it asked for and complained about."""

    def __init__(self, browser: Any, path: Path, scheme: str) -> None:
        self.requests: list[str] = []
        self.faults: list[str] = []
        self.page = browser.new_context(color_scheme=scheme).new_page()
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.faults.append(message.text))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.faults.append(dialog.message), dialog.dismiss()))
        self.page.goto(path.as_uri())
        self.page.wait_for_load_state("networkidle")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_opens_offline_in_a_browser_and_shows_the_figures(chromium: Any, tmp_path: Path, scheme: str) -> None:
    path = tmp_path / "comparison.html"
    SPILLS.to_html(path)
    opened = Opened(chromium, path, scheme)
    assert opened.requests == [path.as_uri()]
    assert opened.faults == []
    page = opened.page
    assert page.inner_text(".de-headline") == f"{SPILLS.headline}."
    assert json.loads(page.inner_text("#data")) == SPILLS.to_dict()
    cells = [cell.strip() for cell in page.locator("table").first.locator("tr", has_text="spill").all_inner_texts()]
    # the median of 1.5 and 2 thread-seconds before
    assert cells[0].split()[:4] == ["spill", "1.8", "6.0", "+4.2"]
    before, after = (bar.bounding_box()["width"] for bar in page.locator(".de-sides .de-bar").all())
    # the bars are as long as the runs took: 4 and 3 seconds
    assert after / before == pytest.approx(3 / 4, abs=0.01)
    page.close()
