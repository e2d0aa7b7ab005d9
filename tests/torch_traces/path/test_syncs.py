"""Waits of calls and streams."""

import pytest

from dask_efficiency.torch_traces.path.graph import EdgeKind
from tests.torch_traces.path.programs import edges_of, of_kind

#: Events, and the instants of work and of what waited for it.
SCENES = {
    "a device is waited for on all of its streams, and on no other device's": (
        """cudaLaunchKernel 0-2 #1, gemm 10-30 #1, cudaLaunchKernel 3-5 #2, gemm 40-50 #2,
        cudaLaunchKernel 6-8 #3, gemm 10-60 #3 @8, cudaLaunchKernel 9-11 #4, gemm 10-55 #4 $1,
        cudaDeviceSynchronize 20-70 #5, Context_Sync 20-65 #5 @-1""",
        {("3.", "8."), ("5.", "8.")},
    ),
    "a stream is waited for alone": (
        """cudaLaunchKernel 0-2 #1, gemm 10-30 #1, cudaLaunchKernel 6-8 #2, gemm 10-60 #2 @8,
        cudaStreamSynchronize 20-40 #3, Stream_Sync 20-35 #3""",
        {("1.", "4.")},
    ),
    "work that ended after a call had returned was not waited for": (
        """cudaLaunchKernel 0-2 #1, gemm 10-30 #1, cudaLaunchKernel 25-27 #2 @2, gemm 31-90 #2,
        cudaStreamSynchronize 20-40 #3, Stream_Sync 20-35 #3""",
        {("1.", "4.")},
    ),
    "an event is waited for through the work before its recording": (
        """cudaLaunchKernel 0-2 #1, gemm 10-30 #1, cudaLaunchKernel 3-5 #2, gemm 31-60 #2, cudaEventRecord 8-9 #5,
        cudaLaunchKernel 12-14 #3, gemm 61-90 #3, cudaEventSynchronize 20-70 #4, Event_Sync 20-65 #4 @-1 <5 ~7""",
        {("3.", "7.")},
    ),
    "work waits for each stream that its own has to wait for": (
        """cudaLaunchKernel 0-2 #1, gemm 10-60 #1, cudaLaunchKernel 3-5 #2, gemm 10-50 #2 @9,
        cudaEventRecord 6-7 #3, cudaStreamWaitEvent 8-9 #4, Stream_Wait_Event 8-9 #4 @8 <3 ~7,
        cudaEventRecord 12-13 #5, cudaStreamWaitEvent 14-15 #6, Stream_Wait_Event 14-15 #6 @8 <5 ~9,
        cudaLaunchKernel 22-24 #7, gemm 63-70 #7 @8""",
        {("1.", "11"), ("3.", "11")},
    ),
    "an event that was not recorded is not waited for": (
        """cudaLaunchKernel 0-2 #1, gemm 10-30 #1,
        cudaEventSynchronize 20-40 #2, Event_Sync 20-35 #2 @-1 <99 ~7""",
        set(),
    ),
}


@pytest.mark.parametrize(("events", "waits"), SCENES.values(), ids=SCENES)
def test_waits_follow_from_recorded_synchronisations(events: str, waits: set[tuple[str, str]]) -> None:
    assert of_kind(edges_of(events), EdgeKind.SYNC) == dict.fromkeys(waits, 0)


def test_a_stream_that_waits_holds_back_the_next_work_of_the_same_thread() -> None:
    edges = edges_of(
        """cudaLaunchKernel 0-2 #1, gemm 10-60 #1, cudaLaunchKernel 3-5 #2, gemm 10-20 #2 @8,
        cudaEventRecord 6-7 #5, cudaStreamWaitEvent 8-9 #3, Stream_Wait_Event 8-9 #3 @8 <5 ~7,
        cudaLaunchKernel 10-12 #4 @2, gemm 21-25 #4 @8, cudaLaunchKernel 22-24 #6, gemm 63-70 #6 @8"""
    )
    assert of_kind(edges, EdgeKind.SYNC) == {("1.", "10"): 0}
    # the gap before it is that wait's, not the stream's
    assert ("8.", "10") not in edges
    assert edges["9", "10"] == (EdgeKind.LAUNCH_DELAY, 0, -1)


def test_a_stream_that_waits_for_itself_waits_for_nothing() -> None:
    edges = edges_of(
        """cudaLaunchKernel 0-2 #1, gemm 10-60 #1, cudaEventRecord 6-7 #5, cudaStreamWaitEvent 8-9 #3,
        Stream_Wait_Event 8-9 #3 <5 ~7, cudaLaunchKernel 22-24 #4, gemm 63-70 #4"""
    )
    assert of_kind(edges, EdgeKind.SYNC) == {}
    assert of_kind(edges, EdgeKind.KERNEL_DELAY) == {("1.", "6"): 3}
