import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.cluster.timeline import Timeline
from dask_efficiency.accounts.lines import Frame
from dask_efficiency.report.sections.culprits import MAX_BOXES, boxes
from dask_efficiency.report.sections.report import document
from dask_efficiency.report.sections.report import page as report_page
from dask_efficiency.report.stacks import sampled_stacks
from dask_efficiency.report.values import ProfileRow
from dask_efficiency.show.document import Along, Box, ChangeBar, Curve, Document, Flames, Label, Point, Slice
from dask_efficiency.show.document import section as section_of
from dask_efficiency.show.drawn_buckets import finalized_parts
from dask_efficiency.show.html.figures import (
    CHANGE_WIDTH,
    CURVE_HEIGHT,
    CURVE_WIDTH,
    MAX_TICKS,
    ROW,
    TIMELINE_HEIGHT,
    TIMELINE_WIDTH,
    Shape,
    along,
    bar,
    change,
    curve,
    flames,
    hint_of,
    in_words,
    pie,
    through,
    ticks,
)
from dask_efficiency.show.html.render import fragment, page
from tests.report.profile_samples import ETL, profiled
from tests.report.samples import HOSTILE_NAMES, by_hand, seconds, timelines
from tests.report.test_report_page import Reader


def outlines(drawn: Shape) -> list[list[tuple[str, int]]]:
    """The steps of each area, from the top of the stack down."""
    return [[(step[0], int(step[1:])) for step in re.findall(r"[Vh]\d+", area["path"])] for area in drawn["areas"]]


def test_areas_are_stacked_to_the_threads_that_were_there() -> None:
    # 4 threads: 1 computes and 3 are idle, then 2 compute and none is idle; the last bin is half as long
    drawn = through(Timeline(10, 15, {"thread-cpu": (10, 10), "idle": (30, 0)}), ())
    third, half = TIMELINE_WIDTH // 3, TIMELINE_HEIGHT // 2
    end = [("h", 2 * third), ("V", half), ("h", third), ("V", TIMELINE_HEIGHT)]
    assert outlines(drawn) == [[("V", 0), *end], [("V", TIMELINE_HEIGHT * 3 // 4), *end]]
    assert drawn["threads"] == "4"
    assert through(Timeline(10, 10, {"idle": (25,)}), ())["threads"] == "2.5"


@given(timelines().filter(lambda timeline: any(map(any, timeline.activity.values()))))
def test_an_area_never_leaves_the_figure_and_ends_where_it_does(timeline: Timeline) -> None:
    found = outlines(through(timeline, ()))
    assert len(found) == len(timeline.activity)
    for steps in found:
        assert steps[-1] == ("V", TIMELINE_HEIGHT)
        assert sum(x for kind, x in steps if kind == "h") == TIMELINE_WIDTH
        assert all(0 <= y <= TIMELINE_HEIGHT for kind, y in steps if kind == "V")


@pytest.mark.parametrize(
    ("seconds", "labels"),
    [
        (0.05, ["0 s", "10 ms", "20 ms", "30 ms", "40 ms", "50 ms"]),
        (1.5, ["0 s", "200 ms", "400 ms", "600 ms", "800 ms", "1 s", "1.2 s", "1.4 s"]),
        (61.0, ["0 s", "10 s", "20 s", "30 s", "40 s", "50 s", "60 s"]),
        (600.0, ["0 s", "2 min", "4 min", "6 min", "8 min", "10 min"]),
        (6 * 3600.0, ["0 s", "1 h", "2 h", "3 h", "4 h", "5 h", "6 h"]),
        (10_000.0, ["0 s", "30 min", "1 h", "90 min", "2 h", "150 min"]),
        (4 * 86400.0, ["0 s", "12 h", "1 d", "36 h", "2 d", "60 h", "3 d", "84 h", "4 d"]),
    ],
)
def test_the_labels_of_the_time_axis_are_round(seconds: float, labels: list[str]) -> None:
    drawn = through(Timeline(round(seconds * 1e9), round(seconds * 1e9), {"idle": (1,)}), ())
    assert [tick["label"] for tick in drawn["ticks"]] == labels


@given(st.floats(1e-4, 3e6))
def test_ticks_are_few_and_evenly_spaced(seconds: float) -> None:
    found = ticks(seconds)
    assert 2 <= len(found) <= MAX_TICKS + 1
    assert found[0] == 0
    assert found[-1] <= seconds * (1 + 1e-6)
    steps = [right - left for left, right in pairwise(found)]
    assert max(steps) == pytest.approx(min(steps))


def curve_of(*rows: tuple[float, float]) -> Shape:
    """Curve of sizes and seconds, with a band of a tenth."""
    points = [Point(at, f"{at:g}", y, 0.9 * y, 1.1 * y, rows[0][1] * rows[0][0] / at, "hint") for at, y in rows]
    return curve(Curve(tuple(points), "workers", "label"))


def coordinates(outline: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"([\d.]+) ([\d.-]+)", outline)]


def test_a_curve_has_doublings_equally_far_apart_and_time_from_its_lower_end() -> None:
    drawn = curve_of((1, 10.0), (2, 5.5), (4, 2.0))
    first, second, third = (float(mark["x"]) for mark in drawn["points"])
    assert round(second - first, 2) == round(third - second, 2)
    assert (drawn["seconds"][0]["label"], float(drawn["seconds"][0]["y"])) == ("0", CURVE_HEIGHT)
    assert coordinates(drawn["line"])[1][1] == CURVE_HEIGHT / 2, "5.5 of the band's 11"
    assert curve_of((4, 8.0))["points"][0]["x"] == "50.00"
    perfect = curve_of((1, 8.0), (2, 4.0))
    assert perfect["ideal"] == perfect["line"]


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=6))
def test_every_point_of_a_curve_is_within_the_figure(values: list[float]) -> None:
    drawn = curve_of(*((1 << i, value) for i, value in enumerate(values)))
    for outline in (drawn["band"], drawn["line"], drawn["ideal"]):
        for x, y in coordinates(outline):
            assert 0 <= x <= CURVE_WIDTH
            assert -0.1 <= y <= CURVE_HEIGHT + 0.1
    assert 1 <= len(drawn["seconds"]) <= 6


def test_a_box_stands_where_its_time_is_and_has_a_name_where_there_is_room() -> None:
    whole = Box("all", "4 s", 0, 4000, 0, "#000000")
    parts = Box("a", "3 s", 0, 3950, 1, "#ffff00"), Box("b", "1 s", 3950, 50, 1, "#ffff00")
    drawn = flames(Flames((whole, *parts)))
    assert drawn["height"] == 2 * ROW
    assert [(colour, ink, [tuple(box.values()) for box in group]) for colour, ink, group in drawn["groups"]] == [
        ("#000000", "#ffffff", [("0.000", "100.000", 0, "all | 4 s", "all")]),
        ("#ffff00", "#000000", [("0.000", "98.750", ROW, "a | 3 s", "a"), ("98.750", "1.250", ROW, "b | 1 s", "")]),
    ]


def test_only_a_page_has_the_flame_graph_and_its_script() -> None:
    assert 'querySelector(".de-flames")' in page(report_page(profiled()))
    assert 'querySelector(".de-flames")' not in page(report_page(by_hand()))
    notebook = fragment(document(profiled()))
    assert "<script" not in notebook
    assert 'class="de-flames"' not in notebook


def page_of(found: tuple[Box, ...]) -> str:
    return page(Document("a", "", "b", (section_of("c", Flames(found)),)))


def test_without_its_script_a_browsers_own_search_finds_the_names() -> None:
    html = page_of(boxes(sampled_stacks(profiled())))
    assert re.search(r"<text[^>]*>clean \(etl\.py:88\)</text>", html)
    titles = re.findall(r"<title>([^<]*)</title>", html)
    assert "clean (etl.py:89) | 3.0 thread-seconds, 13 % of all, 33 % of its cause" in titles


def test_hostile_names_are_text() -> None:
    stack = tuple(Frame(name, ETL, 1) for name in HOSTILE_NAMES)
    html = page(report_page(profiled(profile=(ProfileRow("thread-cpu", "", "clean", stack, 1),))))
    assert html.count("<script") == 2
    assert "<img" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt; (etl.py:1)" in html
    figure = html[html.index('<div class="de-flames">') :]
    Reader(figure[: figure.index("</details>")])


def test_the_largest_flame_graph_takes_300_kilobytes_at_most() -> None:
    def frame(i: int, depth: int) -> Frame:
        return Frame(f"SomeClassOfALibrary{depth}.some_method_of_it_{i % 7**depth}", "/x/some_module_of_it.py", 100)

    stacks = (tuple(frame(i, depth) for depth in range(40)) for i in range(500))
    found = boxes([ProfileRow("thread-cpu", "", "clean", stack, 1) for stack in stacks])
    assert len(found) == MAX_BOXES
    assert len(page_of(found).encode()) <= 300_000


sizes = st.lists(st.integers(1, 10**15), min_size=1, max_size=9)


def slices(sizes: list[int]) -> tuple[Slice, ...]:
    return tuple(Slice(Label(f"part {i}", "#000000"), size, "1.0") for i, size in enumerate(sizes))


@given(sizes, st.integers(1, 5))
def test_the_parts_of_a_bar_stand_side_by_side_over_its_part_of_the_longest(sizes: list[int], times: int) -> None:
    for rects, width, off in (
        (bar(slices(sizes)), 100, 0.01),
        (bar(slices(sizes), times * sum(sizes), decimals=1), 100 / times, 0.11),
    ):
        end = 0.0
        for rect in rects:
            assert float(rect["left"]) == pytest.approx(end, abs=off)
            end = float(rect["left"]) + float(rect["width"])
        assert end == pytest.approx(width, abs=off)


@given(st.floats(-1, 1))
def test_growth_stands_to_the_right_and_shrinkage_to_the_left(share: float) -> None:
    drawn = change(ChangeBar(share, "#000000"))
    left, right, middle = float(drawn["left"]), float(drawn["left"]) + float(drawn["width"]), float(drawn["middle"])
    assert -0.1 <= left < right <= CHANGE_WIDTH + 0.1
    assert left >= middle if share > 0 else right <= middle + 0.1


def test_only_wide_wedges_have_a_label_and_all_shapes_a_hint() -> None:
    wide, narrow = pie(finalized_parts(seconds(thread_cpu=95, spill=5)))
    assert (wide["label"], narrow["label"]) == ("95 %", "")
    assert narrow["hint"].startswith("spill 5.0 %: ")
    assert hint_of(Label("other"), "5.0") == "other 5.0 %"
    assert in_words(slices([1, 1])) == "part 0 1.0 %, part 1 1.0 %"


def test_the_stretches_of_a_run_follow_one_another() -> None:
    drawn = along(Along(((Label("a", "#111111", "first"), 0, 1), (Label("b", "#222222"), 1, 4)), 4, "1 s"))
    expected = ("0", "25", "#111111", "a: first"), ("25", "75", "#222222", "b")
    assert tuple(tuple(rect.values()) for rect in drawn) == expected
