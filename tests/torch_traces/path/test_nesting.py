from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.torch_traces.path.nesting import ROUNDING_NS, Nested, nested


def of(*slices: tuple[int, int]) -> Nested:
    rows = np.array(slices, np.int64).reshape(len(slices), 2)
    return nested(rows[:, 0], rows[:, 1])


def test_what_is_inside_or_beside_shares_a_track() -> None:
    assert of((0, 50_000), (0, 20_000), (20_000, 50_000), (50_000, 60_000)).track.tolist() == [0, 0, 0, 0]


def test_what_overlaps_has_another_track() -> None:
    assert of((0, 50_000), (40_000, 60_000), (60_000, 70_000)).track.tolist() == [0, 1, 0]


def test_an_overlap_by_rounding_is_cut_off() -> None:
    found = of((0, 50_000), (20_000, 51_000), (49_500, 90_000))
    assert found.track.tolist() == [0, 0, 0]
    assert found.stop.tolist() == [49_500, 49_500, 90_000]


@given(st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 9_000)), max_size=20))
def test_slices_of_a_track_nest(pairs: list[tuple[int, int]]) -> None:
    start = np.array([at for at, _ in pairs], np.int64)
    stop = start + np.array([length for _, length in pairs], np.int64)
    found = nested(start, stop)
    assert (np.abs(found.stop - stop) <= 2 * ROUNDING_NS).all()
    assert (found.stop >= found.start).all()
    rows = list(zip(found.track.tolist(), found.start.tolist(), found.stop.tolist(), strict=True))
    for track, since, until in rows:
        for other, at, end in rows:
            assert track != other or not since < at < until < end
