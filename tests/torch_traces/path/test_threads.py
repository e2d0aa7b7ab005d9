"""The edges of threads."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.torch_traces.kineto.trace import Category, RankTrace
from dask_efficiency.torch_traces.path.graph import EdgeKind
from dask_efficiency.torch_traces.path.threads import CallStacks, call_stacks
from tests.torch_traces.path.programs import edges_of, rank_of, written


def stacks_of(trace: RankTrace) -> CallStacks:
    has_nodes = trace.events.category == Category.OPERATOR
    return call_stacks(trace, np.arange(len(trace.events)), has_nodes)


def steps(stacks: CallStacks) -> str:
    """Letters of events as they begin, and in lower case as they end."""
    return "".join(
        chr((65 if start else 97) + event)
        for event, start in zip(stacks.event.tolist(), stacks.is_start.tolist(), strict=True)
    )


def test_of_events_that_begin_or_end_together_the_longer_one_is_outside() -> None:
    events = "inner 0-50, outer 0-100, last 60-100, twin 60-100, next 100-110"
    stacks = stacks_of(rank_of(written(events)))
    assert steps(stacks) == "BAaCDdcbEe"
    assert stacks.parent.tolist() == [1, -1, 1, 2, -1]


def test_an_operator_that_outlasts_the_one_it_began_in_ends_with_it() -> None:
    events = "a 0-100, b 90-105, c 100-200, d 110-120"
    stacks = stacks_of(rank_of(written(events)))
    assert steps(stacks) == "ABbaCDdc"
    assert stacks.stop.tolist() == [100_000, 100_000, 200_000, 120_000]


def test_an_operator_that_goes_on_when_the_function_that_began_it_has_returned_keeps_its_time() -> None:
    events = "__enter__ 0-10, loading 5-100, inside 20-30, __exit__ 90-110"
    stacks = stacks_of(rank_of(written(events)))
    assert stacks.stop[1] == 100_000
    assert stacks.parent.tolist() == [-1, 0, 1, 1]
    assert steps(stacks) == "ABCcDdba"


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 8), st.booleans(), st.integers(1, 2)), max_size=12))
def test_at_any_times_each_event_ends_in_the_one_in_which_it_began(
    events: list[tuple[int, int, bool, int]],
) -> None:
    texts = [
        f"{'aten::some' if is_operator else '__some'} {start}-{start + length} @{thread}"
        for start, length, is_operator, thread in events
    ]
    stacks = stacks_of(rank_of(written(", ".join(texts))))
    stack: list[int] = []
    for event, is_start in zip(stacks.event.tolist(), stacks.is_start.tolist(), strict=True):
        if is_start:
            assert stacks.parent[event] == (stack[-1] if stack else -1)
            stack.append(event)
        else:
            assert stack.pop() == event
    assert not stack
    starts = [1000 * start for start, *_ in events]
    when = [
        starts[event] if is_start else int(stacks.stop[event])
        for event, is_start in zip(stacks.event.tolist(), stacks.is_start.tolist(), strict=True)
    ]
    same = stacks.lane[1:] == stacks.lane[:-1]
    assert all(np.diff(when)[same] >= 0)


OPERATOR, DEPENDENCY = EdgeKind.OPERATOR, EdgeKind.DEPENDENCY


def test_the_backward_pass_follows_the_forward_pass() -> None:
    assert edges_of("aten::forward 0-10 @1, autograd::engine 20-30 @2")["0.", "1"] == (DEPENDENCY, 0, -1)


def test_threads_are_not_joined_otherwise() -> None:
    assert list(edges_of("aten::add 0-10 @1, aten::mul 20-30 @2")) == [("0", "0."), ("1", "1.")]


def test_of_calls_that_overlap_each_waits_for_the_one_that_ended_before() -> None:
    """The example in HTA's ``_construct_graph_from_cuda_runtime_events``."""
    calls = "cudaHostAlloc 20-40 #1 @10, cudaHostAlloc 10-30 #2 @11"
    assert edges_of(f"{calls}, cudaLaunchKernel 25-50 #3 @12, cudaLaunchKernel 60-70 #4 @12") == {
        # each that has begun waits for the first one that ends
        ("1", "1."): (OPERATOR, 20, 1),
        ("0", "1."): (DEPENDENCY, 0, -1),
        ("2", "1."): (DEPENDENCY, 0, -1),
        ("1.", "0."): (DEPENDENCY, 0, -1),
        ("0.", "2."): (DEPENDENCY, 0, -1),
        ("3", "3."): (OPERATOR, 10, 3),
        # on its own thread
        ("2.", "3"): (DEPENDENCY, 0, -1),
    }


def test_a_call_that_begins_as_another_one_of_its_thread_ends_comes_after_it() -> None:
    events = "cudaLaunchKernel 10-20 #1, cudaLaunchKernel 0-10 #2"
    assert edges_of(events) == {
        ("1", "1."): (OPERATOR, 10, 1),
        ("1.", "0"): (DEPENDENCY, 0, -1),
        ("1.", "0."): (DEPENDENCY, 0, -1),
        ("0", "0."): (OPERATOR, 10, 0),
    }


def test_other_calls_hold_no_lock() -> None:
    events = "cudaMalloc 0-20 #1 @10, cudaLaunchKernel 10-30 #2 @11"
    assert edges_of(events) == {("0", "0."): (OPERATOR, 20, 0), ("1", "1."): (OPERATOR, 20, 1)}
