from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.gpu.intervals import IntervalArrays, difference, intersection, length, overlaps, ranked, union

pieces = st.lists(st.tuples(st.integers(-20, 40), st.integers(-2, 15)), max_size=12).map(
    lambda rows: IntervalArrays(
        np.array([start for start, _ in rows], np.int64), np.array([start + width for start, width in rows], np.int64)
    )
)
sets = pieces.map(lambda them: union(*them))


def instants(intervals: IntervalArrays) -> set[int]:
    return {at for start, stop in zip(*intervals, strict=True) for at in range(start, stop)}


def well_formed(intervals: IntervalArrays) -> bool:
    start, stop = intervals
    return bool((start < stop).all() and (stop[:-1] < start[1:]).all())


@given(pieces)
def test_a_union_has_the_instants_of_its_pieces(some: IntervalArrays) -> None:
    found = union(*some)
    assert instants(found) == instants(some)
    assert well_formed(found)
    assert length(found) == len(instants(some))


@given(sets, sets)
def test_intersection_and_difference_are_those_of_sets(a: IntervalArrays, b: IntervalArrays) -> None:
    assert instants(intersection(a, b)) == instants(a) & instants(b)
    assert instants(difference(a, b)) == instants(a) - instants(b)
    assert (intersection(a, b).lengths > 0).all()
    assert well_formed(difference(a, b))
    assert length(intersection(a, b)) + length(difference(a, b)) == length(a)


@given(pieces, sets)
def test_every_piece_is_cut_by_itself(some: IntervalArrays, by: IntervalArrays) -> None:
    parts, which = overlaps(some, by)
    assert (parts.lengths > 0).all()
    for index, (start, stop) in enumerate(zip(*some, strict=True)):
        mine = IntervalArrays(parts.start[which == index], parts.stop[which == index])
        assert instants(mine) == set(range(start, stop)) & instants(by)
        assert length(mine) == len(instants(mine))


@given(st.lists(st.integers(-3, 9) | st.integers(-(1 << 40), 1 << 40)))
def test_they_are_those_of_sorting(numbers: list[int]) -> None:
    found, indices = ranked(np.array(numbers, np.int64))
    assert found.tolist() == sorted(set(numbers))
    assert found[indices].tolist() == numbers
