import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.report.difference import Difference, finite_or_nan

whole = st.lists(st.integers(0, 10**18), min_size=1, max_size=5).map(tuple)


def test_the_medians_of_an_odd_number_of_runs_are_runs_and_of_an_even_number_lie_between() -> None:
    difference = Difference((1, 9, 4), (10, 2))
    assert (difference.before, difference.after, difference.change, difference.rise) == (4, 6, 2, 0.5)
    assert Difference((1.0, 2.0), (3.0,)).before == 1.5
    # from nothing
    assert [Difference((was,), (now,)).rise for was, now in ((0, 3), (0, 0), (4, 0))] == [math.inf, 0, -1]


@given(whole, whole)
def test_whole_numbers_stay_whole_and_exact(before: tuple[int, ...], after: tuple[int, ...]) -> None:
    difference = Difference(before, after)
    assert isinstance(difference.before, int)
    assert isinstance(difference.spread, int | None)
    assert min(before) <= difference.before <= max(before)
    assert difference.before + difference.change == difference.after


def test_the_spread_is_two_standard_errors_of_the_medians_worked_out_by_hand() -> None:
    assert (Difference((10,), (20,)).spread, Difference((10,), (20,)).within_spread) == (None, False)
    # MADs 200 and 0; 2 x 1.2533 x 1.4826 x 1.495 x 200 x sqrt(1/3 + 1/3)
    three = Difference((1000, 1200, 1400), (1600, 1600, 1600))
    assert three.spread == round(2 * math.sqrt(math.pi / 2) * 1.4826 * 1.495 * 200 * math.sqrt(2 / 3))
    assert three.within_spread
    # one run after has no spread of its own
    one = Difference((1000.0, 1200.0, 1400.0), (2000.0,))
    assert one.spread == pytest.approx(three.spread * math.sqrt((1 / 3 + 1) / (2 / 3)), abs=1)
    # equal runs but one: the mean deviation in place of a MAD of 0
    assert Difference((0, 0, 900), (0, 0, 0)).spread == round(math.pi * 300 * math.sqrt(2 / 3))


@pytest.mark.parametrize("odd", [0.0, 1.0, 5.0, 1000.0])
def test_one_odd_run_in_five_neither_hides_a_change_nor_makes_one(odd: float) -> None:
    before, after = (10.0, 10.1, 9.9, 10.2, odd), (12.0, 12.1, 11.9, 12.2, 12.0)
    assert not Difference(before, after).within_spread
    assert not Difference(after, before).within_spread
    assert Difference(before, (10.1, 10.0, 9.8, 10.2, 10.0)).within_spread


def test_more_runs_make_smaller_changes_known() -> None:
    few, many = (10.0, 10.5, 9.5), tuple(10 + 0.5 * (i % 3 - 1) for i in range(21))
    assert Difference(few, tuple(value + 0.8 for value in few)).within_spread
    assert not Difference(many, tuple(value + 0.8 for value in many)).within_spread


def test_what_occurs_in_some_runs_of_both_sides_has_not_changed() -> None:
    # spilling in two runs of five, then in three
    assert Difference((0, 0, 10, 0, 10), (10, 0, 10, 10, 0)).within_spread
    assert not Difference((0, 0, 0, 0, 0), (10, 10, 10, 10, 0)).within_spread


@pytest.mark.parametrize("runs", [2, 3, 4, 5, 8, 12])
def test_without_any_change_less_than_one_in_twenty_exceeds_the_spread(runs: int) -> None:
    draw = random.Random(runs)

    def side() -> tuple[float, ...]:
        return tuple(draw.gauss(10, 1) + (draw.uniform(5, 30) if draw.random() < 0.1 else 0) for _ in range(runs))

    beyond = statistics.mean(not Difference(side(), side()).within_spread for _ in range(2000))
    assert beyond < 0.06


def test_what_is_known_of_no_run_is_nan() -> None:
    assert finite_or_nan((math.nan, 1.0, math.inf)) == (1.0,)
    assert math.isnan(finite_or_nan((math.nan,))[0])


def test_what_is_not_known_of_a_run_is_within_no_spread() -> None:
    assert not Difference((1.0, math.nan, 1.1), (1.8, 1.8, 1.9)).within_spread
    assert not Difference((math.nan,), (1.0, 2.0)).within_spread
    assert not Difference(finite_or_nan((1.0, math.nan, 1.1)), (1.8, 1.8, 1.9)).within_spread
