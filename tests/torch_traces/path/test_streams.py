"""Queues are as long as calls and kernels say."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_efficiency.torch_traces.kineto.trace import GPU_WORK
from dask_efficiency.torch_traces.path.graph import EdgeKind
from dask_efficiency.torch_traces.path.streams import MAX_KERNEL_DELAY, QueueLengths, queue_lengths
from tests.torch_traces.path.programs import Program, edges_of, of_kind, rank_of, written
from tests.torch_traces.path.samples import recorded_rank

EVENTS = "cudaLaunchKernel 0-2 #1, cudaGraphLaunch 3-4 #2, a 5-9 #1, b 10-12 #2, c 10-14 #2 @20"


def rows(lengths: QueueLengths, stream: int) -> list[tuple[float, int]]:
    here = lengths.take(lengths.stream == stream)
    return list(zip((here.at / 1e3).tolist(), here.length.tolist(), strict=True))


def test_a_queue_grows_with_calls_and_shrinks_when_work_begins() -> None:
    lengths = queue_lengths(rank_of(written(EVENTS)))
    assert rows(lengths, 7) == [(0, 1), (3, 2), (5, 1), (10, 0)]
    assert rows(lengths, 20) == [(3, 1), (10, 0)]


def test_calls_count_before_work_that_begins_at_the_same_time() -> None:
    assert rows(queue_lengths(rank_of(written("a 0-9 #1, cudaLaunchKernel 0-2 #1"))), 7) == [(0, 1), (0, 0)]


def test_a_trace_without_work_has_no_queues() -> None:
    assert len(queue_lengths(rank_of(written("cudaLaunchKernel 0-2 #1")))) == 0


# As traceinsight 0.6.1 has them (get_queue_length_time_series, with the last step): rows and longest queue by stream.
@pytest.mark.parametrize(
    ("file", "expected"),
    [("alexnet", {7: (182, 18), 20: (14, 2)}), ("event_sync", {7: (10, 1)}), ("h100", {7: (122, 1)})],
)
def test_recorded_queues_are_those_that_hta_finds(file: str, expected: dict[int, tuple[int, int]]) -> None:
    lengths = queue_lengths(recorded_rank(file))
    found = {
        stream: (int((lengths.stream == stream).sum()), int(lengths.length[lengths.stream == stream].max()))
        for stream in np.unique(lengths.stream).tolist()
    }
    assert found == expected


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_series_are_a_count_by_hand(seed: int) -> None:
    program = Program(seed)
    program.train(1)
    trace = rank_of(program.events)
    events, lengths = trace.events, queue_lengths(trace)
    assert (lengths.length >= 0).all()
    works = [row for row in range(len(events)) if events.category[row] in GPU_WORK]
    assert Counter(lengths.stream.tolist()) == Counter(int(events.stream[row]) for row in works for _ in range(2))
    for at, stream, length in list(zip(lengths.at.tolist(), lengths.stream.tolist(), lengths.length, strict=True))[::7]:
        mine = [row for row in works if events.stream[row] == stream]
        asked = sum(events.start[events.call[row]] <= at for row in mine)
        begun = sum(events.start[row] <= at for row in mine)
        last = lengths.length[(lengths.stream == stream) & (lengths.at == at)][-1]
        assert last == asked - begun
        assert length >= last


LAUNCH, GAP = EdgeKind.LAUNCH_DELAY, EdgeKind.KERNEL_DELAY


def test_a_kernel_after_which_more_was_asked_for_before_it_began_is_put_down_to_its_queue() -> None:
    edges = edges_of(
        """cudaLaunchKernel 0-2 #1, gemm 10-30 #1, cudaLaunchKernel 50-52 #2, gemm 60-70 #2,
        cudaLaunchKernel 55-57 #3, gemm 75-80 #3"""
    )
    assert of_kind(edges, GAP) == {("1.", "3"): 30, ("3.", "5"): 5}


def test_a_long_gap_belongs_to_no_kernel() -> None:
    assert MAX_KERNEL_DELAY == 1_500_000
    edges = edges_of("cudaLaunchKernel 0-2 #1, gemm 10-30 #1, cudaLaunchKernel 20-22 #2, gemm 1530-1540 #2")
    assert of_kind(edges, GAP) == {}
    assert of_kind(edges, LAUNCH)["2", "3"] == 0


def test_streams_of_different_devices_are_different_streams() -> None:
    edges = edges_of("cudaLaunchKernel 0-2 #1, gemm 10-30 #1, cudaLaunchKernel 20-22 #2, gemm 33-40 #2 $1")
    assert of_kind(edges, GAP) == {}
    assert of_kind(edges, LAUNCH) == {("0", "1"): 10, ("2", "3"): 13}
