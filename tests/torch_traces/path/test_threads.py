"""The edges of threads."""

from __future__ import annotations

import pytest

from dask_efficiency.torch_traces.path.graph import EdgeKind
from tests.torch_traces.path.small_traces import SmallTrace, edges_of

OPERATOR, DEPENDENCY = EdgeKind.OPERATOR, EdgeKind.DEPENDENCY


def test_time_between_operators_belongs_to_the_one_around_them() -> None:
    small = SmallTrace()
    small.operator("a", 0, 100)
    small.operator("b", 10, 30)
    small.operator("c", 40, 80)
    small.operator("next", 150, 160)
    assert edges_of(small.trace()) == {
        ("0", "1"): (OPERATOR, 10, 0),
        ("1", "1."): (OPERATOR, 20, 1),
        ("1.", "2"): (OPERATOR, 10, 0),
        ("2", "2."): (OPERATOR, 40, 2),
        ("2.", "0."): (OPERATOR, 20, 0),
        # nothing ran between them
        ("0.", "3"): (DEPENDENCY, 0, -1),
        ("3", "3."): (OPERATOR, 10, 3),
    }


@pytest.mark.parametrize("name", ["cudaDeviceSynchronize", "hipStreamSynchronize", "cudaMemcpy"])
def test_a_call_that_waits_takes_no_time_of_the_cpu(name: str) -> None:
    small = SmallTrace()
    small.call(name, 0, 100)
    assert edges_of(small.trace()) == {("0", "0."): (OPERATOR, 0, 0)}


def test_the_backward_pass_follows_the_forward_pass() -> None:
    small = SmallTrace()
    small.operator("aten::forward", 0, 10, thread=1)
    small.operator("autograd::engine", 20, 30, thread=2)
    assert edges_of(small.trace())["0.", "1"] == (DEPENDENCY, 0, -1)


def test_threads_are_not_joined_otherwise() -> None:
    small = SmallTrace()
    small.operator("aten::add", 0, 10, thread=1)
    small.operator("aten::mul", 20, 30, thread=2)
    assert list(edges_of(small.trace())) == [("0", "0."), ("1", "1.")]
