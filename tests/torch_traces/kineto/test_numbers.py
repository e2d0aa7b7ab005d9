"""Numbers of JSON, exactly."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.torch_traces.kineto.numbers import MAX_MICROSECONDS, NO_TIME, integers, nanoseconds


@given(st.lists(st.integers(-MAX_MICROSECONDS * 1000, MAX_MICROSECONDS * 1000), max_size=5), st.integers(0, 4))
def test_texts_of_nanoseconds_come_back(values: list[int], digits: int) -> None:
    texts = [f"{Decimal(value) / 1000:.{max(3, digits)}f}" for value in values]
    assert nanoseconds(texts).tolist() == values
    short = [text.rstrip("0").rstrip(".") if "." in text else text for text in texts]
    assert nanoseconds(short).tolist() == values
    assert nanoseconds([*short, 3]).tolist() == [*values, 3000]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([1, 2.5, "3.25"], [1000, 2500, 3250]),
        (["0.0005", "0.0015"], [0, 2]),
        ([MAX_MICROSECONDS, MAX_MICROSECONDS + 1], [MAX_MICROSECONDS * 1000, NO_TIME]),
        ([str(MAX_MICROSECONDS + 1)], [NO_TIME]),
        (["1e2", "1e-9", "1e999999999", "nan", "-Infinity", "", "x"], [100_000, 0, *[NO_TIME] * 5]),
        ([None, True, [], 1 << 70], [NO_TIME] * 4),
        ([], []),
    ],
)
def test_microseconds_become_nanoseconds(given: list[object], expected: list[int]) -> None:
    assert nanoseconds(given).tolist() == expected


def test_what_is_no_whole_number_that_fits_is_missing() -> None:
    assert integers([1, "2", "3.0", 4.0, "x", None, 1.5, 1 << 40], np.int32).tolist() == [1, 2, 3, -1, -1, -1, -1, -1]
    assert integers([1 << 40, 1 << 63]).tolist() == [1 << 40, -1]
