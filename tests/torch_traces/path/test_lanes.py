"""Threads by number, and an order of lanes and times."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.torch_traces.path.lanes import comparable_keys, rank_pairs, thread_lanes
from tests.torch_traces.path.programs import rank_of, written


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(-(1 << 40), 1 << 40))))
def test_pairs_have_numbers_in_their_order(pairs: list[tuple[int, int]]) -> None:
    first, second = (np.array([pair[i] for pair in pairs], np.int64) for i in (0, 1))
    wanted = {pair: number for number, pair in enumerate(sorted(set(pairs)))}
    assert rank_pairs(first, second).tolist() == [wanted[pair] for pair in pairs]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1), st.sampled_from([1, 1 << 61]))
def test_lanes_come_first_then_times(pairs: list[tuple[int, int]], unit: int) -> None:
    lane = np.array([pair[0] for pair in pairs])
    # unit by unit these times do not fit into 64 bits beside their lanes
    time = np.array([pair[1] // 3 * unit for pair in pairs], np.int64)
    keys = comparable_keys((lane, time), (lane[::-1], time[::-1]))
    assert keys[1].tolist() == keys[0][::-1].tolist()
    exact = list(zip(lane.tolist(), time.tolist(), strict=True))
    assert np.argsort(keys[0], kind="stable").tolist() == sorted(range(len(exact)), key=exact.__getitem__)


@pytest.mark.parametrize(
    ("operators", "lanes"),
    [
        ("aten::forward 0-5 @1, autograd::engine 10-15 @2, autograd::engine 20-25 @3", 3),
        ("aten::add 0-5 @1, autograd::engine 10-15 @2", 2),
    ],
)
def test_backward_passes_have_lanes_of_their_own_if_there_are_several_or_no_forward_pass(
    operators: str, lanes: int
) -> None:
    trace = rank_of(written(operators))
    assert len(np.unique(thread_lanes(trace, np.arange(len(trace.events))))) == lanes
