from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.rows import OTHER, add, cap, divide, growth, kept_apart, scale_down

numbers = st.integers(0, 10**12) | st.integers(0, 1 << 62)
rows = st.dictionaries(st.sampled_from("abcdef"), numbers)


@given(rows, rows)
def test_the_growth_of_a_row_is_the_sum_of_its_additions(row, more):
    grown = dict(row)
    add(grown, more)
    assert growth(grown, row) == {name: n for name, n in more.items() if n}
    assert growth(row, grown) == {}


@given(st.lists(numbers, max_size=8), st.data())
def test_scaling_down_is_exact_and_off_by_less_than_one(values, data):
    whole = sum(values)
    total = data.draw(st.integers(0, whole))
    scaled = scale_down(values, total)
    assert sum(scaled) == total
    for part, value in zip(scaled, values, strict=True):
        assert 0 <= part <= value
        assert not whole or abs(part - Fraction(value * total, whole)) < 1
    assert scale_down([(1 << 60) + 1, (1 << 60) + 1], (1 << 60) + 1) == [1 << 59, (1 << 59) + 1]  # beyond floats


@pytest.mark.parametrize("total", [4, -1])
def test_scaling_to_more_than_there_is_or_to_less_than_nothing_is_refused(total):
    with pytest.raises(ValueError, match=f"cannot scale a row of 3 to {total}"):
        scale_down([1, 2], total)


@given(rows.filter(lambda row: any(row.values())), numbers)
def test_a_total_is_divided_in_proportion_and_a_row_is_capped_without_losing_one(row, total):
    whole = sum(row.values())
    parts = divide(row, total)
    assert sum(parts.values()) == total
    assert all(abs(parts[name] * whole - weight * total) < whole for name, weight in row.items())
    assert cap(row, total) == (parts if total < whole else row)


def test_names_beyond_a_bound_share_one():
    assert [kept_apart(name, ["a", "b"], most) for name, most in (("a", 2), ("c", 2), ("c", 3))] == ["a", OTHER, "c"]
