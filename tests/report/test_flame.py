from collections import defaultdict

import pytest
from hypothesis import given

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.profile import Frame
from dask_efficiency.report.flame import CAUSE_COLOURS, FRAME_LENGTH, MAX_BOXES, MAX_DEPTH, MIN_SHARE, boxes
from dask_efficiency.report.profile import ProfileRow
from dask_efficiency.report.stacks import sampled_stacks
from dask_efficiency.show.colours import COLOURS, OTHER_COLOUR
from dask_efficiency.show.document import Box
from tests.report.profile_samples import ETL, profiled, profiled_reports
from tests.report.samples import HOSTILE_NAMES, SECOND


def row(ns: int, *functions: str, cause: str = "gil", prefix: str = "clean") -> ProfileRow:
    stack = tuple(Frame(name, ETL, 1) for name in functions)
    return ProfileRow("thread-noncpu" if cause else "thread-cpu", cause, prefix, stack, ns)


def drawn(*rows: ProfileRow) -> list[tuple[int, str, int, int]]:
    return [(box.depth, box.name, box.left, box.ns) for box in boxes(rows)]


def test_the_boxes_of_a_report_are_those_worked_out_by_hand() -> None:
    found = boxes(sampled_stacks(profiled()))
    assert found[0] == Box("all tasks", "23.0 thread-seconds", 0, 23 * SECOND, 0, OTHER_COLOUR)
    assert [(box.depth, box.name, box.ns // SECOND) for box in found[1:7]] == [
        (1, "thread-noncpu/gil", 9),
        (2, "clean", 9),
        (3, "clean (etl.py:88)", 6),
        (4, "StringMethods.upper (accessor.py:1200)", 6),
        (5, "ObjectStringArrayMixin._str_map (object_array.py:90)", 6),
        (3, "clean (etl.py:89)", 3),
    ]
    assert found[3].said == "6.0 thread-seconds, 26 % of all, 67 % of its cause"
    assert [box.name for box in found if box.depth == 1] == [
        "thread-noncpu/gil",
        "thread-cpu",
        "thread-noncpu/file",
        "library-threads",
        "thread-noncpu/core",
        "thread-noncpu/unknown",
    ]


def test_each_cause_has_its_colour() -> None:
    found = boxes(sampled_stacks(profiled()))
    assert {box.colour for box in found[1:7]} == {CAUSE_COLOURS[Bucket.THREAD_NONCPU]["gil"]}
    assert {box.name: box.colour for box in found if box.depth == 1}["thread-cpu"] == COLOURS[Bucket.THREAD_CPU]


def test_stacks_that_begin_alike_share_their_boxes_and_the_widest_stands_first() -> None:
    assert drawn(row(10, "f", "g"), row(30, "f", "h"), row(20, "f")) == [
        (0, "all tasks", 0, 60),
        (1, "thread-noncpu/gil", 0, 60),
        (2, "clean", 0, 60),
        (3, "f (etl.py:1)", 0, 60),
        (4, "h (etl.py:1)", 0, 30),
        (4, "g (etl.py:1)", 30, 10),
    ]


def test_thin_boxes_are_one_where_they_are_wide_together_and_none_where_they_are_not() -> None:
    thin = [row(1, f"f{i}") for i in range(5)]
    assert drawn(row(995, "wide"), *thin)[3:] == [(3, "wide (etl.py:1)", 0, 995), (3, "(5 others)", 995, 5)]
    assert drawn(row(9995, "wide"), *thin)[3:] == [(3, "wide (etl.py:1)", 0, 9995)]


def test_nothing_makes_no_boxes() -> None:
    assert boxes(()) == ()


def test_many_stacks_and_deep_ones_make_few_boxes() -> None:
    wide = [row(1, *(f"f{i % 7**depth}" for depth in range(40))) for i in range(500)]
    assert len(boxes(wide)) == MAX_BOXES
    deep = boxes([row(1, *(f"f{i}" for i in range(100_000)))])
    assert max(box.depth for box in deep) == 2 + MAX_DEPTH


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_are_bounded_and_harmless(name: str) -> None:
    for box in boxes([ProfileRow("thread-cpu", "", name, (Frame(name, f"/x/{name}", 1),), 5)]):
        assert box.name.isprintable()
        assert 0 < len(box.name) <= FRAME_LENGTH


@given(profiled_reports())
def test_a_box_is_never_wider_than_what_it_is_part_of_and_no_two_overlap(report: EfficiencyReport) -> None:
    found = boxes(sampled_stacks(report))
    by_depth: dict[int, list[Box]] = defaultdict(list)
    for box in found:
        assert box.ns >= MIN_SHARE * found[0].ns
        if box.depth:
            outer = by_depth[box.depth - 1][-1]
            assert outer.left <= box.left
            assert box.left + box.ns <= outer.left + outer.ns
        row = by_depth[box.depth]
        if row:
            assert row[-1].left + row[-1].ns <= box.left
        row.append(box)
