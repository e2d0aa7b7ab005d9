"""The whole graph of a trace."""

import numpy as np
import pytest

from dask_efficiency.torch_traces.path.graph import EdgeKind, TorchGraph
from dask_efficiency.torch_traces.path.longest import longest_path, path_edges, summary
from tests.torch_traces.path.programs import edges_of, graph_of, of_kind, rank_of, written
from tests.torch_traces.path.random_traces import random_trace
from tests.torch_traces.path.samples import TESTS, recorded_rank

RECORDED = sorted(path.name.partition(".")[0] for path in (TESTS / "data/kineto").glob("*.json.gz"))


def check(graph: TorchGraph) -> None:
    nodes, edges = graph.nodes, graph.edges
    events = graph.trace.events
    assert all(np.diff(nodes.at) >= 0)
    at_start = nodes.is_start
    assert nodes.at[at_start].tolist() == events.start[nodes.event[at_start]].tolist()
    assert all(nodes.at[~at_start] <= events.stop[nodes.event[~at_start]])
    assert sorted(nodes.event[at_start].tolist()) == sorted(nodes.event[~at_start].tolist())
    assert set(nodes.event.tolist()) <= set(graph.region.rows.tolist())

    lasts = nodes.at[edges.target] - nodes.at[edges.source]
    assert all(lasts >= 0)
    assert len(set(zip(edges.source.tolist(), edges.target.tolist(), strict=True))) == len(edges)
    assert all((edges.weight == 0) | (edges.weight == lasts))
    assert all(edges.weight[np.isin(edges.kind, (EdgeKind.DEPENDENCY, EdgeKind.SYNC))] == 0)
    assert all(edges.event[edges.kind == EdgeKind.OPERATOR] >= 0)

    path = longest_path(graph)
    along = path_edges(graph, path)
    if len(path):
        assert edges.weight[along].sum() <= nodes.at[path[-1]] - nodes.at[path[0]]
    assert sum(summary(graph, along).values()) == pytest.approx(1 if edges.weight[along].sum() else 0)


@pytest.mark.parametrize("name", RECORDED)
def test_graphs_of_recorded_traces_lead_forward_in_time(name: str) -> None:
    graph = graph_of(recorded_rank(name))
    check(graph)
    assert len(graph.edges) > 0


def test_graphs_of_random_traces_lead_forward_in_time() -> None:
    for seed in range(60):
        check(graph_of(rank_of(random_trace(seed)["traceEvents"])))


def test_an_empty_trace_has_an_empty_graph() -> None:
    graph = graph_of(rank_of([]))
    check(graph)
    assert (len(graph.nodes), len(graph.edges)) == (0, 0)


def test_instants_of_the_same_time_do_not_wait_for_one_another() -> None:
    """Two kernels of no length, each on a stream that has to wait for the other one's."""
    text = """cudaLaunchKernel 0-1 #1 @1, gemm 5-5 #1 @7, cudaLaunchKernel 0-1 #2 @2, gemm 5-5 #2 @8,
        cudaEventRecord 0-1 #18 @4, cudaStreamWaitEvent 0-1 #3 @1, Stream_Wait_Event 0-1 #3 @7 <18 ~8,
        cudaEventRecord 0-1 #17 @5, cudaStreamWaitEvent 0-1 #4 @2, Stream_Wait_Event 0-1 #4 @8 <17 ~7"""
    check(graph_of(rank_of(written(text))))
    assert of_kind(edges_of(text), EdgeKind.SYNC) == {}
