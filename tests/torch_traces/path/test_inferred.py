"""Without synchronisation events the same is found as with them."""

from dataclasses import replace

import numpy as np
import pytest

from dask_efficiency.torch_traces.kineto.trace import Category, RankTrace
from dask_efficiency.torch_traces.path.graph import EdgeKind, TorchGraph
from dask_efficiency.torch_traces.path.longest import longest_path, path_edges, summary
from tests.torch_traces.path.programs import Event, Program, call, graph_of, rank_of, seconds_of, work, written
from tests.torch_traces.path.samples import ALEX, recorded_rank

#: How far a share may be from that of the same trace with synchronisation events.
MAX_MOVED = 0.02


def without_syncs(trace: RankTrace) -> RankTrace:
    category = trace.events.category
    category = np.where(category == Category.SYNC, Category.OTHER, category).astype(np.int8)
    return replace(trace, events=replace(trace.events, category=category))


def shares(graph: TorchGraph) -> dict[str, float]:
    """Figures of the longest path and of the tiling."""
    seconds = seconds_of(graph)
    longest = summary(graph, path_edges(graph, longest_path(graph)))
    return longest | {kind: part / sum(seconds.values()) for kind, part in seconds.items()}


def moved(recorded: TorchGraph, inferred: TorchGraph) -> float:
    """The most that a share is off."""
    assert not recorded.edges.inferred.any()
    one, other = shares(recorded), shares(inferred)
    return max(abs(one.get(name, 0) - other.get(name, 0)) for name in one | other)


def waited(events: list[Event]) -> set[tuple[str, str]]:
    """Names of work, and of what waited for it as was inferred."""
    graph = graph_of(rank_of(events))
    edges, nodes, trace = graph.edges, graph.nodes, graph.trace
    assert (edges.kind[edges.inferred] == EdgeKind.SYNC).all()
    rows = [nodes.event[edges.source[edges.inferred]], nodes.event[edges.target[edges.inferred]]]
    work, waiter = ([trace.names[name] for name in trace.events.name[row]] for row in rows)
    return set(zip(work, waiter, strict=True))


@pytest.mark.parametrize(
    ("file", "annotation", "instance"),
    [("alexnet", "", None), ("alexnet", ALEX, 1), ("event_sync", "ProfilerStep", 0)],
)
def test_recorded_traces_are_explained_as_well_without_their_synchronisations(
    file: str, annotation: str, instance: int | None
) -> None:
    trace = recorded_rank(file)
    inferred = graph_of(without_syncs(trace), annotation, instance)
    assert moved(graph_of(trace, annotation, instance), inferred) <= MAX_MOVED


# Two collectives that end shortly after each other cannot be distinguished: of programs 0 to 199, one moves by more.
def test_programs_are_explained_as_well_without_their_synchronisations() -> None:
    for seed in range(50):
        program = Program(seed)
        program.train(4)
        recorded = graph_of(rank_of([*program.events, *program.syncs]), "ProfilerStep", (0, 3))
        inferred = graph_of(rank_of(program.events), "ProfilerStep", (0, 3))
        assert moved(recorded, inferred) <= MAX_MOVED


def test_without_inference_these_programs_are_explained_otherwise() -> None:
    program = Program(1)
    program.train(4)
    recorded = graph_of(rank_of([*program.events, *program.syncs]))
    assert moved(recorded, graph_of(rank_of(program.events), infer=False)) > MAX_MOVED


LAUNCHED = "aten::mm 0-20, cudaLaunchKernel 5-8 #1, gemm 9-60 #1"
BESIDE = f"{LAUNCHED}, cudaLaunchKernel 10-12 #2, beside 14-90 #2 @20, "
TOLD = "cudaEventRecord 20-21 #3, cudaStreamWaitEvent 22-23 #4"

#: Events, and pairs of work and what waited for it.
SCENES = {
    "a device is waited for with all its streams": (
        BESIDE + "cudaDeviceSynchronize 30-95 #3",
        {("gemm", "cudaDeviceSynchronize"), ("beside", "cudaDeviceSynchronize")},
    ),
    "a stream is the one that the thread used last": (
        BESIDE + "cudaStreamSynchronize 30-95 #3",
        {("beside", "cudaStreamSynchronize")},
    ),
    "a stream is another one if only its work ended with the call": (
        BESIDE + "cudaStreamSynchronize 30-64 #3",
        {("gemm", "cudaStreamSynchronize")},
    ),
    "an event is the one that was recorded last": (
        BESIDE + "cudaEventRecord 8.5-9 #3, cudaEventSynchronize 30-64 #4",
        {("gemm", "cudaEventSynchronize")},
    ),
    "memory is given back when the device is idle": (BESIDE + "cudaFree 30-95 #3", {("beside", "cudaFree")}),
    "an idle device gives memory back at once": (BESIDE + "cudaFree 100-120 #3", set()),
    "a stream waits for work from before the event was recorded": (
        f"{BESIDE}{TOLD}, cudaLaunchKernel 24-26 #5, late 91-99 #5",
        {("beside", "late")},
    ),
    "work that had not ended cannot have been waited for": (
        f"{BESIDE}cudaLaunchKernel 16-18 #6, second 91-300 #6 @20, {TOLD}, cudaLaunchKernel 24-26 #5, late 92-99 #5",
        {("beside", "late")},
    ),
    "recorded synchronisations are not inferred again": (
        BESIDE + "cudaDeviceSynchronize 30-95 #3, Context_Sync 31-94 #3 @-1",
        set(),
    ),
    "a copy waited for itself if it ended within its call": (
        BESIDE + "cudaMemcpyAsync 30-100 #3, Memcpy_DtoH 95-99 #3",
        {("Memcpy DtoH", "cudaMemcpyAsync")},
    ),
    "a copy that ended after its call was not waited for": (
        BESIDE + "cudaMemcpyAsync 30-100 #3, Memcpy_DtoH 95-101 #3",
        set(),
    ),
    "a stream that waits is another one than the event's": (
        (
            f"{LAUNCHED}, cudaEventRecord 8.5-9 #3, cudaStreamWaitEvent 9-9.5 #4, cudaLaunchKernel 10-12 #5, "
            "own 61-62 #5, cudaLaunchKernel 13-15 #6, on_another 62-99 #6 @20"
        ),
        {("gemm", "on another")},
    ),
    "work that ends with the call was waited for, whichever is first in the file": (
        f"cudaDeviceSynchronize 20-60 #2, {LAUNCHED}",
        {("gemm", "cudaDeviceSynchronize")},
    ),
}


@pytest.mark.parametrize(("events", "waits"), SCENES.values(), ids=SCENES)
def test_waits_of_calls_and_streams_are_inferred(events: str, waits: set[tuple[str, str]]) -> None:
    assert waited(written(events)) == waits


def test_a_long_launch_waited_for_room_in_a_full_queue() -> None:
    queued = [call("cudaLaunchKernel", 0.01 * i, 0.01 * i + 0.005, i + 1) for i in range(1020)]
    kernels = [work(f"kernel {i}", 20 + 10 * i, 29 + 10 * i, i + 1) for i in range(1020)]
    last = written("cudaLaunchKernel 30-121 #2000, last 11000-11001 #2000")
    assert waited([*queued, *kernels, *last]) == {("kernel 9", "cudaLaunchKernel")}
    assert waited([*queued[:500], *kernels[:500], *last]) == set()
