import json
import math
import random
import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.buckets import Breakdown, combine
from dask_efficiency.accounts.cluster.timeline import MAX_BINS, Timeline
from dask_efficiency.report.sections.report import page
from dask_efficiency.report.values import Repeat
from dask_efficiency.show.document import PAGE
from dask_efficiency.show.html.render import page as html_page
from tests.report.profile_samples import profiled_reports
from tests.report.samples import HOSTILE_NAMES, by_hand, report_of, reports, seconds, waiting_for_the_gil

#: How a small bar begins.
BAR = '<svg width="100%" height="12" role="img">'
#: Elements without an end.
VOID = re.compile(r"<(meta|link)[^>]*>|<!DOCTYPE html>")


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


def render_page(report: EfficiencyReport) -> str:
    return html_page(page(report))


def by_notebook(report: EfficiencyReport) -> str:
    return report._repr_html_()


def read(html: str) -> Reader:
    """Elements and text that a reader of the page or of the notebook sees."""
    return Reader(VOID.sub("", re.sub(r"<(style|script)\b.*?</\1>", "", html, flags=re.DOTALL)))


def headings(report: EfficiencyReport) -> list[str]:
    """Of the sections that are seen at once, and of those that unfold."""
    return re.findall(r"(?:<h2>|<(?:/section|/details)><details><summary>)(.*?)</", render_page(report))


def large(workers: int, prefixes: int, bins: int = MAX_BINS) -> EfficiencyReport:
    """A run with all that a report can hold, and nothing that looks alike."""
    chance = random.Random(4)
    held = ["thread-cpu", "thread-noncpu", "spill", "overhead", "failed", "recomputed", "running"]
    free = ["waiting-on-data", "idle", "no-work", "paused", "unmeasured"]

    def row(buckets: list[str]) -> Breakdown:
        return Breakdown({bucket: chance.randrange(10**13) for bucket in buckets})

    activity = held[:4] + free
    return report_of(
        by_worker={f"tcp://10.20.{i // 256}.{i % 256}:{40_000 + i}": row(held + free) for i in range(workers)},
        by_prefix={f"_process-some-partition-of-a-frame-{i}": row(held) for i in range(prefixes)},
        by_span={"pipeline": combine((steps := {f"pipeline/step-{i}": row(held) for i in range(8)}).values()), **steps},
        nthreads={f"tcp://10.20.{i // 256}.{i % 256}:{40_000 + i}": 8 for i in range(workers)},
        phases={"optimize": 0.1, "upload": 0.2, "schedule": 0.3, "run": 4.0, "gather": 0.1},
        tasks={"succeeded": 10**6, "failed": 12},
        outside={f"activity {i}": chance.random() for i in range(12)},
        details={f"in task: metered {i}": chance.random() for i in range(12)},
        not_measured={f"tcp://10.20.0.{i}:{40_000 + i}": f"reason {i}" for i in range(12)},
        environment={f"distributed.some.setting-{i}": "100 ms (default 10 ms)" for i in range(40)},
        timeline=Timeline(
            10**9, bins * 10**9, {n: tuple(chance.randrange(10**12) for _ in range(bins)) for n in activity}
        ),
        code=tuple("x = 1\n" * 600 for _ in range(2)),
        price_per_worker_hour=0.4,
    )


@pytest.mark.parametrize(("workers", "prefixes", "most"), [(100, 200, 150 * 1024), (2_000, 1_200, 250_000)])
def test_a_page_is_small_however_large_the_run(workers: int, prefixes: int, most: int) -> None:
    assert len(render_page(large(workers, prefixes)).encode()) <= most


def test_a_page_is_in_reading_order() -> None:
    assert headings(large(2, 3)) == [
        *("More findings", "Lost time", "What findings mean", "Factors", "Through the run", "Workers"),
        *("Prefixes by time held (thread-h)", "Spans", "Client phases", "Outside the thread slots (not in any sum)"),
        *("Details of buckets (not in any sum)", "Not measured", "Environment", "The code that ran"),
    ]
    # an empty run has a headline and no section
    report = report_of(window_seconds=0.0, cluster_seconds=0.0)
    assert headings(report) == []
    assert report.headline in read(render_page(report)).text


def test_the_figures_are_the_reports() -> None:
    text = read(render_page(by_hand())).text
    assert "5.0 s, of which up to 750 ms can be saved" in text
    assert "Spilling to disk: saves up to 750 ms." in text
    html = render_page(by_hand())
    assert "<dd>4.5 s</dd>" in html
    assert "<tr><td>load</td>" in html
    assert re.search(r"</svg>spill</td><td>3\.0</td><td>0\.75</td><td>17\.6</td>", html)
    # no ideal runtime is promised while much is running
    assert "<dt>ideally</dt>" in render_page(report_of(seconds(thread_cpu=9, idle=5)))
    assert "<dt>ideally</dt>" not in render_page(report_of(seconds(thread_cpu=1, running=9)))


def test_long_code_is_cut_with_a_note_and_settings_stand_apart_from_versions() -> None:
    environment = {"dask": "2026.8.0", "distributed.comm.compression": "lz4"}
    html = render_page(by_hand(code=("y = 2\n", "x" * 8_000, "never shown"), environment=environment))
    assert "<pre>y = 2</pre>" in html
    assert "more characters</pre>" in html
    assert "never shown" not in html
    assert "more characters" not in render_page(by_hand(code=("y = 2", "x" * 7_995)))
    facts, _, configuration = html.partition(">Dask&#39;s configuration<")
    assert ("2026.8.0" in facts, "lz4" in facts, "lz4" in configuration) == (True, False, True)


def test_causes_are_parts_of_the_row_above_with_a_meaning_of_their_own() -> None:
    report = waiting_for_the_gil()
    for html in (render_page(report), report._repr_html_()):
        (row,) = re.findall(r"<tr><td class=\"de-part\">(?:(?!</tr>).)*\bgil<(?:(?!</tr>).)*</tr>", html)
        assert ">17.2<" in row
        assert "which another thread of the worker held" in row
        assert html.count('class="de-part"') == 9


def test_the_data_are_the_headline_numbers_and_the_timeline() -> None:
    timeline = Timeline(10**9, 15 * 10**8, {"idle": (3 * 10**9, 4 * 10**9)}, {"idle/graph": (10**9, 0)})
    held = re.search(r'id="data">(.*?)</script>', render_page(by_hand(timeline=timeline)))
    assert held is not None
    data = json.loads(held.group(1))
    assert data["head"]["efficiency"] == by_hand().efficiency
    rows = {"threads": {"idle": [3.0, 8.0]}, "causes": {"idle/graph": [1.0, 0.0]}}
    assert data["timeline"] == {"bin_seconds": 1.0, "seconds": 1.5, **rows}


def test_few_workers_and_prefixes_have_bars_and_the_rest_strips_and_a_row() -> None:
    few, many = (render_page(large(n, 1)) for n in (PAGE.workers, PAGE.workers + 1))
    assert ('class="de-strips"' in few, few.count(BAR)) == (False, PAGE.workers + 1)
    assert ('class="de-strips"' in many, many.count(BAR)) == (True, 1)
    html = render_page(large(1, PAGE.prefixes + 5))
    assert "5 more prefixes" in html
    assert f"All {PAGE.prefixes + 5} prefixes" in html
    assert html.count(BAR) == 1 + PAGE.prefixes
    assert "<details><summary>All" not in render_page(large(1, PAGE.prefixes))


_HELD = {name: seconds(thread_cpu=2, spill=1) for name in HOSTILE_NAMES}
#: Fields of a report with names that try to break out.
HOSTILE: dict[str, Any] = {
    "name": HOSTILE_NAMES[0],
    **dict.fromkeys(("by_worker", "by_prefix", "by_span"), _HELD),
    "not_measured": {name: name for name in HOSTILE_NAMES},
    **dict.fromkeys(("phases", "outside"), dict.fromkeys(HOSTILE_NAMES, 1.0)),
    "tasks": dict.fromkeys(HOSTILE_NAMES, 1),
    "environment": {name: name for name in HOSTILE_NAMES} | {"dask-efficiency": HOSTILE_NAMES[0]},
    "code": (*HOSTILE_NAMES, "</pre></script><script>alert(2)</script>"),
    "notes": HOSTILE_NAMES,
    "repeats": dict.fromkeys(HOSTILE_NAMES, Repeat(3, 4)),
}


@pytest.mark.parametrize(("draw", "scripts", "most"), [(render_page, 2, 150_000), (by_notebook, 0, 60_000)])
def test_hostile_names_are_shown_and_not_run(draw: Callable[..., str], scripts: int, most: int) -> None:
    rows = HOSTILE["by_worker"]
    for shown in (by_hand(**HOSTILE), by_hand(by_worker={f"{i}{n}": b for i in range(9) for n, b in rows.items()})):
        html = draw(shown)
        assert html.count("<script") == scripts
        assert "<img" not in html
        assert "\x1b" not in html
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
        html.encode("utf-8")
        assert len(html) < most
        read(html)


@given(reports | profiled_reports())
@settings(max_examples=100)
def test_any_report_makes_closed_html_that_asks_for_nothing(report: EfficiencyReport) -> None:
    for html, styles in ((render_page(report), []), (by_notebook(report), ["display:none"])):
        shown = read(html)
        attributes = {name for _, given_ in shown.elements for name in given_}
        assert not attributes & {"src", "href", "action"}
        assert not any(name.startswith("on") for name in attributes)
        assert not {tag for tag, _ in shown.elements} & {"script", "img", "iframe", "object", "form", "a", "input"}
        assert [given_["style"] for _, given_ in shown.elements if "style" in given_] == styles
        html.encode("utf-8")
    allowed = {"div", "b", "span", "svg", "path", "title", "text", "rect", "table", "thead", "tbody"}
    allowed |= {"ol", "li", "tr", "th", "td", "section", "details", "summary", "pre", "code"}
    assert {tag for tag, _ in shown.elements} <= allowed
    assert "id" not in attributes
    assert not re.search(r"<script|url\(|@import|https?:", html.partition("</style>")[0])


@pytest.mark.parametrize("started", [0.0, math.nan, 1e18])
def test_a_start_that_no_calendar_has_is_left_out(started: float) -> None:
    assert "began" not in render_page(by_hand(started=started))
    assert "began 2026-05-28 20:26:40 UTC" in render_page(by_hand(started=1_780_000_000.0))


def test_a_notebook_has_the_report_as_a_closed_piece_of_html_with_pie_bar_table_and_advice() -> None:
    shown = read(by_notebook(by_hand()))
    tags = [tag for tag, _ in shown.elements]
    assert (tags.count("path"), tags.count("table")) == (5, 3)
    assert by_hand().headline in shown.text
    assert "more memory, make partitions smaller" in shown.text


def test_every_rule_of_the_style_in_a_notebook_is_scoped_to_the_report() -> None:
    style = re.search(r"<style>(.*?)</style>", by_notebook(by_hand()), re.DOTALL)
    assert style is not None
    rules = re.sub(r"@media[^{]*\{(.*?\})\}", r"\1", style.group(1), flags=re.DOTALL)
    for selectors in re.findall(r"([^{}]+)\{", rules):
        assert all(selector.strip().startswith(".dask-efficiency") for selector in selectors.split(","))


def test_everything_but_caveats_is_folded_in_a_notebook() -> None:
    html = by_notebook(by_hand(notes=("Idle is an estimate.",)))
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
    page = read(by_notebook(report))
    assert report.headline in page.text
    has_pie = any(tag == "path" for tag, _ in page.elements)
    assert has_pie == any(report.breakdown[bucket] for bucket in ("unmeasured", "running"))
