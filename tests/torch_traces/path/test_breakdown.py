"""What a path was spent on."""

from __future__ import annotations

import numpy as np
import pytest

from dask_efficiency.torch_traces.kineto.trace import Category
from dask_efficiency.torch_traces.path.breakdown import BOUNDS, Bound, breakdown, path_edges, summary
from dask_efficiency.torch_traces.path.build import build_graph
from dask_efficiency.torch_traces.path.longest import longest_path
from dask_efficiency.torch_traces.path.region import find_region
from tests.torch_traces.path.small_traces import SmallTrace


def of_everything() -> SmallTrace:
    """20 ns of loading, 10 of an operator, 15 of a launch, kernels of 30 and 40 with 5 between them, a wait."""
    small = SmallTrace()
    small.add(Category.ANNOTATION, "enumerate(DataLoader)#next", 0, 20)
    small.operator("aten::add", 20, 32)
    first = small.call("cudaLaunchKernel", 30, 31)
    second = small.call("cudaLaunchKernel", 50, 51)
    small.work(45, 75, first)
    small.work(80, 120, second, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
    wait = small.call("cudaStreamSynchronize", 60, 130)
    small.sync("Stream Sync", wait, 125, stream=7)
    return small


def test_shares_are_those_of_a_path_worked_by_hand() -> None:
    trace = of_everything().trace()
    graph = build_graph(trace, find_region(trace), data_loading=["DataLoader"])
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
    named = [
        (BOUNDS[bound] if bound >= 0 else None, event, duration)
        for bound, event, duration in zip(
            rows.bound_by.tolist(), rows.event.tolist(), rows.duration.tolist(), strict=True
        )
    ]
    assert named == [
        (Bound.DATA_LOADING, 0, 20),
        (None, -1, 0),
        (Bound.CPU, 1, 10),
        (Bound.GPU_LAUNCHES, -1, 15),
        (Bound.GPU_COMPUTE, 4, 30),
        (Bound.GPU_KERNEL_GAPS, 4, 5),
        (Bound.GPU_COMMUNICATION, 5, 40),
    ]
    assert rows.edge.tolist() == edges.tolist()


def test_a_path_without_length_has_no_shares() -> None:
    trace = SmallTrace().trace()
    graph = build_graph(trace, find_region(trace))
    assert set(summary(graph, path_edges(graph, longest_path(graph))).values()) == {0.0}


def test_nodes_that_no_edge_joins_are_no_path() -> None:
    trace = of_everything().trace()
    graph = build_graph(trace, find_region(trace))
    with pytest.raises(ValueError, match="no edge of the path leaves node 0"):
        path_edges(graph, np.array([0, len(graph.nodes) - 1], np.int32))
