"""Recorded traces, and graphs worked out by hand, for the tests of paths."""

import gzip
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from dask_efficiency.torch_traces import TorchCriticalPath, load_kineto
from dask_efficiency.torch_traces import critical_path as torch_critical_path
from dask_efficiency.torch_traces.kineto.execution import DataDependencies, ExecutionNodes, ExecutionTrace
from dask_efficiency.torch_traces.kineto.trace import Category, KinetoTrace, RankTrace
from dask_efficiency.torch_traces.path.graph import Nodes, TorchGraph
from tests.torch_traces.path.programs import graph_of, rank_of, written

TESTS = Path(__file__).parents[2]
RECORDED = {
    "simple_add": TESTS / "gpu/data/simple_add.json.gz",
    "event_sync": TESTS / "data/kineto/event_sync.json.gz",
    "h100": TESTS / "data/kineto/h100.json.gz",
    "mi300": TESTS / "data/kineto/mi300.json.gz",
    "cpu_only": TESTS / "data/kineto/cpu_only.json.gz",
    "dlrm": TESTS / "data/kineto/dlrm",
}
#: The annotation that HTA's own tests ask for.
ALEX = "[param|pytorch.model.alex_net|0|0|0|measure|forward]"


def recorded_rank(name: str) -> RankTrace:
    """The first rank of a file in ``tests/data/kineto``."""
    return load_kineto(TESTS / f"data/kineto/{name}.json.gz").ranks[0]


@cache
def recorded(name: str) -> TorchCriticalPath:
    asked = {"annotation": ALEX, "instance": 1} if name == "simple_add" else {}
    return torch_critical_path(load_kineto(RECORDED[name]), **asked)


def dlrm_events(rank: int) -> list[dict[str, Any]]:
    """Events in the JSON of one of eight ranks."""
    with gzip.open(RECORDED["dlrm"] / f"rank{rank}.json.gz") as file:
        return list(json.load(file)["traceEvents"])


@cache
def with_execution() -> TorchCriticalPath:
    """A recorded trace with an execution trace of three operators: the third needs the first one only."""
    (rank,) = recorded("h100").trace.ranks
    events = rank.events
    operators = np.flatnonzero(events.category == Category.OPERATOR)
    operators = operators[np.argsort(events.start[operators], kind="stable")]
    rows = operators[[0, len(operators) // 2, -1]]
    record_function = np.full(len(events), -1, np.int64)
    record_function[rows] = [1, 2, 3]
    rank = replace(rank, events=replace(events, record_function=record_function))
    columns = {"number": [1, 2, 3], "name": [0, 1, 2], "record_function": [1, 2, 3]}
    nodes = ExecutionNodes.from_columns(columns | {"operator": [True] * 3, "on_device": [False] * 3})
    execution = ExecutionTrace("et.json", nodes, DataDependencies(np.array([0]), np.array([2])), ("a", "b", "c"))  # type: ignore[arg-type]
    return torch_critical_path(KinetoTrace((replace(rank, execution=execution),)))


def two_kernels(*, data_loading: tuple[str, ...] = (), gemm: int = 30, rank: int = 0) -> TorchGraph:
    """A thread and a stream, in microseconds; the second call waits until both kernels are done.

    ::

        thread:  next 0-10, aten::mm 10-30 (launch 12-14, launch 22-24), cudaDeviceSynchronize 40-90, aten::add 95-100
        stream:  gemm 20-50, relu 55-85; where gemm takes longer, relu begins later and still ends at 85
    """
    events = written(
        "next 0-10, aten::mm 10-30, cudaLaunchKernel 12-14 #1, cudaLaunchKernel 22-24 #2, "
        "cudaDeviceSynchronize 40-90 #3, aten::add 95-100, "
        f"void_gemm<float>(int) 20-{20 + gemm} #1, relu {25 + gemm}-85 #2"
    )
    return graph_of(replace(rank_of(events), rank=rank), data_loading=data_loading)


def node(nodes: Nodes, event: int, *, is_start: bool) -> int:
    return next(i for i in range(len(nodes)) if nodes.event[i] == event and nodes.is_start[i] == is_start)
