import sys

import numpy as np
import pytest

from dask_efficiency.runs.trace.errors import EmptyTraceError
from dask_efficiency.torch_traces import critical_path as torch_critical_path
from dask_efficiency.torch_traces.kineto.errors import UnknownRankError
from dask_efficiency.torch_traces.kineto.trace import Category
from dask_efficiency.torch_traces.path.stretches import GROUPS
from tests.torch_traces.path.jobs import BEGIN, MILLISECOND, Plan, Recording, job
from tests.torch_traces.path.samples import recorded

NAMES = ["simple_add", "event_sync", "h100", "mi300", "cpu_only", "dlrm"]


@pytest.mark.parametrize("name", NAMES)
def test_the_walk_covers_the_window_by_every_group(name: str) -> None:
    path = recorded(name)
    assert np.array_equal(path.stretches.start[1:], path.stretches.stop[:-1])
    for by in GROUPS:
        seconds = path.seconds(by)
        assert sum(seconds.values()) == pytest.approx(path.window_seconds, abs=1e-9)
        assert list(seconds.values()) == sorted(seconds.values(), reverse=True)


def test_an_unknown_group_is_refused() -> None:
    with pytest.raises(ValueError, match=r"by is 'stream'; expected one of kind, name, rank"):
        recorded("event_sync").seconds("stream")


def test_one_rank_of_many_is_explained_alone() -> None:
    trace = recorded("dlrm").trace
    path = torch_critical_path(trace, rank=3)
    assert (path.rank, len(path.graphs), list(path.seconds("rank"))) == (3, 1, ["3"])
    assert set(path.stretches.rank.tolist()) == {3}
    with pytest.raises(UnknownRankError, match=r"no rank 9 in this trace; there is: 0, 1, 2"):
        torch_critical_path(trace, rank=9)


def test_of_several_ranks_the_one_that_ended_last_is_chosen() -> None:
    path = recorded("dlrm")
    ends = [graph.region.stop + shift for graph, shift in zip(path.graphs, path.offset, strict=True)]
    assert path.chosen == int(np.argmax(ends))
    assert path.ranks().numbers == tuple(range(8))


def test_a_window_without_anything_is_refused() -> None:
    with pytest.raises(EmptyTraceError, match=r"nothing in what was asked for takes time"):
        torch_critical_path(job([Recording(0)]))


def test_tables_have_names_and_their_parts_add_up() -> None:
    pytest.importorskip("pandas")
    path = recorded("simple_add")
    nodes, edges, breakdown = path.nodes(), path.edges(), path.breakdown()
    assert len(nodes) == len(path.graph.nodes)
    assert nodes["critical"].sum() == len(path.longest)
    assert nodes["name"].notna().all()
    assert edges["critical"].sum() == len(breakdown) == len(path.longest) - 1
    assert edges.loc[breakdown["edge"], "weight_seconds"].sum() == pytest.approx(path.longest_path_seconds)
    assert breakdown["duration_seconds"].sum() == pytest.approx(path.longest_path_seconds)
    by_bound = breakdown.groupby("bound_by")["duration_seconds"].sum() / path.longest_path_seconds
    assert by_bound["cpu_bound"] == pytest.approx(path.summary()["cpu_bound"])
    assert path.summary().sum() == pytest.approx(1.0)
    # an event's position is the one in the file, so that it is found there
    kernels = nodes[nodes["category"] == "kernel"]
    assert (kernels["stream"] >= 0).all()
    assert len(kernels)


@pytest.mark.needs("networkx")
def test_the_graph_for_networkx_has_the_same_longest_path() -> None:
    import networkx as nx

    path = recorded("simple_add")
    graph = path.to_networkx()
    assert (graph.number_of_nodes(), graph.number_of_edges()) == (len(path.graph.nodes), len(path.graph.edges))
    length = nx.dag_longest_path_length(graph, weight="weight")
    assert length / 1e9 == pytest.approx(path.longest_path_seconds)
    first = graph.nodes[int(path.longest[0])]
    assert first["critical"] is True
    assert first["name"]


def test_without_networkx_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(ImportError, match=r"to_networkx\(\) needs networkx, which is not installed"):
        recorded("event_sync").to_networkx()


def test_edges_are_changed_by_their_rows() -> None:
    path = recorded("event_sync")
    heaviest = int(np.argmax(path.graph.edges.weight))
    seconds = int(path.graph.edges.weight[heaviest]) / 1e9
    again = path.with_edges(reweight={heaviest: 0.0})
    assert again.window_seconds == pytest.approx(path.window_seconds - seconds)
    assert again.changes == ("With other edges (1 of another weight)",)


def test_stalls_add_up_over_names_and_are_within_the_window() -> None:
    path = recorded("simple_add")
    stall = path.stalls()["cudaMalloc"]
    assert (stall.times, stall.path_seconds) == (5, pytest.approx(path.seconds("name")["cudaMalloc"]))
    assert stall.path_seconds <= stall.total_seconds <= path.window_seconds


def test_queues_are_of_the_rank_that_is_chosen() -> None:
    assert set(recorded("simple_add").queue_lengths().stream.tolist()) == {7, 20}


def test_a_window_without_length_has_a_headline() -> None:
    recordings = Plan((0, 0), ((MILLISECOND, 2 * MILLISECOND),), ((0, 0),)).recordings()
    for recording in recordings:
        recording.add(Category.ANNOTATION, "now", BEGIN, BEGIN)
    path = torch_critical_path(job(recordings), annotation="now")
    assert (path.window_seconds, path.headline) == (0.0, "Nothing took any time")


def test_a_rank_without_events_does_not_widen_the_window() -> None:
    recordings = Plan((0, 0), ((MILLISECOND, 2 * MILLISECOND),), ((0, 0),)).recordings()
    path = torch_critical_path(job([*recordings, Recording(2)]))
    assert path.window_seconds == pytest.approx(0.00201)


def test_an_edge_that_is_there_is_not_added_again() -> None:
    path = recorded("event_sync")
    source, target = (int(column[5]) for column in (path.graph.edges.source, path.graph.edges.target))
    message = rf"from node {source} to node {target}"
    with pytest.raises(ValueError, match=message):
        path.with_edges(add=[(source, target, 1.0)])
    again = path.with_edges(add=[(source, target, 1.0)], remove=[5])
    with pytest.raises(ValueError, match=message):
        path.with_edges(add=[(source, target, 1.0), (source, target, 2.0)], remove=[5])
    assert again.longest_path_seconds > path.longest_path_seconds
