"""Launches whose work was not recorded."""

import numpy as np

from dask_efficiency.torch_traces.path.launches import Launches, first_of_streams
from tests.torch_traces.path.programs import rank_of, written


def lost(text: str) -> list[int]:
    """Starts of the launches without work, in microseconds."""
    found = Launches.of(rank_of(written(text)))
    return (found.at[~found.recorded] // 1000).tolist()


def test_a_launch_is_lost_if_no_work_has_its_number() -> None:
    assert lost("cudaLaunchKernel 1-2 #1, cudaLaunchKernel 3-4 #2, gemm 5-6 #1, cudaGraphLaunch 7-8 #3") == [3, 7]


def test_a_launch_into_a_graph_that_is_captured_asks_for_nothing() -> None:
    captured = "cudaStreamBeginCapture 1-2 #1, cudaLaunchKernel 3-4 #2, cudaStreamEndCapture_v2 5-6 #3"
    assert lost(f"{captured}, cudaLaunchKernel 7-8 #4, cudaLaunchKernel 3-4 #5 @9") == [3, 7]


def test_a_launch_within_a_launch_is_the_same_one() -> None:
    assert lost("cudaLaunchKernelExC 1-9 #1, cudaLaunchKernel 3-4 #2, gemm 10-12 #2") == []
    assert lost("cudaLaunchKernelExC 1-9 #1, cudaLaunchKernel 3-4 #2, gemm 10-12 #1") == []
    assert lost("cudaLaunchKernelExC 1-9 #1, cudaLaunchKernel 3-4 #2") == [1]


def test_copies_without_work_are_not_lost() -> None:
    assert lost("cudaMemcpyAsync 1-2 #1, cudaMemsetAsync 3-4 #2") == []


def test_the_last_launch_of_a_thread_or_its_process_tells_what_may_be_waited_for() -> None:
    trace = rank_of(
        written(
            "cudaLaunchKernel 1-2 #1, cudaStreamSynchronize 3-4 #2, cudaLaunchKernel 5-6 #3, gemm 7-8 #3, "
            "cudaStreamSynchronize 9-10 #4, cudaLaunchKernel 11-12 #5 @9, cudaStreamSynchronize 13-14 #6"
        )
    )
    waits = np.flatnonzero([trace.names[name] == "cudaStreamSynchronize" for name in trace.events.name])
    assert Launches.of(trace).last_was_lost(waits).tolist() == [True, False, True]


def test_the_first_work_of_each_stream_of_each_device_is_known() -> None:
    works = "a 1-2 #1, b 3-4 #2, c 2-4 #3 @9, d 5-6 #4 $1, e 0-1 #5 @9"
    assert first_of_streams(rank_of(written(works)).events).tolist() == [True, False, False, True, True]
