import re

from hypothesis import given, settings

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.profile import Frame
from dask_efficiency.report.sections.culprits import MAX_BOXES, boxes
from dask_efficiency.report.sections.report import document
from dask_efficiency.report.sections.report import page as report_page
from dask_efficiency.report.stacks import sampled_stacks
from dask_efficiency.report.values import ProfileRow
from dask_efficiency.show.document import Box, Document, Flames, section
from dask_efficiency.show.html.flames import ROW, DrawnBox, flames
from dask_efficiency.show.html.render import fragment, page
from tests.report.profile_samples import ETL, profiled, profiled_reports
from tests.report.samples import HOSTILE_NAMES, by_hand
from tests.report.test_fragment import Reader
from tests.report.test_report_page import read


def test_a_box_stands_where_its_time_is_and_has_a_name_where_there_is_room() -> None:
    block = Flames(
        (
            Box("all", "4 s", 0, 4000, 0, "#000000"),
            Box("a", "3 s", 0, 3950, 1, "#ffff00"),
            Box("b", "1 s", 3950, 50, 1, "#ffff00"),
        )
    )
    drawn = flames(block)
    assert drawn.height == 2 * ROW
    assert drawn.groups == (
        ("#000000", "#ffffff", (DrawnBox("0.000", "100.000", 0, "all | 4 s", "all"),)),
        (
            "#ffff00",
            "#000000",
            (DrawnBox("0.000", "98.750", ROW, "a | 3 s", "a"), DrawnBox("98.750", "1.250", ROW, "b | 1 s", "")),
        ),
    )


def test_only_a_page_has_the_figure_and_its_script() -> None:
    assert "de-flames" in page(report_page(profiled()))
    assert 'querySelector(".de-flames")' in page(report_page(profiled()))
    assert 'querySelector(".de-flames")' not in page(report_page(by_hand()))
    notebook = fragment(document(profiled()))
    assert "<script" not in notebook
    assert 'class="de-flames"' not in notebook
    assert "Where the time goes" in notebook


def test_without_its_script_a_browsers_own_search_finds_the_names() -> None:
    html = page(Document("a", "", "b", (section("c", Flames(boxes(sampled_stacks(profiled())))),)))
    assert re.search(r"<text[^>]*>clean \(etl\.py:88\)</text>", html)
    titles = re.findall(r"<title>([^<]*)</title>", html)
    assert "clean (etl.py:89) | 3.0 thread-seconds, 13 % of all, 33 % of its cause" in titles


def test_hostile_names_are_text() -> None:
    stack = tuple(Frame(name, ETL, 1) for name in HOSTILE_NAMES)
    report = profiled(profile=(ProfileRow("thread-cpu", "", "clean", stack, 1),))
    html = page(report_page(report))
    assert html.count("<script") == 2
    assert "<img" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt; (etl.py:1)" in html
    figure = html[html.index('<div class="de-flames">') :]
    Reader(figure[: figure.index("</details>")])


@given(profiled_reports())
@settings(max_examples=40)
def test_the_page_of_any_report_is_closed_and_has_no_element_that_acts(report: EfficiencyReport) -> None:
    elements = read(report).elements
    assert not {name for _, given_ in elements for name in given_} & {"src", "href", "style", "action"}
    assert not {tag for tag, _ in elements} & {"script", "img", "iframe", "object", "form", "a", "input"}


def test_the_largest_figure_takes_300_kilobytes_at_most() -> None:
    def name(i: int, depth: int) -> str:
        return f"SomeClassOfALibrary{depth}.some_method_of_it_{i % 7**depth}"

    def stack(i: int) -> tuple[Frame, ...]:
        return tuple(Frame(name(i, depth), "/x/some_module_of_it.py", 100) for depth in range(40))

    rows = [ProfileRow("thread-cpu", "", "clean", stack(i), 1) for i in range(500)]
    found = boxes(rows)
    assert len(found) == MAX_BOXES
    assert len(page(Document("a", "", "b", (section("c", Flames(found)),))).encode()) <= 300_000
