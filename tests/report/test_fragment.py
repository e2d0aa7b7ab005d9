import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given

from dask_efficiency import EfficiencyReport
from dask_efficiency.report.sections.report import notebook
from dask_efficiency.report.values import Repeat
from dask_efficiency.show.html.render import fragment
from tests.report.samples import HOSTILE_NAMES, by_hand, report_of, reports, seconds


def render_html(report: EfficiencyReport) -> str:
    return fragment(notebook(report))


class Reader(HTMLParser):
    """Collects elements, attributes and text, and checks that every element is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.elements.append((tag, dict(attrs)))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_report_is_a_closed_piece_of_html_with_pie_bar_table_and_advice() -> None:
    page = Reader(render_html(by_hand()))
    tags = [tag for tag, _ in page.elements]
    assert (tags.count("path"), tags.count("table")) == (5, 3)
    assert by_hand().headline in page.text
    assert "more memory, make partitions smaller" in page.text
    assert by_hand()._repr_html_() == render_html(by_hand())


@given(reports)
def test_any_report_makes_html_without_script_request_or_id(report: EfficiencyReport) -> None:
    html = render_html(report)
    page = Reader(html)
    allowed = {"div", "style", "b", "span", "svg", "path", "title", "text", "rect", "table", "thead", "tbody"}
    allowed |= {"ol", "li", "tr", "th", "td", "section", "details", "summary", "pre"}
    assert {tag for tag, _ in page.elements} <= allowed
    attributes = {name for _, given_ in page.elements for name in given_}
    assert not attributes & {"id", "href", "src"}
    assert [given_["style"] for _, given_ in page.elements if "style" in given_] == ["display:none"]
    assert not any(name.startswith("on") for name in attributes)
    assert not re.search(r"url\(|@import|https?:", html.partition("</style>")[0])


_HELD = {name: seconds(thread_cpu=2, spill=1) for name in HOSTILE_NAMES}
#: Fields of a report with names that try to break out.
HOSTILE: dict[str, Any] = {
    "name": HOSTILE_NAMES[0],
    **dict.fromkeys(("by_worker", "by_prefix", "by_span"), _HELD),
    "not_measured": {name: name for name in HOSTILE_NAMES},
    "notes": HOSTILE_NAMES,
    "repeats": dict.fromkeys(HOSTILE_NAMES, Repeat(3, 4)),
    "outside": dict.fromkeys(HOSTILE_NAMES, 1.0),
}


def test_hostile_names_are_shown_and_not_run() -> None:
    html = render_html(by_hand(**HOSTILE))
    assert "<script" not in html
    assert "<img" not in html
    assert "\x1b" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert len(html) < 60_000
    Reader(html)


def test_every_rule_of_the_style_is_scoped_to_the_report() -> None:
    style = re.search(r"<style>(.*?)</style>", render_html(by_hand()), re.DOTALL)
    assert style is not None
    rules = re.sub(r"@media[^{]*\{(.*?\})\}", r"\1", style.group(1), flags=re.DOTALL)
    for selectors in re.findall(r"([^{}]+)\{", rules):
        assert all(selector.strip().startswith(".dask-efficiency") for selector in selectors.split(","))


def test_everything_but_caveats_is_folded() -> None:
    html = render_html(by_hand(notes=("Idle is an estimate.",)))
    # without the style the text of the first screen shows
    text = Reader(re.sub(".*<pre[^>]*>|</pre>.*", "", html, flags=re.DOTALL)).text
    assert (by_hand().headline in text, "Prefixes" in text) == (True, False)
    drawn = html.partition("</pre>")[2]
    assert re.findall(r'<section[^>]*><div class="de-head">([^<]*)</div>', drawn) == ["Notes"]
    assert re.findall("<summary>([^<]*)</summary>", drawn)[:2] == ["More findings", "Lost time"]


@pytest.mark.parametrize(
    "report",
    [report_of(), report_of(seconds(no_work=5)), report_of(seconds(running=5)), report_of(seconds(unmeasured=5))],
    ids=["empty", "no work", "running", "unmeasured"],
)
def test_a_special_case_shows_its_headline(report: EfficiencyReport) -> None:
    page = Reader(render_html(report))
    assert report.headline in page.text
    has_pie = any(tag == "path" for tag, _ in page.elements)
    assert has_pie == (report.breakdown["unmeasured"] > 0)
