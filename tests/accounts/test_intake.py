from __future__ import annotations

import math
from typing import Any

import msgpack
import pytest
from distributed.utils import key_split
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.checks import MAX_NAME_LENGTH, MAX_NANOSECONDS, counts, text
from dask_efficiency.accounts.intake import as_float, finite, fitting, number, plain_data, whole_number
from dask_efficiency.accounts.skew import key_name
from dask_efficiency.accounts.worker.log import MAX_PREFIX_LENGTH, prefix_of, span_of
from tests.payloads import through_msgpack
from tests.strategies import Unnameable, odd_names, odd_numbers


@given(odd_names, st.integers(0, MAX_NAME_LENGTH))
def test_any_name_travels_and_is_accepted(name: Any, length: int) -> None:
    found = fitting(name, length)
    assert len(found) <= length
    assert through_msgpack(text("name", found)) == found
    assert fitting(found, length) == found


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("größer", "größer"),
        ("x" * 2_000, "x" * 1_000),
        ("a\udcff.py", "a\\udcff.py"),
        (("load", 1), "('load', 1)"),
        (Unnameable(), "(Unnameable)"),
        (10**5_000, "(int)"),
    ],
    ids=["plain", "long", "no UTF-8", "a tuple", "without a text", "with too many digits"],
)
def test_a_name_is_what_it_was_as_far_as_that_can_travel(name: object, found: str) -> None:
    assert fitting(name) == found


@given(odd_names.filter(lambda name: not isinstance(name, bytes)))  # of these Dask takes UTF-8 only
def test_prefixes_spans_and_keys_of_any_task_travel(name: Any) -> None:
    for found in (prefix_of(key_split(name)), span_of(name)):
        assert len(found) <= MAX_PREFIX_LENGTH
        assert through_msgpack(text("name", found)) == found
    assert through_msgpack(text("key", key_name(name))) == key_name(name)


@given(odd_numbers)
def test_any_number_becomes_a_whole_one_that_is_accepted(value: Any) -> None:
    found = whole_number(value)
    assert through_msgpack(counts("n", {"n": found})) == {"n": found}
    if isinstance(value, int) and 0 <= value <= MAX_NANOSECONDS:
        assert found == value


@given(odd_numbers)
def test_a_number_is_of_pythons_own_and_bounded_and_anything_else_is_none(value: Any) -> None:
    found = number(value, 1e6)
    assert found is None or (type(found) in (int, float) and -1e6 <= found <= 1e6)
    if type(value) in (int, float) and abs(value) <= 1e6:
        assert found == value
    assert type(as_float(value)) is float


@pytest.mark.parametrize(("value", "found"), [(3, 3.0), (True, math.nan), ("3", math.nan), (1 << 2000, math.nan)])
def test_what_is_no_number_is_nan_as_a_float(value: object, found: float) -> None:
    assert as_float(value) == pytest.approx(found, nan_ok=True)


@pytest.mark.parametrize(
    ("value", "found"), [(None, None), (0.0, 0.0), (-1.5, -1.5), (math.nan, None), (math.inf, None), (-math.inf, None)]
)
def test_what_json_cannot_have_is_unknown(value: float | None, found: float | None) -> None:
    assert finite(value) == found


@given(st.recursive(odd_names | odd_numbers, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_any_answer_of_a_users_program_travels(value: Any) -> None:
    msgpack.packb(plain_data(value), use_bin_type=True)


@given(st.text(max_size=9) | st.booleans() | st.floats() | st.integers(-(1 << 62), 1 << 62) | st.none())
def test_plain_data_stay_as_they_are(value: Any) -> None:
    found = plain_data({"a": [value]})["a"][0]
    assert found is value or found == value
