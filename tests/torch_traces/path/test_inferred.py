"""Without synchronisation events the same is found as with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dask_efficiency.torch_traces.kineto.load import load_kineto
from dask_efficiency.torch_traces.kineto.trace import Category, RankTrace
from dask_efficiency.torch_traces.path.build import build_graph
from dask_efficiency.torch_traces.path.graph import EdgeKind, TorchGraph
from dask_efficiency.torch_traces.path.longest import longest_path, path_edges, summary
from dask_efficiency.torch_traces.path.region import find_region
from dask_efficiency.torch_traces.path.tiling import tile
from tests.torch_traces.path.programs import Event, Program, call, on_cpu, rank_of, work

DATA = Path(__file__).parents[2] / "data" / "kineto"
FORWARD = "[param|pytorch.model.alex_net|0|0|0|measure|forward]"

#: How far a share may be from that of the same trace with synchronisation events.
MAX_MOVED = 0.02


def without_syncs(trace: RankTrace) -> RankTrace:
    category = trace.events.category
    category = np.where(category == Category.SYNC, Category.OTHER, category).astype(np.int8)
    return replace(trace, events=replace(trace.events, category=category))


def graph_of(trace: RankTrace, annotation: str = "", instance: int | tuple[int, int] | None = None) -> TorchGraph:
    return build_graph(trace, find_region(trace, annotation, instance))


def shares(graph: TorchGraph) -> dict[str, float]:
    """Figures of the longest path and of the tiling."""
    seconds = tile(graph).seconds()
    longest = summary(graph, path_edges(graph, longest_path(graph)))
    return longest | {str(kind): part / sum(seconds.values()) for kind, part in seconds.items()}


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
    [("alexnet", "", None), ("alexnet", FORWARD, 1), ("event_sync", "ProfilerStep", 0)],
)
def test_recorded_traces_are_explained_as_well_without_their_synchronisations(
    file: str, annotation: str, instance: int | None
) -> None:
    trace = load_kineto(str(DATA / f"{file}.json.gz")).ranks[0]
    inferred = graph_of(without_syncs(trace), annotation, instance)
    assert moved(graph_of(trace, annotation, instance), inferred) <= MAX_MOVED


# Two collectives that end shortly after each other cannot be told apart: of programs 0 to 199, one moves by more.
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
    trace = rank_of(program.events)
    assert moved(recorded, build_graph(trace, find_region(trace), infer=False)) > MAX_MOVED


LAUNCHED = [
    on_cpu("aten::mm", 0, 20),
    call("cudaLaunchKernel", 5, 8, 1),
    work("gemm", 9, 60, 1),
    call("cudaLaunchKernel", 10, 12, 2),
    work("beside", 14, 90, 2, stream=20),
]

TOLD = [call("cudaEventRecord", 20, 21, 3), call("cudaStreamWaitEvent", 22, 23, 4)]
WAIT = call("cudaDeviceSynchronize", 30, 95, 3)
#: Events beside those that are launched, and the waits that are inferred.
SCENES = {
    "a device is waited for with all its streams": ([WAIT], {("gemm", WAIT["name"]), ("beside", WAIT["name"])}),
    "a stream is the one that the thread used last": (
        [call("cudaStreamSynchronize", 30, 95, 3)],
        {("beside", "cudaStreamSynchronize")},
    ),
    "a stream is another one if only its work ended with the call": (
        [call("cudaStreamSynchronize", 30, 64, 3)],
        {("gemm", "cudaStreamSynchronize")},
    ),
    "an event is the one that was recorded last": (
        [call("cudaEventRecord", 8.5, 9, 3), call("cudaEventSynchronize", 30, 64, 4)],
        {("gemm", "cudaEventSynchronize")},
    ),
    "memory is given back when the device is idle": ([call("cudaFree", 30, 95, 3)], {("beside", "cudaFree")}),
    "an idle device gives memory back at once": ([call("cudaFree", 100, 120, 3)], set()),
    "a stream waits for what was asked for before the event was recorded": (
        [*TOLD, call("cudaLaunchKernel", 24, 26, 5), work("held back", 91, 99, 5)],
        {("beside", "held back")},
    ),
    "what had not ended cannot have been waited for": (
        [
            *(call("cudaLaunchKernel", 16, 18, 6), work("second beside", 91, 300, 6, stream=20), *TOLD),
            *(call("cudaLaunchKernel", 24, 26, 5), work("held back", 92, 99, 5)),
        ],
        {("beside", "held back")},
    ),
    "recorded synchronisations are not inferred again": (
        [WAIT, work("Context Sync", 31, 94, 3, stream=-1, cat="cuda_sync")],
        set(),
    ),
}


@pytest.mark.parametrize(("events", "waits"), SCENES.values(), ids=SCENES)
def test_what_a_call_or_a_stream_waited_for_is_inferred(events: list[Event], waits: set[tuple[str, str]]) -> None:
    assert waited([*LAUNCHED, *events]) == waits


def test_a_copy_waited_for_itself_if_it_ended_within_its_call() -> None:
    def copied(stop: float) -> set[tuple[str, str]]:
        copy = work("Memcpy DtoH (Device -> Pageable)", 95, stop, 3, cat="gpu_memcpy")
        return waited([*LAUNCHED, call("cudaMemcpyAsync", 30, 100, 3), copy])

    assert copied(99) == {("Memcpy DtoH (Device -> Pageable)", "cudaMemcpyAsync")}
    assert copied(101) == set()


def test_a_long_launch_waited_for_room_in_a_full_queue() -> None:
    queued = [call("cudaLaunchKernel", 0.01 * i, 0.01 * i + 0.005, i + 1) for i in range(1020)]
    kernels = [work(f"kernel {i}", 20 + 10 * i, 29 + 10 * i, i + 1) for i in range(1020)]
    last = [call("cudaLaunchKernel", 30, 121, 2000), work("last", 11_000, 11_001, 2000)]
    assert waited([*queued, *kernels, *last]) == {("kernel 9", "cudaLaunchKernel")}
    assert waited([*queued[:500], *kernels[:500], *last]) == set()


def test_a_stream_that_waits_is_another_one_than_the_events() -> None:
    told = [call("cudaEventRecord", 8.5, 9, 3), call("cudaStreamWaitEvent", 9, 9.5, 4)]
    own = [call("cudaLaunchKernel", 10, 12, 5), work("on its own stream", 61, 62, 5)]
    other = [call("cudaLaunchKernel", 13, 15, 6), work("on another one", 62, 99, 6, stream=20)]
    assert waited([*LAUNCHED[:3], *told, *own, *other]) == {("gemm", "on another one")}


def test_work_that_ends_with_the_call_was_waited_for() -> None:
    # The call is the first one in the file, so that rows do not say what comes first.
    events = [call("cudaDeviceSynchronize", 20, 60, 2), *LAUNCHED[:3]]
    assert waited(events) == {("gemm", "cudaDeviceSynchronize")}
