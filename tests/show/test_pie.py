import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.buckets import Breakdown, Bucket
from dask_efficiency.show.pie import OTHER, label_point, point, radians, svg_path, wedges
from tests.report.samples import breakdowns


def test_wedges_are_sorted_and_the_rest_is_folded_into_other() -> None:
    nanoseconds = {"thread-cpu": 500, "spill": 200, "idle": 150, "failed": 100, "paused": 30, "gpu": 20}
    pie = wedges(nanoseconds, at_most=4)
    assert [(wedge.label, wedge.percent) for wedge in pie] == [
        ("thread-cpu", "50.0"),
        ("spill", "20.0"),
        ("idle", "15.0"),
        (OTHER, "15.0"),
    ]
    assert [wedge.start for wedge in pie] == [0.0, 0.5, 0.7, 0.85]


@given(breakdowns, st.integers(1, 17))
def test_a_pie_is_whole_and_its_percentages_make_100(breakdown: Breakdown, at_most: int) -> None:
    pie = wedges(breakdown.to_nanoseconds(), at_most=at_most)
    assert len(pie) == min(len(breakdown), at_most)
    if pie:
        assert pie[0].start == 0.0
        assert pie[-1].stop == 1.0
        assert sum(wedge.nanoseconds for wedge in pie) == breakdown.total_ns
        assert sum(round(10 * float(wedge.percent)) for wedge in pie) == 1000
        assert all(one.stop == other.start for one, other in pairwise(pie))


def test_nothing_makes_no_pie() -> None:
    assert wedges({}) == wedges({"idle": 0}) == ()


def test_seventeen_buckets_make_seven_wedges() -> None:
    assert len(wedges({str(bucket): 1 for bucket in Bucket})) == 7


def test_a_pie_of_no_wedges_is_refused() -> None:
    with pytest.raises(ValueError, match="at_most=0"):
        wedges({"idle": 1}, at_most=0)


def test_a_pie_begins_at_twelve_and_goes_clockwise() -> None:
    assert point(0.0, 1.0) == pytest.approx((0, -1))
    assert point(0.25, 1.0) == pytest.approx((1, 0))
    assert radians(0.0) == math.pi / 2
    assert radians(0.25) == pytest.approx(0.0)


def test_a_quarter_and_the_rest_have_the_outlines_worked_out_by_hand() -> None:
    rest, quarter = wedges({"thread-cpu": 3, "idle": 1})
    assert svg_path(rest, 10) == "M0 0L0 -10A10 10 0 1 1 -10 0Z"
    assert svg_path(quarter, 10) == "M0 0L-10 0A10 10 0 0 1 0 -10Z"
    assert label_point(quarter, 10) == pytest.approx((-10 / math.sqrt(2), -10 / math.sqrt(2)))


def test_a_single_wedge_is_a_circle_with_its_label_in_the_middle() -> None:
    (whole,) = wedges({"idle": 5})
    assert svg_path(whole, 10) == "M0 -10A10 10 0 0 1 0 10A10 10 0 0 1 0 -10Z"
    assert label_point(whole, 10) == (0.0, 0.0)
