import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.runs.trace.errors import UnknownNameError
from dask_efficiency.torch_traces import critical_path as torch_critical_path
from dask_efficiency.torch_traces.kineto.trace import Category
from dask_efficiency.torch_traces.path.changes import (
    NodeWaits,
    Rewired,
    earliest,
    retimed,
    topological,
    unchanged,
    unexplained_ns,
    with_changes,
    with_edges,
)
from dask_efficiency.torch_traces.path.collectives import CollectiveArrivals
from dask_efficiency.torch_traces.path.graph import CycleError, EdgeKind, TorchGraph
from dask_efficiency.torch_traces.path.speeds import TorchChanges, check_patterns
from tests.torch_traces.path.programs import graph_of, rank_of, written
from tests.torch_traces.path.samples import node, recorded, two_kernels

SYNC_END, ADD_END, GEMM_END, RELU = 4, 5, 6, 7


def rewired(graph: TorchGraph, change: Callable[[TorchGraph, Rewired], Rewired]) -> TorchGraph:
    was = unchanged(graph)
    (found,) = retimed([graph], [(0, 0)], CollectiveArrivals.empty(), [was], [change(graph, was)])
    return found


def changed(graph: TorchGraph, changes: TorchChanges) -> TorchGraph:
    return rewired(graph, lambda graph, was: with_changes(graph, was, changes))


def edited(*, add: Any = (), remove: Any = (), reweight: Any = {}) -> TorchGraph:  # noqa: B006
    return rewired(two_kernels(), lambda graph, was: with_edges(graph, was, add, remove, reweight))


def instants(graph: TorchGraph) -> dict[tuple[int, bool], int]:
    """Microseconds by event and whether it is the start."""
    nodes = graph.nodes
    rows = zip(nodes.event.tolist(), nodes.is_start.tolist(), (nodes.at // 1000).tolist(), strict=True)
    return {(event, is_start): at for event, is_start, at in rows}


# Worked out by hand from the picture in samples.two_kernels: the wait ends 5 after relu, and add starts 5 after that.
@pytest.mark.parametrize(
    ("speed_up", "without", "relu", "waited", "stop"),
    [
        ({}, (), (55, 85), 90, 100),
        ({"gemm": 2.0}, (), (40, 70), 75, 85),
        ({"gemm": 2.0, "relu": 3.0}, (), (40, 50), 55, 65),
        ({}, ("kernel-gap",), (50, 80), 85, 95),
        ({}, ("kernel-launch",), (47, 77), 82, 92),
        # Nothing waits for the GPU: the call returns when it begins, and 5 later, as before; the GPU ends last.
        ({}, ("gpu-sync",), (55, 85), 45, 85),
        # With all that its thread does: 20 in aten::mm become 10, so that gemm starts 1 earlier than at its launch.
        ({"aten::mm": 2.0}, (), (54, 84), 89, 99),
        ({}, ("data-loading",), (45, 75), 80, 90),
        ({}, ("gpu-communication",), (55, 85), 90, 100),
    ],
)
def test_changes_are_followed_through_launches_gaps_and_waits(
    speed_up: Mapping[str, float], without: tuple[str, ...], relu: tuple[int, int], waited: int, stop: int
) -> None:
    graph = changed(two_kernels(data_loading=("next",)), TorchChanges(speed_up, without))
    at = instants(graph)
    assert (at[RELU, True], at[RELU, False]) == relu
    assert at[SYNC_END, False] == waited
    assert graph.region.stop == 1000 * stop
    events = graph.trace.events
    assert (events.start[RELU], events.stop[RELU]) == (1000 * relu[0], 1000 * relu[1])


def test_weights_are_worked_out_anew() -> None:
    graph = changed(two_kernels(), TorchChanges({"gemm": 2.0}, ("kernel-gap",)))
    gaps = graph.edges.kind == EdgeKind.KERNEL_DELAY
    own = [graph.edges.weight[(graph.edges.event == row) & ~gaps].tolist() for row in (GEMM_END, RELU)]
    assert own == [[15_000], [30_000]]
    assert graph.edges.weight[gaps].tolist() == [0]


def test_a_name_with_brackets_is_known_and_an_unknown_one_refused_with_those_there_are() -> None:
    check_patterns([two_kernels()], ["void gemm<float>(int)", "^relu$", "(int"])
    with pytest.raises(UnknownNameError, match="no kernel or operator 'conv' in this trace; there is: 'cudaDeviceSync"):
        check_patterns([two_kernels()], ["gemm", "conv"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"speed_up": {"gemm": 0}}, "speed_up['gemm'] is 0; expected a number above 0"),
        ({"speed_up": {"gemm": float("nan")}}, "speed_up['gemm'] is nan"),
        ({"without": ("disk",)}, "without names 'disk'; expected some of kernel-launch, "),
        ({"without": "gpu-sync"}, "without is 'gpu-sync'; expected a list"),
    ],
)
def test_impossible_changes_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        TorchChanges(**arguments)


def test_a_collective_ends_on_each_rank_once_the_last_one_has_come() -> None:
    # relu is the collective: rank 1 comes 20 later, at 75, and both leave at 85.
    graphs = [two_kernels(), two_kernels(gemm=50, rank=1)]
    columns = {"collective": [0, 0], "rank": [0, 1], "event": [RELU, RELU], "kind": [0, 0]}
    arrivals = CollectiveArrivals.from_columns(columns | {"start": [55_000, 75_000], "stop": [85_000, 85_000]})
    was = [unchanged(graph) for graph in graphs]
    faster = [with_changes(graph, w, TorchChanges({"gemm": 2.0})) for graph, w in zip(graphs, was, strict=True)]
    one, other = retimed(graphs, [(0, 0), (1, 0)], arrivals, was, faster)
    assert [instants(graph)[RELU, True] for graph in (one, other)] == [40, 50]
    assert [instants(graph)[RELU, False] for graph in (one, other)] == [60, 60]
    own = [int(graph.edges.weight[graph.edges.event == RELU][0]) for graph in (one, other)]
    assert own == [20_000, 10_000]
    # by itself, rank 0 would not know that it waited for another one
    assert instants(changed(graphs[0], TorchChanges({"gemm": 2.0})))[RELU, False] == 70


def test_edges_are_added_removed_and_weighed_anew() -> None:
    graph = two_kernels()
    edges = graph.edges
    (sync,) = np.flatnonzero(edges.kind == EdgeKind.SYNC).tolist()
    (gemm,) = np.flatnonzero((edges.kind == EdgeKind.OPERATOR) & (edges.event == GEMM_END)).tolist()
    assert edited(remove=[sync]).region.stop == 85_000
    assert edited(reweight={gemm: 10_000}).region.stop == 80_000
    end = node(graph.nodes, ADD_END, is_start=False), node(graph.nodes, RELU, is_start=True)
    later = edited(add=[(node(graph.nodes, SYNC_END, is_start=True), end[1], 30_000)])
    assert instants(later)[RELU, True] == 70
    assert len(later.edges) == len(graph.edges) + 1


def test_edges_in_a_circle_are_refused_by_the_names_of_their_nodes() -> None:
    graph = two_kernels()
    back = node(graph.nodes, RELU, is_start=False), node(graph.nodes, GEMM_END, is_start=True)
    with pytest.raises(CycleError, match=r"would wait for one another: .*start of 'void gemm.* -> .*'relu'"):
        edited(add=[(*back, 0)])


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ({"add": [(0, 99, 0)]}, "there is no node 99; expected 0 to 15"),
        ({"remove": [-1]}, "there is no edge -1; expected 0 to 16"),
        ({"reweight": {0: -1_000_000_000}}, "an edge is to weigh -1 s; expected at least 0"),
    ],
)
def test_edges_that_cannot_be_are_refused(edits: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        edited(**edits)


@pytest.mark.parametrize("name", ["simple_add", "event_sync", "h100", "mi300", "dlrm"])
def test_a_recorded_trace_without_a_change_is_as_it_was(name: str) -> None:
    path = recorded(name)
    again = path.what_if()
    assert again.changes == ("With no change",)
    for one, other in zip(path.graphs, again.graphs, strict=True):
        assert np.array_equal(one.nodes.at, other.nodes.at)
        assert np.array_equal(one.trace.events.start, other.trace.events.start)
        assert np.array_equal(one.trace.events.stop, other.trace.events.stop)
    assert again.shares == path.shares
    for column, values in path.stretches.columns().items():
        assert np.array_equal(values, getattr(again.stretches, column)), column


@pytest.mark.parametrize("name", ["simple_add", "h100", "dlrm"])
def test_all_changes_at_once_leave_a_path_that_covers_its_window(name: str) -> None:
    path = recorded(name)
    without = ("kernel-launch", "kernel-gap", "gpu-communication", "data-loading")
    again = path.what_if(speed_up={"aten::|gemm": 3.0}, without=without)
    saved = path.saved_seconds(speed_up={"aten::|gemm": 3.0}, without=without)
    assert path.window_seconds > again.window_seconds == pytest.approx(path.window_seconds - saved)
    assert np.array_equal(again.stretches.start[1:], again.stretches.stop[:-1])
    assert sum(again.seconds().values()) == pytest.approx(again.window_seconds)
    for graph in again.graphs:
        assert (np.diff(graph.nodes.at) >= 0).all()
        assert (graph.trace.events.stop >= graph.trace.events.start).all()


def test_the_ranks_of_a_job_wait_for_the_last_one_in_a_changed_run_too() -> None:
    path = recorded("dlrm")
    in_collectives = path.shares["gpu_communication_bound"] * path.longest_path_seconds
    # Collectives hardly transfer anything: the time in them is waiting for rank 7, which stays.
    assert in_collectives > 0.1 * path.window_seconds
    assert path.saved_seconds(without=["gpu-communication"]) < 0.01 * path.window_seconds
    alone = torch_critical_path(path.trace, rank=path.rank)
    assert alone.saved_seconds(without=["gpu-communication"]) > 0.1 * path.window_seconds


def test_without_data_loading_torchs_loaders_take_no_time() -> None:
    trace = rank_of(written("enumerate(DataLoader)#_ 0-20, aten::stack 0-20, aten::mm 20-30"))
    graph = changed(graph_of(trace), TorchChanges({}, ("data-loading",)))
    assert graph.region.stop - graph.region.start == 10_000


def test_events_outside_of_a_graph_move_with_it() -> None:
    path = recorded("simple_add")
    again = path.what_if(speed_up={"cudaMalloc": 2.0})
    region, faster = path.graph.region, again.graph.region
    later = faster.stop - region.stop
    assert later < 0
    was, now = path.trace.ranks[0].events, again.trace.ranks[0].events
    of_graph = np.isin(np.arange(len(was)), path.graph.nodes.event)
    after, before = (was.start >= region.stop) & ~of_graph, was.stop <= region.start
    around = (was.category == Category.ANNOTATION) & (was.start <= region.start) & (was.stop >= region.stop)
    assert min(after.sum(), before.sum(), around.sum()) > 0
    assert (now.start[after] - was.start[after] == later).all()
    assert np.array_equal(now.stop[before], was.stop[before])
    assert (now.start[around] <= faster.start).all()
    assert (now.stop[around] >= faster.stop).all()
    assert (now.stop >= now.start).all()


def waits(*rows: tuple[int, int, int]) -> NodeWaits:
    source, target, lag = np.array(rows, np.int64).reshape(len(rows), 3).T
    return NodeWaits(source, target, lag)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[np.ndarray, NodeWaits]:
    at = np.array(sorted(draw(st.lists(st.integers(0, 1000), min_size=2, max_size=12))))
    ends = st.tuples(st.integers(0, len(at) - 2), st.integers(1, len(at) - 1))
    pairs = sorted({pair for pair in draw(st.lists(ends, max_size=30)) if pair[0] < pair[1]})
    lags = [draw(st.integers(0, int(at[target] - at[source]))) for source, target in pairs]
    return at, waits(*((source, target, lag) for (source, target), lag in zip(pairs, lags, strict=True)))


@given(graphs())
def test_without_a_change_everything_is_when_it_was(graph: tuple[np.ndarray, NodeWaits]) -> None:
    at, before = graph
    order = topological(at, before)
    assert earliest(at, unexplained_ns(at, before), before, order).tolist() == at.tolist()


@given(graphs(), st.integers(0, 3))
def test_less_to_wait_for_makes_nothing_later(graph: tuple[np.ndarray, NodeWaits], divisor: int) -> None:
    at, before = graph
    after = NodeWaits(before.source, before.target, before.lag // divisor if divisor else np.zeros_like(before.lag))
    found = earliest(at, unexplained_ns(at, before), after, topological(at, after))
    assert (found <= at).all()
    assert (found[after.target] >= found[after.source] + after.lag).all()


def test_an_edge_back_in_time_is_no_circle_by_itself() -> None:
    at = np.array([0, 10, 20])
    order = topological(at, waits((2, 1, 0), (0, 2, 5)))
    assert order.tolist() == [0, 2, 1]
