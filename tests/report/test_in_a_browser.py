"""Pages as a reader has them: files that are opened, with nothing else in reach."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dask_efficiency import compare
from dask_efficiency.accounts.cluster.timeline import Timeline
from dask_efficiency.accounts.lines import Frame
from dask_efficiency.report.values import ProfileRow
from tests.report.profile_samples import profiled
from tests.report.samples import HOSTILE_NAMES, by_hand, report_of, seconds, with_gpus
from tests.report.test_report_page import large

FIRST_CELLS = "table => [...table.rows].map(row => row.cells[0].textContent)"


class Page:
    """The page of a report, or of anything else that has one, its requests and its complaints."""

    def __init__(self, page: Any, path: Path, report: Any) -> None:
        self.page = page
        self.faults: list[str] = []
        self.requests: list[str] = []
        report.to_html(str(path))
        page.on("console", lambda message: self.faults.append(message.text))
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("dialog", lambda dialog: self.faults.append(dialog.message) or dialog.dismiss())
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(f"file://{path}")

    def unfold(self, heading: str) -> bool:
        """Show a folded section; False if there is none of this title."""
        folded = self.page.locator(f'main > details:has(> summary:text-is("{heading}"))')
        if folded.count() and folded.get_attribute("open") is None:
            folded.locator("> summary").click()
        return bool(folded.count())

    def under(self, heading: str, what: str) -> Any:
        """Elements of a section, which is unfolded first where it is folded."""
        if self.unfold(heading):
            return self.page.locator(f'main > details:has(> summary:text-is("{heading}")) {what}')
        return self.page.locator(f'section:has(h2:text-is("{heading}")) {what}')


@pytest.fixture
def open_page(chromium: Any, tmp_path: Path) -> Iterator[Any]:
    contexts = []

    def open_page(report: Any, **options: Any) -> Page:
        contexts.append(chromium.new_context(**options))
        return Page(contexts[-1].new_page(), tmp_path / f"{len(contexts)}.html", report)

    yield open_page
    for context in contexts:
        context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "report",
    [
        report_of(),
        report_of(seconds(thread_cpu=1, running=9), seconds(unmeasured=5), not_measured={"w1": "no package"}),
        large(100, 200),
        with_gpus(),
        profiled(),
    ],
    ids=["empty", "running and unmeasured", "large", "gpus", "profiled"],
)
def test_a_page_asks_for_nothing_but_itself_and_complains_of_nothing(open_page, report, scheme):
    page = open_page(report, color_scheme=scheme)
    page.page.wait_for_load_state("networkidle")
    assert len(page.requests) == 1
    assert page.faults == []
    assert page.page.locator(".de-headline").text_content() == f"{report.headline}."
    papers = {"light": "rgb(255, 255, 255)", "dark": "rgb(17, 20, 24)"}
    assert page.page.evaluate("getComputedStyle(document.body).backgroundColor") == papers[scheme]


def test_a_comparison_has_its_figures_and_bars_as_long_as_its_runs(open_page: Any) -> None:
    before = [report_of(seconds(thread_cpu=10, spill=spill, idle=4), cluster_seconds=4.0) for spill in (1.5, 2)]
    found = compare(before, report_of(seconds(thread_cpu=10, spill=6), cluster_seconds=3.0))
    opened = open_page(found)
    page = opened.page
    page.wait_for_load_state("networkidle")
    assert (len(opened.requests), opened.faults) == (1, [])
    assert page.inner_text(".de-headline") == f"{found.headline}."
    assert json.loads(page.inner_text("#data")) == found.to_dict()
    cells = [cell.strip() for cell in page.locator("table").first.locator("tr", has_text="spill").all_inner_texts()]
    # the median of 1.5 and 2 thread-seconds before
    assert cells[0].split()[:4] == ["spill", "1.8", "6.0", "+4.2"]
    was, now = (bar.bounding_box()["width"] for bar in page.locator(".de-sides .de-bar").all())
    assert now / was == pytest.approx(3 / 4, abs=0.01)


def test_hostile_names_do_not_run(open_page: Any) -> None:
    stack = tuple(Frame(name, "/x/etl.py", 1) for name in HOSTILE_NAMES)
    hostile = {name: seconds(thread_cpu=2, spill=1) for name in HOSTILE_NAMES}
    profile = (ProfileRow("thread-cpu", "", HOSTILE_NAMES[0], stack, 1),)
    fields = {"by_worker": hostile, "by_prefix": hostile, "code": HOSTILE_NAMES, "profile": profile}
    page = open_page(by_hand(name=HOSTILE_NAMES[0], **fields))
    assert page.page.title() == "<script>alert(1)</script> - efficiency report"
    assert page.page.locator("td", has_text="<script>alert(1)</script>").count() >= 2
    page.unfold("By cause and line")
    page.page.locator(".de-flames svg svg", has_text="<script>alert(1)</script>").last.locator("rect").click()
    page.page.fill(".de-flames input", "<img src=x onerror=alert(1)>")
    assert page.page.locator("main img").count() == 0
    assert page.faults == []


def test_a_smuggled_script_would_be_refused(open_page: Any) -> None:
    page = open_page(by_hand())
    for smuggled in ("('img'), {src: 'https://x.example/'}", "('script'), {text: 'alert(1)'}"):
        page.page.evaluate(f"document.body.append(Object.assign(document.createElement{smuggled}))")
    page.page.wait_for_timeout(100)
    assert len(page.faults) == 2
    assert all("Content Security Policy" in fault for fault in page.faults)


def test_a_reader_points_at_the_timeline_and_reads_its_numbers(open_page: Any) -> None:
    timeline = Timeline(10**9, 2 * 10**9, {"thread-cpu": (3 * 10**9, 10**9), "idle": (10**9, 3 * 10**9)})
    causes = {"idle/scheduler": (10**9, 10**9), "idle/parallelism": (0, 2 * 10**9)}
    page = open_page(by_hand(timeline=replace(timeline, causes=causes)))
    figure = page.page.locator(".de-timeline > svg")
    figure.scroll_into_view_if_needed()
    box = figure.bounding_box()
    page.page.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 20)
    caption = page.page.locator(".de-timeline .de-caption")
    assert caption.text_content() == "1.00 s to 2.00 s, threads: idle 3 (parallelism 2, scheduler 1), thread-cpu 1"
    page.page.mouse.move(0, 0)
    assert "Point at" in caption.text_content()


def test_a_reader_zooms_into_a_flame_graph_and_out_again_and_searches_it(open_page: Any) -> None:
    page = open_page(profiled())
    page.unfold("By cause and line")
    shapes = page.page.locator(".de-flames svg svg")

    def shown() -> list[str]:
        names = "all => all.filter(each => each.getAttribute('display') !== 'none').map(each => each.textContent)"
        return [text.partition(" | ")[0] for text in shapes.evaluate_all(names)]

    everything = shown()
    split = page.page.locator(".de-flames svg svg", has_text="clean (etl.py:89)").first
    before = split.evaluate("each => each.querySelector('rect').getBoundingClientRect().width")
    split.locator("rect").click()
    # what it is part of stands above it, and what is beside it is gone
    above = ["all tasks", "thread-noncpu/gil", "clean"]
    assert shown() == [*above, "clean (etl.py:89)", "StringMethods.split (accessor.py:900)"]
    after = split.evaluate("each => each.querySelector('rect').getBoundingClientRect().width")
    # 3 of 23 thread-seconds
    assert after / before == pytest.approx(23 / 3, rel=0.01)
    shapes.first.locator("rect").click()
    assert shown() == everything
    split.locator("rect").click()
    page.page.keyboard.press("Escape")
    assert shown() == everything
    # a reader searches it and learns how much it is
    caption, dimmed = (page.page.locator(f".de-flames {what}") for what in (".de-caption", ".de-other"))
    page.page.fill(".de-flames input", "etl.py:88")
    # 6 of the GIL and 6 of the CPU, of 23 thread-seconds
    assert caption.text_content() == "Matches hold 52.2 % of the time."
    assert dimmed.count() == shapes.count() - 2
    page.page.fill(".de-flames input", "")
    assert dimmed.count() == 0
    assert "Point at a box" in caption.text_content()
    assert page.faults == []


def test_a_press_on_a_head_sorts_the_table(open_page: Any) -> None:
    prefixes = {name: seconds(thread_cpu=cpu, spill=20 - cpu) for name, cpu in (("b", 9), ("a", 10), ("c", 1.5))}
    page = open_page(by_hand(by_prefix=prefixes))
    title = "Prefixes by time held (thread-s)"
    head = page.under(title, "th")

    def order() -> list[str]:
        return page.under(title, "table").first.evaluate(FIRST_CELLS)[1:]

    head.nth(2).click()
    assert order() == ["a", "b", "c"]
    head.nth(2).click()
    assert order() == ["c", "b", "a"]
    head.nth(0).focus()
    page.page.keyboard.press("Enter")
    assert order() == ["c", "b", "a"]
    assert page.faults == []


def test_a_reader_points_at_a_strip_and_reads_the_workers_name(open_page: Any) -> None:
    report = report_of(*(seconds(thread_cpu=100 - i, spill=i + 1) for i in range(40)))
    page = open_page(report)
    page.unfold("Workers")
    strip = page.page.locator(".de-strip").first
    strip.scroll_into_view_if_needed()
    box = strip.bounding_box()
    page.page.mouse.move(box["x"] + 1, box["y"] + 5)
    assert page.page.locator(".de-strips .de-caption").text_content() == "w39"


def test_on_paper_everything_is_unfolded_and_light(open_page: Any) -> None:
    page = open_page(large(40, 30), color_scheme="dark")
    page.page.emulate_media(media="print", color_scheme="dark")
    page.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.page.locator("details:not([open])").count() == 0
    assert page.page.evaluate("getComputedStyle(document.body).color") == "rgb(31, 35, 40)"
    page.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.page.locator("details[open]").count() == 0


def test_on_a_narrow_screen_only_tables_scroll_and_no_findings(open_page: Any) -> None:
    page = open_page(large(100, 200), viewport={"width": 400, "height": 800})
    assert page.page.evaluate("document.documentElement.scrollWidth") == 400
    page = open_page(by_hand(price_per_worker_hour=100.0), viewport={"width": 360, "height": 800})
    boxes = [line.bounding_box() for line in page.page.locator(".de-findings li, .de-findings div").all()]
    assert len(boxes) == 6
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= 360 for box in boxes)


LAB = "--jp-content-font-color1:rgb(250,250,250);--jp-layout-color0:rgb(17,17,17);background:rgb(17,17,17)"
CODE = "--vscode-editor-foreground:rgb(59,59,59);--vscode-editor-background:rgb(255,255,255)"
#: Styles that hosts of notebooks set around an output, with the colour of their text.
HOSTS = {
    "JupyterLab, dark": (LAB, "rgb(250, 250, 250)"),
    "VS Code, light": (CODE, "rgb(59, 59, 59)"),
    "another, dark": ("color:rgb(213,213,213);background:rgb(56,56,56)", "rgb(213, 213, 213)"),
    "another, light": ("color:rgb(10,10,10)", "rgb(10, 10, 10)"),
}

COLOUR = "element => getComputedStyle(element).color"
#: The treatment of a notebook that JupyterLab does not trust.
SANITISE = """() => {
    document.querySelectorAll("style").forEach((style) => style.remove())
    document.querySelectorAll("svg").forEach((svg) => svg.replaceWith(svg.textContent))
}"""


@pytest.fixture(params=["light", "dark"])
def notebook(chromium: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    context = chromium.new_context(color_scheme=request.param)
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("host", HOSTS)
def test_a_report_in_a_notebook_has_the_colours_of_its_host(notebook: Any, host: str) -> None:
    style, colour = HOSTS[host]
    notebook.set_content(f'<!DOCTYPE html><body style="{style}">{by_hand()._repr_html_()}')
    assert notebook.locator(".de-headline").evaluate(COLOUR) == colour
    assert notebook.locator("summary").first.evaluate(COLOUR) == colour
    background = "getComputedStyle(document.querySelector('.dask-efficiency')).backgroundColor"
    assert notebook.evaluate(background) == "rgba(0, 0, 0, 0)"
    assert not notebook.get_by_text(f"[{'#' * 5}").is_visible()


def test_a_report_in_a_notebook_without_its_style_is_the_text_of_the_first_screen(notebook: Any) -> None:
    report = by_hand(notes=("Idle is an estimate.",))
    notebook.set_content(f"<!DOCTYPE html><body>{report._repr_html_()}")
    notebook.evaluate(SANITISE)
    shown = notebook.locator("body").inner_text()
    assert shown.count(report.headline) == 1
    assert "Idle is an estimate." in shown
    assert "Lost time" not in shown
