"""The longest path."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.torch_traces.path.breakdown import path_edges
from dask_efficiency.torch_traces.path.graph import Edges, Nodes, Region, TorchGraph
from dask_efficiency.torch_traces.path.longest import longest_path
from tests.torch_traces.path.small_traces import SmallTrace

NODES = 8


def graph_of(edges: list[tuple[int, int, int]]) -> TorchGraph:
    """Nodes at the times 0, 1, 2 and so on; edges as (source, target, weight)."""
    columns = {name: [edge[i] for edge in edges] for i, name in enumerate(("source", "target", "weight"))}
    nodes = Nodes(np.arange(NODES), np.arange(NODES), np.arange(NODES) % 2 == 0)
    table = Edges.from_columns(columns) if edges else Edges.empty()
    return TorchGraph(SmallTrace().trace(), Region(0, NODES, np.empty(0, np.int32)), nodes, table)


def length_by_trying_all(edges: list[tuple[int, int, int]]) -> int:
    longest = [0] * NODES
    for node in range(NODES):
        longest[node] = max((longest[a] + more for a, b, more in edges if b == node), default=0)
    return max(longest)


@given(
    st.dictionaries(
        st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)).filter(lambda pair: pair[0] < pair[1]),
        st.integers(0, 5),
    )
)
def test_no_path_is_longer(weights: dict[tuple[int, int], int]) -> None:
    edges = [(*pair, weight) for pair, weight in weights.items()]
    graph = graph_of(edges)
    path = longest_path(graph).tolist()
    assert sum(weights[pair] for pair in pairwise(path)) == length_by_trying_all(edges)
    # it begins where nothing leads to
    assert path[0] not in [target for _, target, _ in edges]
    assert [edges[edge][:2] for edge in path_edges(graph, np.array(path, np.int32))] == list(pairwise(path))


def test_of_equally_long_ways_the_first_edge_is_taken_and_of_equally_long_paths_the_one_that_ends_first() -> None:
    graph = graph_of([(1, 2, 5), (0, 2, 5), (2, 3, 0), (3, 4, 0)])
    assert longest_path(graph).tolist() == [1, 2]


def test_a_path_begins_as_early_as_edges_without_weight_lead() -> None:
    assert longest_path(graph_of([(0, 1, 0), (1, 2, 0), (2, 3, 4)])).tolist() == [0, 1, 2, 3]


def test_a_graph_without_nodes_has_no_path() -> None:
    trace = SmallTrace().trace()
    graph = TorchGraph(trace, Region(0, 0, np.empty(0, np.int32)), Nodes.empty(), Edges.empty())
    path = longest_path(graph)
    assert len(path) == 0
    assert len(path_edges(graph, path)) == 0
