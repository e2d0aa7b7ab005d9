import pytest
from hypothesis import given

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.profile import EVENT_LOOP, Frame
from dask_efficiency.report.culprits import MAX_CULPRITS
from dask_efficiency.report.profile import GilHolder, Hold, ProfileRow
from dask_efficiency.report.sections.culprits import (
    HELD_BY_LENGTH,
    MAX_HOLDS,
    TOP_CULPRITS,
    culprits,
    flame_graph,
    holds,
)
from dask_efficiency.report.sections.report import document, page, sections
from dask_efficiency.show.document import Flames, Label
from dask_efficiency.show.extent import PAGE
from dask_efficiency.show.terminal.plain import plain
from tests.report.profile_samples import ETL, UPPER, profiled, profiled_reports
from tests.report.samples import HOSTILE_NAMES, by_hand


def test_on_a_screen_the_largest_losses_have_their_lines_and_who_held_the_gil_stands_below() -> None:
    found = culprits(profiled())
    assert found.title == "Where the time goes"
    assert found.table.heads == ("lost to", "thread-s", "prefix", "line", "in")
    assert len(found.rows) == TOP_CULPRITS
    assert found.rows[:4] == (
        ("thread-noncpu/gil", "6.00", "clean", "etl.py:88", "StringMethods.upper"),
        ("thread-noncpu/gil", "3.00", "clean", "etl.py:89", "StringMethods.split"),
        ("thread-noncpu/file", "3.00", "load", "etl.py:20", "BufferedReader.read"),
        ("idle/parallelism", "2.00", "clean", "-", "-"),
    )
    assert found.lines == (
        f"the {TOP_CULPRITS} largest losses:",
        "while clean waited, the GIL was held most by `StringMethods.upper` in etl.py:88 (prefix clean)",
    )


def test_a_page_has_all_of_them_with_a_column_of_who_held_the_gil_and_what_the_causes_are() -> None:
    found = culprits(profiled(), PAGE)
    assert found.table.heads[-1] == "held by"
    assert [row[-1] for row in found.rows[:3]] == [*["`StringMethods.upper` in etl.py:88 (prefix clean)"] * 2, ""]
    assert len(found.rows) == 10
    cause = found.table.rows[0][0]
    assert isinstance(cause, Label)
    assert cause.hint.startswith("waited for Python's global interpreter lock")
    assert culprits(profiled(gil_holders=()), PAGE).table.heads[-1] == "in"


def test_a_report_in_which_nobody_looked_has_no_such_section() -> None:
    assert culprits(by_hand()).blocks == ()
    assert not {"Where the time goes", "By cause and line"} & {part.title for part in sections(by_hand(), PAGE)}


def test_it_stands_right_below_the_losses() -> None:
    titles = [part.title for part in page(profiled()).sections]
    assert titles[1:7] == [
        "Lost time",
        "What findings mean",
        "Where the time goes",
        "By cause and line",
        "Kept others waiting",
        "Factors",
    ]


def test_long_holds_and_blocks_are_named_and_short_ones_are_not() -> None:
    assert holds(profiled()).lines == (
        "held the GIL for 1.2 s: `StringMethods.upper` in etl.py:88 (prefix clean), on a",
        "blocked the event loop of b for 3.4 s: `BaseEventLoop.run_forever` in base_events.py:640",
    )
    assert holds(profiled(gil_holds=(), loop_blocks=(Hold("b", EVENT_LOOP, (), 0.5),))).lines == (
        "blocked the event loop of b for 500 ms",
    )
    assert holds(by_hand()).blocks == ()


def test_of_many_holds_the_longest_are_named() -> None:
    many = tuple(Hold("a", "clean", UPPER, 1.0 + i) for i in range(99))
    assert [line.split(":")[0] for line in holds(profiled(gil_holds=many, loop_blocks=())).lines] == [
        f"held the GIL for {seconds:.1f} s" for seconds in (99, 98, 97, 96, 95)
    ][:MAX_HOLDS]


def test_the_figure_is_for_pages_only() -> None:
    assert flame_graph(profiled()).blocks == ()
    assert any(isinstance(block, Flames) for block in flame_graph(profiled(), PAGE).blocks)
    assert flame_graph(profiled(profile=()), PAGE).blocks == ()


def hostile() -> EfficiencyReport:
    """Every name in it tries to break out."""
    rows = tuple(
        ProfileRow("thread-noncpu", "gil", "clean", (Frame(name, f"/x/{name}.py", 5),), 5) for name in HOSTILE_NAMES
    )
    stack = tuple(Frame(name, f"/x/{name}", 1) for name in HOSTILE_NAMES[:7])
    return profiled(
        profile=rows,
        gil_holders=(GilHolder("clean", HOSTILE_NAMES[2], stack, 5),),
        gil_holds=tuple(Hold(name, name, (Frame(name, ETL, 1),), 2.0) for name in HOSTILE_NAMES[2:7]),
        loop_blocks=(Hold(HOSTILE_NAMES[5], EVENT_LOOP, stack, 2.0),),
        not_sampled={name: name for name in HOSTILE_NAMES},
        waited_for=dict.fromkeys(HOSTILE_NAMES, 1),
    )


@pytest.mark.parametrize("extent", ["screen", "page"])
def test_hostile_names_are_harmless_and_bounded(extent: str) -> None:
    parts = sections(hostile(), PAGE) if extent == "page" else sections(hostile())
    shown = [part for part in parts if part.title in ("Where the time goes", "Kept others waiting")]
    assert len(shown) == 2
    for part in shown:
        cells = [cell for row in part.rows for cell in row]
        for text in (*cells, *part.lines):
            assert text.isprintable()
            assert len(text) <= 500
        assert all(len(cell) <= HELD_BY_LENGTH for cell in cells)
        assert len(part.rows) <= MAX_CULPRITS


@pytest.mark.parametrize("width", [80, 140])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    for report in (profiled(), hostile()):
        text = plain(document(report), width)
        assert max(map(len, text.splitlines())) <= width
        assert "\x1b" not in text


@given(profiled_reports())
def test_any_report_is_shown(report: EfficiencyReport) -> None:
    assert plain(document(report)).isascii()
    assert culprits(report, PAGE).title == "Where the time goes"
    assert flame_graph(report, PAGE).title == "By cause and line"
