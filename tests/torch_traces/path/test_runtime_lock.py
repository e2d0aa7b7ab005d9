"""Calls of the CUDA runtime hold its lock one after the other."""

from __future__ import annotations

from dask_efficiency.torch_traces.path.graph import EdgeKind
from tests.torch_traces.path.small_traces import SmallTrace, edges_of

OPERATOR, DEPENDENCY = EdgeKind.OPERATOR, EdgeKind.DEPENDENCY


def test_of_calls_that_overlap_each_waits_for_the_one_that_ended_before() -> None:
    """The example in HTA's ``_construct_graph_from_cuda_runtime_events``."""
    small = SmallTrace()
    small.call("cudaHostAlloc", 20, 40, thread=10)
    small.call("cudaHostAlloc", 10, 30, thread=11)
    small.call("cudaLaunchKernel", 25, 50, thread=12)
    small.call("cudaLaunchKernel", 60, 70, thread=12)
    assert edges_of(small.trace()) == {
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


def test_a_call_that_begins_as_another_one_of_its_thread_ends_comes_after_it_wherever_it_is_in_the_file() -> None:
    small = SmallTrace()
    small.call("cudaLaunchKernel", 10, 20)
    small.call("cudaLaunchKernel", 0, 10)
    assert edges_of(small.trace()) == {
        ("1", "1."): (OPERATOR, 10, 1),
        ("1.", "0"): (DEPENDENCY, 0, -1),
        ("1.", "0."): (DEPENDENCY, 0, -1),
        ("0", "0."): (OPERATOR, 10, 0),
    }


def test_other_calls_hold_no_lock() -> None:
    small = SmallTrace()
    small.call("cudaMalloc", 0, 20, thread=10)
    small.call("cudaLaunchKernel", 10, 30, thread=11)
    assert edges_of(small.trace()) == {("0", "0."): (OPERATOR, 20, 0), ("1", "1."): (OPERATOR, 20, 1)}
