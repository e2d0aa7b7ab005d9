from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.fleet.outliers.lasting import independent, lasting


def _row(text: str) -> np.ndarray:
    return np.array([[mark == "x" for mark in text]])


def test_what_holds_all_the_time_begins_at_the_first_instant():
    assert lasting(_row("xxxx"), length=4, share=1.0).tolist() == [0]


def test_a_burst_shorter_than_the_share_does_not_last():
    assert lasting(_row("..xxx....."), length=5, share=0.8).tolist() == [-1]


def test_what_comes_and_goes_lasts_if_it_holds_for_the_share():
    assert lasting(_row("...xx.xx.."), length=5, share=0.8).tolist() == [3]
    assert lasting(_row("...xx.xx.."), length=5, share=1.0).tolist() == [-1]


def test_it_begins_where_it_holds_and_not_where_the_stretch_does():
    assert lasting(_row("..xxxx"), length=5, share=0.8).tolist() == [2]


def test_a_stray_instant_is_not_where_it_begins():
    holds = np.zeros((1, 100), bool)
    holds[0, 3] = holds[0, 10:] = True
    assert lasting(holds, length=40, share=0.8).tolist() == [10]


def test_less_than_a_stretch_is_never_enough():
    assert lasting(_row("xxx"), length=4, share=0.5).tolist() == [-1]


def test_a_share_out_of_range_is_refused():
    with pytest.raises(ValueError, match="share is 1.5"):
        lasting(_row("xxx"), length=2, share=1.5)


@given(
    st.lists(st.lists(st.booleans(), min_size=12, max_size=12), min_size=1, max_size=4),
    st.integers(1, 12),
    st.floats(0.1, 1.0),
)
def test_it_agrees_with_counting_stretch_by_stretch(rows, length, share):
    expected = []
    for row in rows:
        needed = np.ceil(share * length - 1e-9)
        starts = [i for i in range(len(row) - length + 1) if sum(row[i : i + length]) >= needed]
        expected.append(starts[0] + row[starts[0] :].index(True) if starts else -1)
    assert lasting(np.array(rows), length=length, share=share).tolist() == expected


def test_what_follows_shortly_is_a_consequence_and_what_begins_together_or_much_later_is_none():
    begins = np.array([50, 10, 11, 14, 30])
    assert independent(begins, together=1, follow=20).tolist() == [True, True, True, False, False]


def test_a_consequence_has_no_consequences():
    assert independent(np.array([0, 10, 20]), together=0, follow=10).tolist() == [True, False, True]
