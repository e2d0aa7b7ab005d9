"""The walk tiles every window exactly, and each stretch is what it is called."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.path.kinds import KINDS, Kind
from dask_efficiency.torch_traces.kineto.trace import CALLS, GPU_WORK
from dask_efficiency.torch_traces.path import roles
from dask_efficiency.torch_traces.path.graph import EdgeKind, Edges, Nodes, Region, TorchGraph
from dask_efficiency.torch_traces.path.stretches import TorchStretches
from dask_efficiency.torch_traces.path.tiling import tile
from tests.torch_traces.path.programs import Program, call, graph_of, on_cpu, rank_of, seconds_of, work, written
from tests.torch_traces.path.random_traces import random_trace
from tests.torch_traces.path.samples import ALEX, TESTS, recorded_rank

FILES = sorted(path.name.partition(".")[0] for path in (TESTS / "data/kineto").glob("*.gz"))
CPU = (Kind.COMPUTE_CPU, Kind.COMPUTE_NONCPU, Kind.DATA_LOADING)


def wrong(graph: TorchGraph, stretches: TorchStretches) -> Iterator[str]:
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
        elif kind is Kind.UNATTRIBUTED:
            fits = stop <= events.start[row] if on_gpu[row] else events.start[row] <= start < stop <= events.stop[row]
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
    """Stretches of waiting during which what was waited for had not ended."""
    nodes, edges, events = graph.nodes, graph.edges, graph.trace.events
    sync = (edges.kind == EdgeKind.SYNC) & (nodes.at[edges.source] <= nodes.at[edges.target])
    until = np.zeros(len(events), np.int64)
    np.maximum.at(until, nodes.event[edges.target[sync]], nodes.at[edges.source[sync]])
    waiting = np.isin(stretches.kind, [KINDS.index(kind) for kind in (Kind.GPU_SYNC, Kind.KERNEL_GAP)])
    waiting &= stretches.event != MISSING
    for row, start in zip(stretches.event[waiting].tolist(), stretches.start[waiting].tolist(), strict=True):
        if start < until[row]:
            yield f"{graph.trace.names[events.name[row]]!r} still waited for work at {start}"


def correct_tiling(graph: TorchGraph) -> TorchStretches:
    """The tiling, in which nothing is wrong or unexplained."""
    stretches = tile(graph)
    assert not [*wrong(graph, stretches), *unexplained(graph, stretches)]
    return stretches


def tiling_of(graph: TorchGraph) -> str:
    """The tiling in a line: instants in microseconds, each with the kind and the name of what begins then."""
    stretches, trace = correct_tiling(graph), graph.trace
    names = ["-" if row == MISSING else trace.names[trace.events.name[row]] for row in stretches.event.tolist()]
    begin = zip(stretches.start.tolist(), stretches.kind.tolist(), names, strict=True)
    in_words = [f"{start / 1e3:g}: {KINDS[kind]} {name}" for start, kind, name in begin]
    return ", ".join([*in_words, f"{stretches.stop[-1] / 1e3:g}"])


LAUNCHED = "aten::mm 0-10, cudaLaunchKernel 5-8 #1, gemm 9-60 #1"

#: Scenes: a sentence, events as ``programs.written`` reads them, and their tiling.
SCENES = """
a thread is tiled by its innermost operators
    aten::linear 0-10, aten::t 2-4, aten::relu 13-14
    = 0: compute-cpu aten::linear, 2: compute-cpu aten::t, 4: compute-cpu aten::linear, 10: compute-cpu -,
    13: compute-cpu aten::relu, 14

a call that waits is left through the kernel to its launch
    LAUNCHED, cudaDeviceSynchronize 20-65 #2
    = 0: compute-cpu aten::mm, 5: kernel-launch gemm, 9: gpu-compute gemm, 60: gpu-sync cudaDeviceSynchronize, 65

a call that finds the GPU idle waits for nothing
    LAUNCHED, cudaDeviceSynchronize 70-80 #2
    = 0: compute-cpu aten::mm, 5: compute-cpu cudaLaunchKernel, 8: compute-cpu aten::mm, 10: compute-cpu -,
    70: gpu-sync cudaDeviceSynchronize, 80

a kernel that queued is left through the one before it
    LAUNCHED, cudaLaunchKernel 12-14 #2, ncclDevKernel_AllReduce 62-80 #2
    = 0: compute-cpu aten::mm, 5: kernel-launch gemm, 9: gpu-compute gemm, 60: kernel-gap ncclDevKernel_AllReduce,
    62: gpu-communication ncclDevKernel_AllReduce, 80

kernels that follow each other at once leave no gap, whichever is first in the file
    second 60-70 #2, cudaLaunchKernel 12-14 #2, LAUNCHED
    = 0: compute-cpu aten::mm, 5: kernel-launch gemm, 9: gpu-compute gemm, 60: gpu-compute second, 70

the kernels of a CUDA graph wait for each other on any stream
    cudaGraphLaunch 0-6 #1, a 8-20 #1, b 21-40 #1 @20, c 42-44 #1
    = 0: kernel-launch a, 8: gpu-compute a, 20: kernel-gap b, 21: gpu-compute b, 40: kernel-gap c, 42: gpu-compute c, 44

memory management is not computing, and data loading is data loading
    enumerate(DataLoader)#_ 0-20, aten::stack 5-15, cudaHostAlloc 6-8 #1, cudaMalloc 22-30 #2
    = 0: data-loading enumerate(DataLoader)#_, 5: data-loading aten::stack, 6: data-loading cudaHostAlloc,
    8: data-loading aten::stack, 15: data-loading enumerate(DataLoader)#_, 20: compute-cpu -,
    22: compute-noncpu cudaMalloc, 30

a window begins on the thread that closes it
    ProfilerStep#1 0-100, LAUNCHED, aten::add 30-50
    = 0: compute-cpu aten::mm, 5: compute-cpu cudaLaunchKernel, 8: compute-cpu aten::mm, 10: compute-cpu -,
    30: compute-cpu aten::add, 50: compute-cpu -, 100

a thread that only asks about the GPU closes nothing
    LAUNCHED, cudaEventQuery 100-101 #100 @9, cudaEventQuery 200-201 #200 @9
    = 0: compute-cpu aten::mm, 5: kernel-launch gemm, 9: gpu-compute gemm, 60: compute-cpu -, 201

work from before the window holds back what is in it
    LAUNCHED, ProfilerStep#1 30-100, cudaLaunchKernel 35-38 #2, queued 61-70 #2, cudaStreamSynchronize 40-72 #3
    = 30: gpu-compute gemm, 60: kernel-gap queued, 61: gpu-compute queued, 70: gpu-sync cudaStreamSynchronize,
    72: compute-cpu -, 100

work from before the window is waited for in it
    LAUNCHED, ProfilerStep#1 30-100, cudaStreamSynchronize 32-62 #3
    = 30: gpu-compute gemm, 60: gpu-sync cudaStreamSynchronize, 62: compute-cpu -, 100

the forward thread waits for autograd's
    aten::mm 0-10, aten::mm 90-100, MmBackward0 20-50 @5, AddmmBackward0 52-80 @5
    = 0: compute-cpu aten::mm, 10: compute-cpu -, 20: compute-cpu MmBackward0, 50: compute-cpu -,
    52: compute-cpu AddmmBackward0, 80: compute-cpu -, 90: compute-cpu aten::mm, 100

an idle thread waits for a collective on the CPU
    c10d::allreduce_ 0-10, gloo:all_reduce 5-80 @5, aten::mm 90-100
    = 0: compute-cpu c10d::allreduce_, 5: gpu-communication gloo:all_reduce, 80: compute-cpu -,
    90: compute-cpu aten::mm, 100

a busy thread waits for no collective
    c10d::allreduce_ 0-10, aten::mm 10-100, gloo:all_reduce 5-80 @5
    = 0: compute-cpu c10d::allreduce_, 10: compute-cpu aten::mm, 100

a kernel that seems to begin before its call still leads to a thread
    aten::add 0-5, aten::mm 9-20, cudaLaunchKernel 10-14 #1, gemm 8-60 #1
    = 0: compute-cpu aten::add, 5: kernel-launch gemm, 8: gpu-compute gemm, 60

a kernel that overlaps the one before it on its stream waited for it
    LAUNCHED, cudaLaunchKernel 11-13 #2, second 55-90 #2
    = 0: compute-cpu aten::mm, 5: kernel-launch gemm, 9: gpu-compute gemm, 55: gpu-compute second, 90

a copy that ended within its call is waited for although other waits were recorded
    LAUNCHED, cudaMemcpyAsync 12-70 #2, Memcpy_DtoH 61-66 #2, cudaStreamSynchronize 72-75 #3, Stream_Sync 73-74 #3
    = 0: compute-cpu aten::mm, 5: kernel-launch gemm, 9: gpu-compute gemm, 60: kernel-gap Memcpy DtoH,
    61: gpu-compute Memcpy DtoH, 66: gpu-sync cudaMemcpyAsync, 70: compute-cpu -, 72: gpu-sync cudaStreamSynchronize, 75

a new thread waited for what happened before it
    aten::mm 0-40, aten::add 20-60 @5, aten::t 10-15
    = 0: compute-cpu aten::mm, 10: compute-cpu aten::t, 15: compute-cpu aten::mm, 20: compute-cpu aten::add, 60

calls that hold one lock wait for each other, where each launches a kernel that ends before
    aten::mm 0-30, cudaLaunchKernel 5-28 #1, a 16-17 #1,
    aten::add 0-20 @5, cudaLaunchKernel 4-15 #2 @5, b 18-19 #2
    = 0: compute-cpu aten::add, 4: compute-cpu cudaLaunchKernel, 15: compute-cpu cudaLaunchKernel,
    28: compute-cpu aten::mm, 30

a window of nothing is unattributed
    ProfilerStep#1 0-10
    = 0: unattributed -, 10
"""


@pytest.mark.parametrize("scene", SCENES.strip().split("\n\n"), ids=lambda scene: scene.partition("\n")[0])
def test_each_instant_is_left_through_the_event_that_it_waited_for(scene: str) -> None:
    events, tiling = " ".join(scene.partition("\n")[2].split()).split(" = ")
    window = "ProfilerStep" if "ProfilerStep" in events else ""
    assert tiling_of(graph_of(rank_of(written(events.replace("LAUNCHED", LAUNCHED))), window)) == tiling


def test_a_kernel_late_on_an_idle_stream_waited_for_another_stream() -> None:
    graph = graph_of(rank_of(written(f"{LAUNCHED}, cudaLaunchKernel 8-9 #2, late 64-70 #2 @20")))
    assert tiling_of(graph).endswith("9: gpu-compute gemm, 60: kernel-gap late, 64: gpu-compute late, 70")
    assert tile(graph).inferred.tolist() == [False, False, True, True, False]


def test_patterns_of_data_loading_are_added_to_those_of_torchs_loaders() -> None:
    trace = rank_of(written("enumerate(DataLoader)#_ 0-20, read_file 20-30, aten::mm 30-40"))
    graph = graph_of(trace, data_loading=("read_",))
    assert tiling_of(graph).endswith("20: data-loading read_file, 30: compute-cpu aten::mm, 40")


@pytest.mark.parametrize("name", FILES)
def test_recorded_traces_are_tiled(name: str) -> None:
    graph = graph_of(recorded_rank(name))
    correct_tiling(graph)
    seconds = seconds_of(graph)
    assert Kind.UNATTRIBUTED not in seconds
    assert sum(seconds.values()) == pytest.approx((graph.region.stop - graph.region.start) / 1e9)


# By hand from the file: the last 884 us of the forward pass are one cudaDeviceSynchronize, and kernels run without a
# pause but for gaps of 1 to 4 us from 32.28 to 36.08 ms, when the pass ends at 36.36 ms. The path's first one waits on
# stream 20 for 30 us, while another one runs on stream 7.
def test_alexnets_forward_pass_waits_for_the_gpu_at_its_end_and_for_memory_before() -> None:
    graph = graph_of(recorded_rank("alexnet"), ALEX, 1)
    milliseconds = {kind: seconds * 1e3 for kind, seconds in seconds_of(graph).items()}
    assert milliseconds["compute-noncpu"] == pytest.approx(31.525)
    assert milliseconds["gpu-compute"] == pytest.approx(3.742)
    assert sum(milliseconds.values()) == pytest.approx(36.356)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_traces_are_tiled_in_all_their_steps(seed: int) -> None:
    trace = rank_of(random_trace(seed)["traceEvents"])
    for annotation in ("", "ProfilerStep"):
        graph = graph_of(trace, annotation)
        again = tile(graph).columns()
        assert all(np.array_equal(column, again[name]) for name, column in correct_tiling(graph).columns().items())


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_programs_are_tiled(seed: int) -> None:
    program = Program(seed)
    program.train(3)
    for recorded in ([], program.syncs):
        correct_tiling(graph_of(rank_of([*program.events, *recorded]), "ProfilerStep", 1))


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
    graph = graph_of(rank_of(written(f"{LAUNCHED}, cudaDeviceSynchronize 20-65 #2")))
    stretches = tile(graph)
    if broken == "a gap":
        stretches = stretches.take(np.arange(len(stretches)) != 1)
    elif broken == "an end too early":
        stretches.stop[-1] -= 1
    else:
        stretches.kind[0] = KINDS.index(Kind.GPU_COMPUTE)
    assert list(wrong(graph, stretches))
