"""The walk tiles every window exactly, and each stretch is what it is called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.path.kinds import KINDS, Kind
from dask_efficiency.torch_traces.kineto.load import load_kineto
from dask_efficiency.torch_traces.kineto.trace import CALLS, GPU_WORK, RankTrace
from dask_efficiency.torch_traces.path import roles
from dask_efficiency.torch_traces.path.build import build_graph
from dask_efficiency.torch_traces.path.graph import EdgeKind, Edges, Nodes, Region, TorchGraph
from dask_efficiency.torch_traces.path.region import find_region
from dask_efficiency.torch_traces.path.stretches import TorchStretches
from dask_efficiency.torch_traces.path.tiling import tile
from tests.torch_traces.path.programs import Event, Program, call, on_cpu, rank_of, work
from tests.torch_traces.path.random_traces import random_trace

FILES = sorted((Path(__file__).parents[2] / "data" / "kineto").glob("*.gz"))
CPU = (Kind.COMPUTE_CPU, Kind.COMPUTE_NONCPU, Kind.DATA_LOADING)

Row = tuple[str, str | None, float, float]


def graph_of(trace: RankTrace, annotation: str = "", instance: int | None = None) -> TorchGraph:
    return build_graph(trace, find_region(trace, annotation, instance))


def wrong(graph: TorchGraph, stretches: TorchStretches) -> Iterator[str]:
    """Errors of a tiling."""
    region, events = graph.region, graph.trace.events
    if region.start < region.stop and (stretches.start[0] != region.start or stretches.stop[-1] != region.stop):
        yield "it does not cover the window"
    if np.any(stretches.start[1:] != stretches.stop[:-1]) or np.any(stretches.start >= stretches.stop):
        yield "there is a gap, an overlap, or a stretch that takes no time"
    if (stretches.stop - stretches.start).sum() != region.stop - region.start:
        yield "its sum is not the window"
    on_gpu, communicates = np.isin(events.category, GPU_WORK), roles.own_kinds(graph.trace)
    for code, start, stop, row in zip(
        *(column.tolist() for column in (stretches.kind, stretches.start, stretches.stop, stretches.event)), strict=True
    ):
        kind = KINDS[code]
        if row == MISSING:
            fits = kind in (Kind.COMPUTE_CPU, Kind.UNATTRIBUTED)
        elif kind in (Kind.GPU_COMPUTE, Kind.GPU_COMMUNICATION):
            fits = KINDS[communicates[row]] is kind and events.start[row] <= start < stop <= events.stop[row]
        elif kind in (Kind.KERNEL_LAUNCH, Kind.KERNEL_GAP):
            fits = bool(on_gpu[row]) and stop <= events.start[row]
        elif kind is Kind.GPU_SYNC:
            fits = events.category[row] in CALLS and events.start[row] <= start < stop <= events.stop[row]
        else:
            fits = kind in CPU and not on_gpu[row] and events.start[row] <= start < stop <= events.stop[row]
        if not fits:
            yield f"{kind} is not what {graph.trace.names[events.name[row]]!r} does from {start} to {stop}"


def unexplained(graph: TorchGraph, stretches: TorchStretches) -> Iterator[str]:
    """TorchStretches of waiting during which what was waited for had not ended."""
    nodes, edges, events = graph.nodes, graph.edges, graph.trace.events
    sync = (edges.kind == EdgeKind.SYNC) & (nodes.at[edges.source] <= nodes.at[edges.target])
    until = np.zeros(len(events), np.int64)
    np.maximum.at(until, nodes.event[edges.target[sync]], nodes.at[edges.source[sync]])
    waiting = np.isin(stretches.kind, [KINDS.index(kind) for kind in (Kind.GPU_SYNC, Kind.KERNEL_GAP)])
    waiting &= stretches.event != MISSING
    for row, start in zip(stretches.event[waiting].tolist(), stretches.start[waiting].tolist(), strict=True):
        if start < until[row]:
            yield f"{graph.trace.names[events.name[row]]!r} still waited for work at {start}"


def rows_of(graph: TorchGraph) -> list[Row]:
    """Kind, name, start and stop in microseconds."""
    stretches, trace = tile(graph), graph.trace
    assert not list(wrong(graph, stretches))
    return [
        (str(KINDS[kind]), None if event == MISSING else trace.names[trace.events.name[event]], start / 1e3, stop / 1e3)
        for kind, event, start, stop in zip(
            stretches.kind.tolist(),
            stretches.event.tolist(),
            stretches.start.tolist(),
            stretches.stop.tolist(),
            strict=True,
        )
    ]


def tiled(events: Iterable[Event], annotation: str = "", instance: int | None = None) -> list[Row]:
    return rows_of(graph_of(rank_of(events), annotation, instance))


def test_a_thread_is_tiled_by_its_innermost_operators() -> None:
    outer = on_cpu("aten::linear", 0, 10)
    assert tiled([outer, on_cpu("aten::t", 2, 4), on_cpu("aten::relu", 13, 14)]) == [
        ("compute-cpu", "aten::linear", 0, 2),
        ("compute-cpu", "aten::t", 2, 4),
        ("compute-cpu", "aten::linear", 4, 10),
        ("compute-cpu", None, 10, 13),
        ("compute-cpu", "aten::relu", 13, 14),
    ]


LAUNCHED = [on_cpu("aten::mm", 0, 10), call("cudaLaunchKernel", 5, 8, 1), work("gemm", 9, 60, 1)]


def test_a_call_that_waits_is_left_through_the_kernel_to_its_launch() -> None:
    assert tiled([*LAUNCHED, call("cudaDeviceSynchronize", 20, 65, 2)]) == [
        ("compute-cpu", "aten::mm", 0, 5),
        ("kernel-launch", "gemm", 5, 9),
        ("gpu-compute", "gemm", 9, 60),
        ("gpu-sync", "cudaDeviceSynchronize", 60, 65),
    ]


def test_a_call_that_finds_the_gpu_idle_waits_for_nothing() -> None:
    assert tiled([*LAUNCHED, call("cudaDeviceSynchronize", 70, 80, 2)])[-2:] == [
        ("compute-cpu", None, 10, 70),
        ("gpu-sync", "cudaDeviceSynchronize", 70, 80),
    ]


def test_a_kernel_that_queued_is_left_through_the_one_before_it() -> None:
    queued = [call("cudaLaunchKernel", 12, 14, 2), work("ncclDevKernel_AllReduce", 62, 80, 2)]
    assert tiled([*LAUNCHED, *queued]) == [
        ("compute-cpu", "aten::mm", 0, 5),
        ("kernel-launch", "gemm", 5, 9),
        ("gpu-compute", "gemm", 9, 60),
        ("kernel-gap", "ncclDevKernel_AllReduce", 60, 62),
        ("gpu-communication", "ncclDevKernel_AllReduce", 62, 80),
    ]


def test_kernels_that_follow_each_other_at_once_leave_no_gap() -> None:
    # The file has the second kernel first, so that rows do not say what comes first.
    second = [work("second", 60, 70, 2), call("cudaLaunchKernel", 12, 14, 2)]
    assert tiled([*second, *LAUNCHED])[-2:] == [("gpu-compute", "gemm", 9, 60), ("gpu-compute", "second", 60, 70)]


def test_a_kernel_late_on_an_idle_stream_waited_for_another_stream() -> None:
    beside = [call("cudaLaunchKernel", 8, 9, 2), work("beside", 64, 70, 2, stream=20)]
    events = [*LAUNCHED, *beside]
    assert tiled(events)[-3:] == [
        ("gpu-compute", "gemm", 9, 60),
        ("kernel-gap", "beside", 60, 64),
        ("gpu-compute", "beside", 64, 70),
    ]
    stretches = tile(graph_of(rank_of(events)))
    assert stretches.inferred.tolist() == [False, False, True, True, False]


def test_the_kernels_of_a_cuda_graph_wait_for_each_other_on_any_stream() -> None:
    launch = call("cudaGraphLaunch", 0, 6, 1)
    kernels = [work("a", 8, 20, 1), work("b", 21, 40, 1, stream=20), work("c", 42, 44, 1)]
    assert [row[:2] for row in tiled([launch, *kernels])] == [
        ("kernel-launch", "a"),
        ("gpu-compute", "a"),
        ("kernel-gap", "b"),
        ("gpu-compute", "b"),
        ("kernel-gap", "c"),
        ("gpu-compute", "c"),
    ]


def test_patterns_of_data_loading_are_added_to_those_of_torchs_loaders() -> None:
    loading = on_cpu("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 20, cat="user_annotation")
    trace = rank_of([loading, on_cpu("read_file", 20, 30), on_cpu("aten::mm", 30, 40)])
    graph = build_graph(trace, find_region(trace), data_loading=("read_",))
    assert [row[0] for row in rows_of(graph)] == ["data-loading", "data-loading", "compute-cpu"]


def test_memory_management_is_not_computing_and_data_loading_is_data_loading() -> None:
    loading = on_cpu("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 20, cat="user_annotation")
    inside = [on_cpu("aten::stack", 5, 15), call("cudaHostAlloc", 6, 8, 1)]
    assert tiled([loading, *inside, call("cudaMalloc", 22, 30, 2)]) == [
        ("data-loading", loading["name"], 0, 5),
        ("data-loading", "aten::stack", 5, 6),
        ("data-loading", "cudaHostAlloc", 6, 8),
        ("data-loading", "aten::stack", 8, 15),
        ("data-loading", loading["name"], 15, 20),
        ("compute-cpu", None, 20, 22),
        ("compute-noncpu", "cudaMalloc", 22, 30),
    ]


def test_a_window_begins_on_the_thread_that_closes_it() -> None:
    step = on_cpu("ProfilerStep#1", 0, 100, cat="user_annotation")
    assert tiled([step, *LAUNCHED, on_cpu("aten::add", 30, 50)], "ProfilerStep") == [
        ("compute-cpu", "aten::mm", 0, 5),
        ("compute-cpu", "cudaLaunchKernel", 5, 8),
        ("compute-cpu", "aten::mm", 8, 10),
        ("compute-cpu", None, 10, 30),
        ("compute-cpu", "aten::add", 30, 50),
        ("compute-cpu", None, 50, 100),
    ]


def test_a_thread_that_only_asks_about_the_gpu_closes_nothing() -> None:
    queries = [call("cudaEventQuery", at, at + 1, at, thread=9) for at in (100, 200)]
    assert tiled([*LAUNCHED, *queries])[2:4] == [("gpu-compute", "gemm", 9, 60), ("compute-cpu", None, 60, 201)]


def test_work_from_before_the_window_holds_back_what_is_in_it() -> None:
    step = on_cpu("ProfilerStep#1", 30, 100, cat="user_annotation")
    queued = [call("cudaLaunchKernel", 35, 38, 2), work("queued", 61, 70, 2)]
    waits = call("cudaStreamSynchronize", 40, 72, 3)
    assert tiled([*LAUNCHED, step, *queued, waits], "ProfilerStep") == [
        ("gpu-compute", "gemm", 30, 60),
        ("kernel-gap", "queued", 60, 61),
        ("gpu-compute", "queued", 61, 70),
        ("gpu-sync", "cudaStreamSynchronize", 70, 72),
        ("compute-cpu", None, 72, 100),
    ]
    early = call("cudaStreamSynchronize", 32, 62, 3)
    assert tiled([*LAUNCHED, step, early], "ProfilerStep")[:2] == [
        ("gpu-compute", "gemm", 30, 60),
        ("gpu-sync", "cudaStreamSynchronize", 60, 62),
    ]


def test_the_forward_thread_waits_for_autograds() -> None:
    forward = [on_cpu("aten::mm", 0, 10), on_cpu("aten::mm", 90, 100)]
    backward = [on_cpu("MmBackward0", 20, 50, thread=5), on_cpu("AddmmBackward0", 52, 80, thread=5)]
    assert tiled([*forward, *backward]) == [
        ("compute-cpu", "aten::mm", 0, 10),
        ("compute-cpu", None, 10, 20),
        ("compute-cpu", "MmBackward0", 20, 50),
        ("compute-cpu", None, 50, 52),
        ("compute-cpu", "AddmmBackward0", 52, 80),
        ("compute-cpu", None, 80, 90),
        ("compute-cpu", "aten::mm", 90, 100),
    ]


def test_an_idle_thread_waits_for_a_collective_on_the_cpu() -> None:
    asked = on_cpu("c10d::allreduce_", 0, 10)
    collective = on_cpu("gloo:all_reduce", 5, 80, cat="user_annotation", thread=5)
    assert tiled([asked, collective, on_cpu("aten::mm", 90, 100)]) == [
        ("compute-cpu", "c10d::allreduce_", 0, 5),
        ("gpu-communication", "gloo:all_reduce", 5, 80),
        ("compute-cpu", None, 80, 90),
        ("compute-cpu", "aten::mm", 90, 100),
    ]


def test_a_busy_thread_waits_for_no_collective() -> None:
    collective = on_cpu("gloo:all_reduce", 5, 80, cat="user_annotation", thread=5)
    assert {row[1] for row in tiled([on_cpu("c10d::allreduce_", 0, 10), on_cpu("aten::mm", 10, 100), collective])} == {
        "c10d::allreduce_",
        "aten::mm",
    }


def test_a_kernel_that_seems_to_begin_before_its_call_still_leads_to_a_thread() -> None:
    events = [on_cpu("aten::add", 0, 5), on_cpu("aten::mm", 9, 20), call("cudaLaunchKernel", 10, 14, 1)]
    assert tiled([*events, work("gemm", 8, 60, 1)]) == [
        ("compute-cpu", "aten::add", 0, 5),
        ("kernel-launch", "gemm", 5, 8),
        ("gpu-compute", "gemm", 8, 60),
    ]


def test_a_kernel_that_overlaps_the_one_before_it_on_its_stream_waited_for_it() -> None:
    second = [call("cudaLaunchKernel", 11, 13, 2), work("second", 55, 90, 2)]
    assert tiled([*LAUNCHED, *second])[-2:] == [("gpu-compute", "gemm", 9, 55), ("gpu-compute", "second", 55, 90)]


def test_a_copy_that_ended_within_its_call_is_waited_for_although_other_waits_were_recorded() -> None:
    copy = [call("cudaMemcpyAsync", 12, 70, 2), work("Memcpy DtoH (Device -> Pageable)", 61, 66, 2, cat="gpu_memcpy")]
    recorded = [call("cudaStreamSynchronize", 72, 75, 3), work("Stream Sync", 73, 74, 3, cat="cuda_sync")]
    assert tiled([*LAUNCHED, *copy, *recorded])[2:-2] == [
        ("gpu-compute", "gemm", 9, 60),
        ("kernel-gap", copy[1]["name"], 60, 61),
        ("gpu-compute", copy[1]["name"], 61, 66),
        ("gpu-sync", "cudaMemcpyAsync", 66, 70),
    ]


def test_a_new_thread_waited_for_what_happened_before_it() -> None:
    events = [on_cpu("aten::mm", 0, 40), on_cpu("aten::add", 20, 60, thread=5), on_cpu("aten::t", 10, 15)]
    assert tiled(events) == [
        ("compute-cpu", "aten::mm", 0, 10),
        ("compute-cpu", "aten::t", 10, 15),
        ("compute-cpu", "aten::mm", 15, 20),
        ("compute-cpu", "aten::add", 20, 60),
    ]


def test_calls_that_hold_one_lock_wait_for_each_other() -> None:
    one = [on_cpu("aten::mm", 0, 30), call("cudaLaunchKernel", 5, 28, 1)]
    other = [on_cpu("aten::add", 0, 20, thread=5), call("cudaLaunchKernel", 4, 15, 2, thread=5)]
    # As runtime calls need work to count, each launches a kernel that ends before.
    kernels = [work("a", 16, 17, 1), work("b", 18, 19, 2)]
    rows = tiled([*one, *other, *kernels])
    assert rows[-2:] == [("compute-cpu", "cudaLaunchKernel", 15, 28), ("compute-cpu", "aten::mm", 28, 30)]
    assert rows[-3] == ("compute-cpu", "cudaLaunchKernel", 4, 15)


def test_a_window_of_nothing_is_unattributed() -> None:
    step = on_cpu("ProfilerStep#1", 0, 10, cat="user_annotation")
    assert tiled([step], "ProfilerStep") == [("unattributed", None, 0, 10)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.partition(".")[0])
def test_recorded_traces_are_tiled(path: Path) -> None:
    trace = load_kineto(str(path)).ranks[0]
    graph = graph_of(trace)
    stretches = tile(graph)
    assert not list(wrong(graph, stretches))
    assert not list(unexplained(graph, stretches))
    seconds = stretches.seconds()
    assert Kind.UNATTRIBUTED not in seconds
    assert sum(seconds.values()) == pytest.approx((graph.region.stop - graph.region.start) / 1e9)


# By hand from the file: the last 884 us of the forward pass are one cudaDeviceSynchronize, and kernels run without a
# pause but for gaps of 1 to 4 us from 32.31 to 36.08 ms, when the pass ends at 36.36 ms.
def test_alexnets_forward_pass_waits_for_the_gpu_at_its_end_and_for_memory_before() -> None:
    trace = load_kineto(str(FILES[0].with_name("alexnet.json.gz"))).ranks[0]
    graph = graph_of(trace, "[param|pytorch.model.alex_net|0|0|0|measure|forward]", 1)
    milliseconds = {str(kind): seconds * 1e3 for kind, seconds in tile(graph).seconds().items()}
    assert milliseconds["compute-noncpu"] == pytest.approx(31.525)
    assert milliseconds["gpu-compute"] == pytest.approx(3.712)
    assert sum(milliseconds.values()) == pytest.approx(36.356)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_traces_are_tiled_in_all_their_steps(seed: int) -> None:
    trace = rank_of(random_trace(seed)["traceEvents"])
    for annotation in ("", "ProfilerStep"):
        graph = graph_of(trace, annotation)
        stretches = tile(graph)
        assert not list(wrong(graph, stretches))
        assert not list(unexplained(graph, stretches))
        again = tile(graph)
        assert all(np.array_equal(column, again.columns()[name]) for name, column in stretches.columns().items())


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_programs_are_tiled(seed: int) -> None:
    program = Program(seed)
    program.train(3)
    for recorded in ([], program.syncs):
        trace = rank_of([*program.events, *recorded])
        graph = graph_of(trace, "ProfilerStep", 1)
        stretches = tile(graph)
        assert not list(wrong(graph, stretches))
        assert not list(unexplained(graph, stretches))


@st.composite
def graphs(draw: st.DrawFn) -> TorchGraph:
    """Graphs without sense: events as they come, and edges between any nodes."""
    times = st.integers(0, 30)
    events = []
    for _ in range(draw(st.integers(1, 12))):
        start, stop = sorted((draw(times), draw(times)))
        kind = draw(st.sampled_from(("op", "call", "work", "gloo")))
        thread = draw(st.integers(1, 3))
        if kind == "op":
            events.append(on_cpu(draw(st.sampled_from(("aten::mm", "MmBackward0"))), start, stop, thread=thread))
        elif kind == "gloo":
            events.append(on_cpu("gloo:barrier", start, stop, cat="user_annotation", thread=thread))
        elif kind == "call":
            name = draw(st.sampled_from(("cudaLaunchKernel", "cudaDeviceSynchronize", "cudaMalloc")))
            events.append(call(name, start, stop, draw(st.integers(1, 6)), thread=thread))
        else:
            events.append(work("gemm", start, stop, draw(st.integers(1, 6)), stream=thread))
    trace = rank_of(events)
    columns = trace.events
    rows = np.flatnonzero([draw(st.booleans()) for _ in range(len(columns))]).astype(np.int32)
    at = np.stack([columns.start[rows], columns.stop[rows]], axis=1).ravel()
    order = np.argsort(at, kind="stable")
    nodes = Nodes(at[order], rows[order // 2], order % 2 == 0)
    ends = st.integers(0, max(len(nodes) - 1, 0))
    pairs = draw(st.lists(st.tuples(ends, ends, st.sampled_from(tuple(EdgeKind))), max_size=20)) if len(nodes) else []
    edges = Edges.from_columns(
        {name: np.array([pair[i] for pair in pairs], np.int32) for i, name in enumerate(("source", "target"))}
        | {"kind": np.array([pair[2] for pair in pairs], np.int8)}
    )
    start, stop = sorted((draw(times), draw(times)))
    return TorchGraph(trace, Region(start * 1000, stop * 1000, rows), nodes, edges)


@settings(max_examples=150, deadline=None)
@given(graph=graphs())
def test_graphs_without_sense_are_tiled(graph: TorchGraph) -> None:
    found = [error for error in wrong(graph, tile(graph)) if "is not what" not in error]
    assert not found


@pytest.mark.parametrize(
    "broken", ["a gap", "an end too early", "a kind that does not fit"], ids=lambda text: text.replace(" ", "-")
)
def test_a_tiling_that_is_broken_is_found_out(broken: str) -> None:
    graph = graph_of(rank_of([*LAUNCHED, call("cudaDeviceSynchronize", 20, 65, 2)]))
    stretches = tile(graph)
    if broken == "a gap":
        stretches = stretches.take(np.arange(len(stretches)) != 1)
    elif broken == "an end too early":
        stretches.stop[-1] -= 1
    else:
        stretches.kind[0] = KINDS.index(Kind.GPU_COMPUTE)
    assert list(wrong(graph, stretches))
