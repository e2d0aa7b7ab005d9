from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts import checks
from dask_efficiency.accounts.checks import (
    MAX_NAME_LENGTH,
    RefusedPayload,
    SharedTexts,
    amount,
    flag,
    keys,
    seconds,
    text,
)


@pytest.mark.parametrize("value", ["\ud800", "a\udcff", "x" * (MAX_NAME_LENGTH + 1), b"x", None, 1])
def test_a_text_that_cannot_travel_on_is_refused(value: Any) -> None:
    with pytest.raises(RefusedPayload, match="name is"):
        text("name", value)
    with pytest.raises(RefusedPayload, match="name is"):
        SharedTexts()("name", ["fine", value])


@given(st.lists(st.lists(st.text(max_size=9))))
def test_equal_texts_are_one_object_and_no_other(lists: list[list[str]]) -> None:
    shared = SharedTexts()
    known: dict[str, str] = {}
    for values in lists:
        found = shared("names", values)
        assert found == values
        assert all(known.setdefault(each, each) is each for each in found)


def test_texts_that_are_kept_are_bounded_by_their_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "MAX_SHARED", 10_000)
    shared = SharedTexts()
    for i in range(100):
        (name,) = shared("names", [f"{i:0900}"])
        assert name == f"{i:0900}"
        assert sum(map(len, shared._known)) == shared._size <= 10_000
    assert shared("names", ["again"])[0] is shared("names", ["".join(("ag", "ain"))])[0]


@pytest.mark.parametrize("value", [-1, 3.5, float("nan"), float("inf"), True, "1", None, 1 << 70])
def test_an_amount_out_of_its_bounds_is_refused(value: Any) -> None:
    with pytest.raises(RefusedPayload, match="delay is .*; expected a number from 0 to 3"):
        amount("delay", value, 3.0)
    assert amount("delay", 3, 3.0) == 3


@pytest.mark.parametrize(
    ("check", "odd"),
    [
        *[(seconds, value) for value in (-1, float("nan"), float("inf"), 1e10, 10**400, True, "3", None)],
        *[(flag, value) for value in (0, 1, "yes", None)],
        *[(keys, value) for value in ("a", 1, None, {"a": 1}, [["a"]], [("a", {})])],
    ],
)
def test_an_odd_field_is_refused_by_its_name(check: Any, odd: Any) -> None:
    with pytest.raises(RefusedPayload, match="^field is "):
        check("field", odd)


def test_a_usual_field_is_taken_as_it_is() -> None:
    assert [seconds("field", value) for value in (0, 0.5, 10**9)] == [0, 0.5, 10**9]
    assert [flag("field", value) for value in (True, False)] == [True, False]
    many = [("a", number) for number in range(20_000)]
    assert [keys("field", value) for value in (many, {"a", ("b", 1)}, ())] == [many, {"a", ("b", 1)}, ()]
