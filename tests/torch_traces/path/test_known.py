"""Nothing is said about a GPU of which the trace does not show what it did."""

import numpy as np
import pytest

from dask_efficiency.torch_traces.path.known import Launches, first_of_streams
from tests.torch_traces.path.programs import graph_of, rank_of, written
from tests.torch_traces.path.public import NAMES, kinds_of_findings, path_of, shares
from tests.torch_traces.path.test_tiling import tiling_of, unexplained, wrong


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


@pytest.mark.parametrize("name", NAMES)
def test_public_traces_are_tiled(name: str) -> None:
    path = path_of(name)
    for graph in path.graphs:
        stretches = path.stretches.take(path.stretches.rank == path.trace.numbers.index(graph.trace.rank))
        if len(path.graphs) == 1:
            assert not [*wrong(graph, stretches), *unexplained(graph, stretches)]


@pytest.mark.parametrize("name", ["02-launches-without-kernels", "02-cuda-graph-without-kernels"])
def test_a_wait_after_launches_without_work_says_nothing_of_the_gpu(name: str) -> None:
    path = path_of(name)
    assert shares(path)["unattributed"] == pytest.approx(94, abs=0.5)
    assert path.headline.endswith("94 % of the window is waiting for work of the GPU that was not recorded")
    assert kinds_of_findings(path) == ["torch/not-recorded", "torch/cpu-unknown"]
    assert all(not one.advice and one.saves_seconds is None for one in path.findings)
    assert not any("idle" in str(one.lines) for one in path.findings)


def test_launches_without_work_are_counted() -> None:
    path = path_of("02-launches-without-kernels")
    assert path.findings[0].where == "94 % of the window; 20 of 20 launches have no work in the trace"
    assert "20 of 20 launches have no work in the trace" in str(path)


def test_a_gap_after_a_launch_without_work_is_unattributed() -> None:
    first = "cudaLaunchKernel 0-2 #1, gemm 5-20 #1"
    later = "cudaGraphLaunch 6-8 #2, cudaLaunchKernel 10-12 #3, small 90-95 #3, cudaDeviceSynchronize 14-97 #4"
    assert tiling_of(graph_of(rank_of(written(f"{first}, {later}")))) == (
        "0: kernel-launch gemm, 5: gpu-compute gemm, 20: unattributed small, 90: gpu-compute small, "
        "95: gpu-sync cudaDeviceSynchronize, 97"
    )


def test_a_gap_while_another_stream_works_is_that_work() -> None:
    path = path_of("04-gap-while-another-stream-works")
    assert shares(path)["gpu-communication"] == pytest.approx(85, abs=0.5)
    assert shares(path)["kernel-gap"] < 0.1
    assert kinds_of_findings(path) == ["torch/collectives", "torch/gpu-compute"]


def test_of_the_works_that_ran_meanwhile_the_last_to_end_has_the_time() -> None:
    calls = "cudaLaunchKernel 0-2 #1, cudaLaunchKernel 2-4 #2, cudaLaunchKernel 4-6 #3, cudaLaunchKernel 6-8 #4"
    works = "a 5-20 #1, b 10-50 #2 @8, c 15-40 #3 @9, d 70-90 #4"
    assert tiling_of(graph_of(rank_of(written(f"{calls}, {works}")))).endswith(
        "5: gpu-compute a, 20: gpu-compute b, 50: kernel-gap d, 70: gpu-compute d, 90"
    )


def test_work_of_another_device_explains_no_gap() -> None:
    calls = "cudaLaunchKernel 0-2 #1, cudaLaunchKernel 2-4 #2, cudaLaunchKernel 6-8 #4"
    tiling = tiling_of(graph_of(rank_of(written(f"{calls}, a 5-20 #1, b 10-50 #2 @8 $1, d 60-90 #4"))))
    assert tiling.endswith("5: gpu-compute a, 20: kernel-gap d, 60: gpu-compute d, 90")


def test_work_from_before_the_profile_leaves_the_first_launchs_delay_unattributed() -> None:
    path = path_of("05-gpu-busy-before-the-profile")
    assert shares(path)["unattributed"] == pytest.approx(89, abs=0.5)
    assert path.findings[0].where == "89 % of the window; it may be from before the profile, or of a CUDA graph"
    assert not any("idle" in str(one.lines) for one in path.findings)


def test_a_gap_too_long_for_a_gpus_own_is_unattributed() -> None:
    before = "cudaLaunchKernel 0-2 #1, gemm 5-20 #1, cudaGraphLaunch 6-8 #2"
    for start, kind in ((1500, "kernel-gap"), (1520, "unattributed")):
        tiling = tiling_of(graph_of(rank_of(written(f"{before}, Memset {start}-1600 #2"))))
        assert tiling.endswith(f"20: {kind} Memset, {start}: gpu-compute Memset, 1600")


def test_a_long_wait_before_anything_was_asked_for_is_unattributed() -> None:
    waited = "cudaDeviceSynchronize 0-{} #9, cudaLaunchKernel 1000-1002 #1, gemm 1005-1010 #1"
    for until, kind in ((900, "unattributed"), (40, "gpu-sync")):
        tiling = tiling_of(graph_of(rank_of(written(waited.format(until)))))
        assert tiling.startswith(f"0: {kind} cudaDeviceSynchronize")


def test_freeing_memory_that_goes_on_after_the_work_is_memory() -> None:
    path = path_of("06-free-goes-on-after-the-work")
    assert shares(path)["compute-noncpu"] == pytest.approx(88, abs=0.5)
    assert kinds_of_findings(path)[0] == "torch/memory"


def test_first_calls_set_libraries_up() -> None:
    path = path_of("07-first-cudaFree")
    assert path.headline.endswith("97 % of the window is setting up the GPU and its libraries")
    assert kinds_of_findings(path) == ["torch/set-up"]
    assert path.findings[0].saves_seconds is None
    assert not path.stalls()


def test_time_in_categories_that_are_not_known_is_not_the_cpus() -> None:
    path = path_of("08-ascend-trace-view")
    assert path.headline == "10 ms; 92 % of the window is in events of kinds that are not known here"
    assert kinds_of_findings(path) == ["torch/unknown-events"]
    assert "10 events of kinds that are not known here (no category, in Ascend Hardware): what" in " ".join(
        str(path).split()
    )


def test_a_trace_of_an_xpu_is_as_one_of_cuda() -> None:
    path, control = path_of("08-xpu"), path_of("08-xpu-control")
    assert path.seconds() == control.seconds()
    assert path.headline == control.headline == "3 ms; 83 % of the window is computing on the GPU"


def test_ranks_in_one_file_have_the_path_of_two_files() -> None:
    merged, apart = path_of("10-ranks-merged-in-one-file"), path_of("10-rank0", "10-rank1")
    assert merged.seconds() == apart.seconds()
    assert merged.headline == apart.headline
    assert merged.ranks().waits.columns().keys() == apart.ranks().waits.columns().keys()


def test_a_kernel_without_an_instant_makes_no_window_of_years() -> None:
    path = path_of("12-kernels-at-instant-zero")
    assert path.window_seconds == pytest.approx(0.003)
    assert "4 of 10 launches have no work in the trace" in str(path)
    assert "work on a GPU hours away from the calls: 4" in " ".join(str(path).split())
