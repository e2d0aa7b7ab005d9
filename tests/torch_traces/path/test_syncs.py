"""Waits of calls and streams."""

from dask_efficiency.torch_traces.path.graph import EdgeKind
from tests.torch_traces.path.small_traces import SmallTrace, edges_of, of_kind

SYNC, GAP, LAUNCH = EdgeKind.SYNC, EdgeKind.KERNEL_DELAY, EdgeKind.LAUNCH_DELAY


def test_a_device_is_waited_for_on_all_of_its_streams_and_on_no_other_devices() -> None:
    small = SmallTrace()
    small.launched(0, 10, 30, stream=7)
    small.launched(3, 40, 50, stream=7)
    small.launched(6, 10, 60, stream=8)
    small.launched(9, 10, 55, stream=7, device=1)
    wait = small.call("cudaDeviceSynchronize", 20, 70)
    small.sync("Context Sync", wait, 65, stream=-1)
    assert of_kind(edges_of(small.trace()), SYNC) == {("3.", f"{wait}."): 0, ("5.", f"{wait}."): 0}


def test_a_stream_is_waited_for_alone() -> None:
    small = SmallTrace()
    small.launched(0, 10, 30, stream=7)
    small.launched(6, 10, 60, stream=8)
    wait = small.call("cudaStreamSynchronize", 20, 40)
    small.sync("Stream Sync", wait, 35, stream=7)
    assert of_kind(edges_of(small.trace()), SYNC) == {("1.", f"{wait}."): 0}


def test_work_that_ended_after_a_call_had_returned_was_not_waited_for() -> None:
    small = SmallTrace()
    small.launched(0, 10, 30)
    small.launched(25, 31, 90, thread=2)
    wait = small.call("cudaStreamSynchronize", 20, 40)
    small.sync("Stream Sync", wait, 35, stream=7)
    assert of_kind(edges_of(small.trace()), SYNC) == {("1.", f"{wait}."): 0}


def test_an_event_is_waited_for_through_the_work_before_its_recording() -> None:
    small = SmallTrace()
    small.launched(0, 10, 30)
    small.launched(3, 31, 60)
    small.call("cudaEventRecord", 8, 9, correlation=5)
    small.launched(12, 61, 90)
    wait = small.call("cudaEventSynchronize", 20, 70)
    small.sync("Event Sync", wait, 65, recorded_by=5, recorded_stream=7)
    assert of_kind(edges_of(small.trace()), SYNC) == {("3.", f"{wait}."): 0}


def test_a_stream_that_waits_holds_back_the_next_work_of_the_same_thread() -> None:
    small = SmallTrace()
    small.launched(0, 10, 60, stream=7)
    small.launched(3, 10, 20, stream=8)
    small.call("cudaEventRecord", 6, 7, correlation=5)
    told = small.call("cudaStreamWaitEvent", 8, 9)
    small.sync("Stream Wait Event", told, 9, stream=8, recorded_by=5, recorded_stream=7)
    other = small.launched(10, 21, 25, stream=8, thread=2)
    held_back = small.launched(22, 63, 70, stream=8)
    edges = edges_of(small.trace())
    assert of_kind(edges, SYNC) == {("1.", f"{held_back}"): 0}
    # the gap before it is that wait's, not the stream's
    assert (f"{other}.", f"{held_back}") not in edges
    assert edges[f"{held_back - 1}", f"{held_back}"] == (LAUNCH, 0, -1)


def test_work_waits_for_each_stream_that_its_own_has_to_wait_for() -> None:
    small = SmallTrace()
    small.launched(0, 10, 60, stream=7)
    small.launched(3, 10, 50, stream=9)
    for stream, at in ((7, 6), (9, 12)):
        small.call("cudaEventRecord", at, at + 1, correlation=stream)
        told = small.call("cudaStreamWaitEvent", at + 2, at + 3)
        small.sync("Stream Wait Event", told, at + 3, stream=8, recorded_by=stream, recorded_stream=stream)
    held_back = small.launched(22, 63, 70, stream=8)
    assert of_kind(edges_of(small.trace()), SYNC) == {("1.", f"{held_back}"): 0, ("3.", f"{held_back}"): 0}


def test_a_stream_that_waits_for_itself_waits_for_nothing() -> None:
    small = SmallTrace()
    small.launched(0, 10, 60)
    small.call("cudaEventRecord", 6, 7, correlation=5)
    told = small.call("cudaStreamWaitEvent", 8, 9)
    small.sync("Stream Wait Event", told, 9, stream=7, recorded_by=5, recorded_stream=7)
    small.launched(22, 63, 70)
    edges = edges_of(small.trace())
    assert of_kind(edges, SYNC) == {}
    assert of_kind(edges, GAP) == {("1.", "6"): 3}


def test_a_wait_for_an_event_that_was_not_recorded_is_left_out() -> None:
    small = SmallTrace()
    small.launched(0, 10, 30)
    wait = small.call("cudaEventSynchronize", 20, 40)
    small.sync("Event Sync", wait, 35, recorded_by=99, recorded_stream=7)
    assert of_kind(edges_of(small.trace()), SYNC) == {}
