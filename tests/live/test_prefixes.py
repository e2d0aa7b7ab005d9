from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.worker.balance import OTHER, TASK_BUCKETS
from dask_efficiency.live.prefixes import prefix_times
from tests.strategies import names, rows

SECOND = 1_000_000_000


def row(cpu: int = 0, failed: int = 0) -> tuple[int, ...]:
    given = {"thread-cpu": cpu * SECOND, "failed": failed * SECOND}
    return tuple(given.get(bucket, 0) for bucket in TASK_BUCKETS)


def test_the_prefixes_come_by_the_time_they_took_since() -> None:
    now = {"a": row(50), "b": row(3, 4), "c": row(1)}
    found = prefix_times({"a": row(45), "c": row(1)}, now)
    assert found.names == ("b", "a")
    assert found.seconds.sum(axis=1).tolist() == [7, 5]
    assert found.seconds[0, TASK_BUCKETS.index("failed")] == 4


def test_what_is_beyond_the_limit_is_the_last_row_with_what_the_ledger_folded() -> None:
    now = {f"p{i}": row(i) for i in range(1, 6)} | {OTHER: row(100)}
    found = prefix_times({}, now, at_most=2)
    assert found.names == ("p5", "p4", OTHER)
    assert found.seconds.sum(axis=1).tolist() == [5, 4, 106]


def test_without_a_task_there_is_no_row() -> None:
    assert prefix_times({}, {}).names == ()
    assert prefix_times({"a": row(1)}, {"a": row(1)}).seconds.shape == (0, len(TASK_BUCKETS))


books = st.dictionaries(names | st.just(OTHER), rows(), max_size=8)


@given(books, books, st.integers(1, 4))
def test_no_time_is_lost(then: dict[str, tuple[int, ...]], gain: dict[str, tuple[int, ...]], at_most: int) -> None:
    nothing = (0,) * len(TASK_BUCKETS)
    now = {
        name: tuple(map(sum, zip(then.get(name, nothing), gain.get(name, nothing), strict=True)))
        for name in then | gain
    }
    found = prefix_times(then, now, at_most=at_most)
    assert len(found.names) <= at_most + 1
    assert (found.seconds >= 0).all()
    expected = np.array([*gain.values(), nothing], dtype=object).sum(axis=0) / 1e9
    assert found.seconds.sum(axis=0).tolist() == pytest.approx(expected.tolist())
