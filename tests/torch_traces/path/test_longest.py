"""The longest path."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.torch_traces.path.graph import Edges, Nodes, Region, TorchGraph
from dask_efficiency.torch_traces.path.longest import BOUNDS, Bound, breakdown, longest_path, path_edges, summary
from tests.torch_traces.path import programs
from tests.torch_traces.path.programs import rank_of, written

NODES = 8


def graph_of(edges: list[tuple[int, int, int]]) -> TorchGraph:
    """Nodes at the times 0, 1, 2 and so on; edges as (source, target, weight)."""
    columns = {name: [edge[i] for edge in edges] for i, name in enumerate(("source", "target", "weight"))}
    nodes = Nodes(np.arange(NODES), np.arange(NODES), np.arange(NODES) % 2 == 0)
    table = Edges.from_columns(columns) if edges else Edges.empty()
    return TorchGraph(rank_of([]), Region(0, NODES, np.empty(0, np.int32)), nodes, table)


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


def test_among_equally_long_ways_the_first_edge_and_the_earliest_end_win() -> None:
    graph = graph_of([(1, 2, 5), (0, 2, 5), (2, 3, 0), (3, 4, 0)])
    assert longest_path(graph).tolist() == [1, 2]


def test_a_path_begins_as_early_as_edges_without_weight_lead() -> None:
    assert longest_path(graph_of([(0, 1, 0), (1, 2, 0), (2, 3, 4)])).tolist() == [0, 1, 2, 3]


#: 20 us of loading, 10 of an operator, 15 of a launch, kernels of 30 and 40 with 5 between them, a wait.
EVERYTHING = """enumerate(DataLoader)#next 0-20, aten::add 20-32, cudaLaunchKernel 30-31 #1, cudaLaunchKernel 50-51 #2,
    gemm 45-75 #1, ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>) 80-120 #2,
    cudaStreamSynchronize 60-130 #3, Stream_Sync 60-125 #3"""


def test_shares_are_those_of_a_path_worked_by_hand() -> None:
    graph = programs.graph_of(rank_of(written(EVERYTHING)), data_loading=["DataLoader"])
    edges = path_edges(graph, longest_path(graph))
    assert summary(graph, edges) == pytest.approx(
        {
            "cpu_bound": 10 / 120,
            "gpu_compute_bound": 30 / 120,
            "gpu_communication_bound": 40 / 120,
            "gpu_kernel_kernel_overhead": 5 / 120,
            "gpu_kernel_launch_overhead": 15 / 120,
            "data_loading_bound": 20 / 120,
        }
    )
    rows = breakdown(graph, edges)
    bounds = [BOUNDS[bound] if bound >= 0 else None for bound in rows.bound_by.tolist()]
    assert bounds == [
        *(Bound.DATA_LOADING, None, Bound.CPU, Bound.GPU_LAUNCHES),
        *(Bound.GPU_COMPUTE, Bound.GPU_KERNEL_GAPS, Bound.GPU_COMMUNICATION),
    ]
    assert rows.event.tolist() == [0, -1, 1, -1, 4, 4, 5]
    assert (rows.duration // 1000).tolist() == [20, 0, 10, 15, 30, 5, 40]
    assert rows.edge.tolist() == edges.tolist()


def test_nodes_that_no_edge_joins_are_no_path() -> None:
    graph = programs.graph_of(rank_of(written(EVERYTHING)))
    with pytest.raises(ValueError, match="no edge of the path leaves node 0"):
        path_edges(graph, np.array([0, len(graph.nodes) - 1], np.int32))
