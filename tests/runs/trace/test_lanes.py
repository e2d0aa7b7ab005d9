from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace.lanes import lanes

intervals = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8), st.integers(MISSING, 3)), max_size=15)


@given(intervals)
def test_no_two_intervals_of_a_lane_overlap(rows: list[tuple[int, int, int]]) -> None:
    start, length, wanted = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    stop = start + length
    found = lanes(start, stop, wanted)
    for lane in np.unique(found):
        mine = sorted(zip(start[found == lane].tolist(), stop[found == lane].tolist(), strict=True))
        assert all(before[1] <= after[0] for before, after in pairwise(mine))


@given(intervals)
def test_there_are_no_more_lanes_than_intervals_at_once(rows: list[tuple[int, int, int]]) -> None:
    start = np.array([row[0] for row in rows], np.int64)
    stop = start + np.array([row[1] + 1 for row in rows], np.int64)
    at_once = max((int(((start <= at) & (stop > at)).sum()) for at in start), default=0)
    assert len(np.unique(lanes(start, stop))) == at_once


def test_a_wish_is_granted_where_the_lane_is_free() -> None:
    start, stop = np.array([0, 0, 5, 6]), np.array([10, 5, 7, 8])
    assert lanes(start, stop, np.array([1, 0, 0, 0])).tolist() == [1, 0, 0, 2]
