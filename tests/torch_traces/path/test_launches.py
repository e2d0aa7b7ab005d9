"""What delayed the work on a GPU."""

from __future__ import annotations

from dask_efficiency.torch_traces.path.graph import EdgeKind
from dask_efficiency.torch_traces.path.launches import MAX_KERNEL_DELAY
from tests.torch_traces.path.small_traces import SmallTrace, edges_of, of_kind

LAUNCH, GAP = EdgeKind.LAUNCH_DELAY, EdgeKind.KERNEL_DELAY


def test_a_kernel_on_an_idle_stream_was_delayed_by_its_launch() -> None:
    small = SmallTrace()
    small.launched(0, 10, 30)
    small.launched(50, 58, 70)
    edges = edges_of(small.trace())
    assert of_kind(edges, LAUNCH) == {("0", "1"): 10, ("2", "3"): 8}
    assert of_kind(edges, GAP) == {}
    assert edges["1", "1."] == (EdgeKind.OPERATOR, 20, 1)


def test_a_kernel_that_was_asked_for_earlier_was_delayed_by_the_one_before_it() -> None:
    small = SmallTrace()
    small.launched(0, 10, 30)
    small.launched(20, 33, 40)
    edges = edges_of(small.trace())
    assert edges["1.", "3"] == (GAP, 3, 1)
    # it did not begin before its launch, either, which took it no time
    assert of_kind(edges, LAUNCH) == {("0", "1"): 10, ("2", "3"): 0}


def test_a_kernel_after_which_more_was_asked_for_before_it_began_is_put_down_to_its_queue() -> None:
    small = SmallTrace()
    small.launched(0, 10, 30)
    small.launched(50, 60, 70)
    small.launched(55, 75, 80)
    assert of_kind(edges_of(small.trace()), GAP) == {("1.", "3"): 30, ("3.", "5"): 5}


def test_a_long_gap_is_nobodys() -> None:
    small = SmallTrace()
    small.launched(0, 10, 30)
    small.launched(20, 30 + MAX_KERNEL_DELAY, 40 + MAX_KERNEL_DELAY)
    edges = edges_of(small.trace())
    assert of_kind(edges, GAP) == {}
    assert of_kind(edges, LAUNCH)["2", "3"] == 0


def test_streams_of_different_devices_are_different_streams() -> None:
    small = SmallTrace()
    small.launched(0, 10, 30, device=0)
    small.launched(20, 33, 40, device=1)
    edges = edges_of(small.trace())
    assert of_kind(edges, GAP) == {}
    assert of_kind(edges, LAUNCH) == {("0", "1"): 10, ("2", "3"): 13}


def test_all_kernels_of_a_graph_have_the_one_launch_and_its_delay_is_the_first_ones() -> None:
    small = SmallTrace()
    launch = small.call("cudaGraphLaunch", 0, 5)
    small.work(12, 20, launch)
    small.work(21, 30, launch)
    small.work(12, 40, launch, stream=8)
    edges = edges_of(small.trace())
    assert of_kind(edges, LAUNCH) == {("0", "1"): 12, ("0", "3"): 12, ("0", "2"): 0}
    assert of_kind(edges, GAP) == {("1.", "2"): 1}


def test_a_launch_that_seems_to_be_later_than_its_kernel_makes_no_edge() -> None:
    small = SmallTrace()
    small.launched(20, 10, 30)
    assert of_kind(edges_of(small.trace()), LAUNCH) == {}
