"""Costs of memory and data by name, on the path and off it."""

import pytest

from dask_efficiency.runs.path.kinds import Kind
from dask_efficiency.torch_traces.kineto.trace import RankTrace
from dask_efficiency.torch_traces.path.stalls import stalls
from dask_efficiency.torch_traces.path.tiling import tile
from tests.torch_traces.path.programs import graph_of, rank_of, seconds_of, written
from tests.torch_traces.path.samples import recorded_rank

NEXT = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
Sums = dict[str, tuple[int, float, float]]


def found(trace: RankTrace, annotation: str = "") -> Sums:
    """By name: count, microseconds in all, and those on the path."""
    graph = graph_of(trace, annotation)
    rows = stalls([(graph, tile(graph))]).items()
    return {name: (count, pytest.approx(total * 1e6), pytest.approx(path * 1e6)) for name, (count, total, path) in rows}


def of(events: str, annotation: str = "") -> Sums:
    return found(rank_of(written(events)), annotation)


def test_calls_that_manage_memory_are_counted_on_and_off_the_path() -> None:
    during_a_kernel = "cudaLaunchKernel 0-2 #1, gemm 3-80 #1, cudaMalloc 10-20 #2, cudaDeviceSynchronize 70-82 #3"
    after = "cudaMalloc 85-90 #4, cudaFree 91-94 #5, cudaMalloc 95-96 #6"
    assert of(f"{during_a_kernel}, {after}") == {"cudaMalloc": (3, 16, 6), "cudaFree": (1, 3, 3)}


def test_data_loading_counts_once_and_with_all_events_in_it() -> None:
    on_main = f"{NEXT} 0-20, {NEXT} 5-10, aten::stack 6-9, cudaHostAlloc 12-15 #1, aten::mm 30-40"
    assert of(f"{on_main}, {NEXT} 0-35 @5") == {NEXT: (2, 55, 20), "cudaHostAlloc": (1, 3, 0)}


def test_an_event_that_began_before_the_window_counts_from_its_start() -> None:
    assert of(f"{NEXT} 0-30, ProfilerStep#1 10-50, aten::mm 40-45", "ProfilerStep") == {NEXT: (1, 20, 20)}


# AlexNet's whole trace has 24 cudaMalloc and 15 cudaFree, of which the first two, of 6.0 and 0.5 s, set libraries up.
def test_recorded_traces_show_their_stalls() -> None:
    trace = recorded_rank("alexnet")
    counts = {name: row[0] for name, row in found(trace).items()}
    assert counts == {"cudaMalloc": 24, "cudaFree": 13, "cudaHostAlloc": 1}
    graph = graph_of(trace)
    path = sum(stall.path_seconds for stall in stalls([(graph, tile(graph))]).values())
    assert path == pytest.approx(seconds_of(graph)[Kind.COMPUTE_NONCPU])
