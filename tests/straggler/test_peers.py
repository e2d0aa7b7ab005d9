import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dask_efficiency.straggler.peers import (
    MAD_TO_DEVIATION,
    healthy_spread,
    limit,
    median,
    median_of_others,
    spread_with_past,
)

tables = arrays(
    np.float64, st.tuples(st.integers(1, 4), st.integers(1, 9)), elements=st.one_of(st.just(np.nan), st.floats(-9, 9))
)


@given(tables)
def test_the_median_of_others_is_the_median_without_oneself(values):
    found = median_of_others(values)
    for row, (own, others) in enumerate(zip(values, found, strict=True)):
        for i in range(len(own)):
            rest = np.delete(own, i)
            rest = rest[~np.isnan(rest)]
            if np.isnan(own[i]) or not len(rest):
                assert np.isnan(others[i]), row
            else:
                assert np.isclose(others[i], np.median(rest)), row


@given(tables)
def test_medians_leave_out_missing_values(values):
    for own, found in zip(values, median(values), strict=True):
        known = own[~np.isnan(own)]
        assert np.isnan(found) if not len(known) else np.isclose(found, np.median(known))


def test_a_median_is_over_the_axis_that_is_asked_for():
    values = np.array([[[1, np.nan], [3, np.nan], [np.nan, np.nan]]], np.float32)
    np.testing.assert_array_equal(median(values, 1, keepdims=True), [[[2, np.nan]]])
    np.testing.assert_array_equal(median(values), [[1, 3, np.nan]])
    np.testing.assert_array_equal(median(values[:, :, :0]), np.full((1, 3), np.nan))
    assert median(values).dtype == np.float32


def test_the_limit_grows_with_the_comparisons_and_falls_with_those_who_are_named():
    assert limit(16) == pytest.approx(math.sqrt(2 * math.log(16)))
    assert limit(40) < limit(5000)
    assert limit(40, named=3) == limit(10)


def test_stragglers_do_not_widen_the_spread():
    healthy = np.array([-0.1, 0.0, 0.1, 0.0, -0.1, 0.1, 0.0])
    assert healthy_spread(np.array([*healthy, 5.0])) <= 1.5 * healthy_spread(healthy)
    assert np.isnan(healthy_spread(np.array([1.0, np.nan, 2.0])))


@pytest.mark.parametrize(
    ("now", "usual", "expected"),
    [
        (0.5, 0.1, 0.3),  # most became slow: three times the usual at most
        (0.05, 0.1, 0.1),  # an instant in which all are alike: no less than the usual
        (0.2, 0.1, 0.2),
        (0.2, math.nan, 0.2),  # without a past
        (math.nan, 0.1, 0.3),  # too few now: as wide as it may be
    ],
)
def test_the_past_bounds_the_spread(now, usual, expected):
    assert spread_with_past(now, usual) == pytest.approx(expected)


def test_half_of_the_workers_do_not_widen_the_spread_about_those_that_are_well():
    assert healthy_spread(np.array([-0.1, 0.1, 5.0, 5.0]), 0.0) == pytest.approx(0.1)
    assert healthy_spread(np.array([-0.1, 0.1, 5.0, 5.0])) > 2


def test_half_of_normal_numbers_lie_within_the_median_absolute_deviation():
    assert NormalDist().cdf(1 / MAD_TO_DEVIATION) == pytest.approx(0.75, abs=1e-5)
