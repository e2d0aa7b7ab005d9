from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.live.bokeh.figures import growth

Columns = dict[str, list[Any]]


def columns(start: int, values: list[int]) -> Columns:
    """Rows in order from ``start`` on, one of the columns always the same."""
    return {"left": list(range(start, start + len(values))), "value": values, "zero": [0] * len(values)}


def applied(then: Columns, now: Columns) -> Columns | None:
    """What a viewer has who is sent the growth; None where all is to be sent."""
    grown = growth(then, now, order="left")
    if grown is None:
        return None
    shown = {name: list(values) for name, values in then.items()}
    for name, values in grown.changed.items():
        shown[name][grown.since :] = values
    if not grown.added["left"]:
        return shown
    return {name: list(deque(values + grown.added[name], grown.rows)) for name, values in shown.items()}


small = st.lists(st.integers(0, 2), max_size=8)


@given(st.integers(0, 6), small, st.integers(0, 6), small)
def test_applying_the_growth_gives_the_new_table(a: int, then: list[int], b: int, now: list[int]) -> None:
    found = applied(columns(a, then), columns(b, now))
    assert found is None or found == columns(b, now)


def test_a_last_row_that_changed_is_all_that_is_sent() -> None:
    grown = growth(columns(0, [5, 6, 7]), columns(0, [5, 6, 8]), order="left")
    assert grown is not None
    assert (grown.since, grown.changed) == (2, {"value": [8]})
    assert not grown.added["left"]


def test_as_the_window_moves_on_only_new_bins_are_sent() -> None:
    grown = growth(columns(0, [5, 6, 7, 8]), columns(1, [6, 7, 9, 4]), order="left")
    assert grown is not None
    assert (grown.since, grown.changed, grown.rows) == (3, {"value": [9]}, 4)
    assert grown.added == {"left": [4], "value": [4], "zero": [0]}


@pytest.mark.parametrize(
    ("then", "start", "now"), [([5, 6, 7, 8], 1, [6, 7, 8]), ([1, 2], 7, [1, 2]), ([1, 2], 0, [4, 5]), ([], 0, [1])]
)
def test_rows_that_only_go_or_have_little_in_common_are_sent_whole(then: list[int], start: int, now: list[int]) -> None:
    assert growth(columns(0, then), columns(start, now), order="left") is None
