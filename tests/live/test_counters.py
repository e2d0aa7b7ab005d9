from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dask_efficiency.live.counters import gained, shares_of


@dataclass(frozen=True)
class Table:
    rows: dict[str, tuple[int, int]]

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.rows)

    @property
    def nanoseconds(self) -> NDArray[np.int64]:
        return np.array(list(self.rows.values()), dtype=np.int64).reshape(-1, 2)


tables = st.dictionaries(st.sampled_from("abcd"), st.tuples(st.integers(0, 10**15), st.integers(0, 10**15)))


@given(tables, tables)
def test_each_row_gains_what_its_own_counters_grew_by(
    then: dict[str, tuple[int, int]], more: dict[str, tuple[int, int]]
) -> None:
    now = {key: tuple(a + b for a, b in zip(row, then.get(key, (0, 0)), strict=True)) for key, row in more.items()}
    found = gained(Table(now), Table(then))
    assert dict(zip(now, map(tuple, found.tolist()), strict=True)) == more


def test_without_an_earlier_instant_everything_was_gained() -> None:
    assert gained(Table({"a": (3, 4)}), None).tolist() == [[3, 4]]


def test_a_counter_that_shrank_gained_nothing() -> None:
    assert gained(Table({"a": (3, 4)}), Table({"a": (5, 1)})).tolist() == [[0, 3]]


@given(tables)
def test_shares_add_up_to_one_or_to_nothing(rows: dict[str, tuple[int, int]]) -> None:
    shares = shares_of(Table(rows).nanoseconds)
    for row, share in zip(rows.values(), shares.tolist(), strict=True):
        assert sum(share) == (pytest.approx(1) if any(row) else 0)
