"""Recorded traces, and graphs worked out by hand, for the tests of paths."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from dask_efficiency.torch_traces import TorchCriticalPath, load_kineto
from dask_efficiency.torch_traces import critical_path as torch_critical_path
from dask_efficiency.torch_traces.kineto.execution import DataDependencies, ExecutionNodes, ExecutionTrace
from dask_efficiency.torch_traces.kineto.trace import Category, Events, KinetoTrace, RankTrace
from dask_efficiency.torch_traces.path.graph import EdgeKind, Edges, Nodes, Region, TorchGraph

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


@cache
def recorded(name: str) -> TorchCriticalPath:
    """The path of a recorded trace."""
    asked = {"annotation": ALEX, "instance": 1} if name == "simple_add" else {}
    return torch_critical_path(load_kineto(RECORDED[name]), **asked)


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
    nodes = ExecutionNodes.from_columns(
        {
            "number": [1, 2, 3],
            "name": [0, 1, 2],
            "record_function": [1, 2, 3],
            "operator": [True] * 3,
            "on_device": [False] * 3,
        }
    )
    execution = ExecutionTrace("et.json", nodes, DataDependencies(np.array([0]), np.array([2])), ("a", "b", "c"))  # type: ignore[arg-type]
    return torch_critical_path(KinetoTrace((replace(rank, execution=execution),)))


def two_kernels(*, data_loading: tuple[str, ...] = (), gemm: int = 30, rank: int = 0) -> TorchGraph:
    """A thread and a stream, in microseconds; the second call waits until both kernels are done.

    ::

        thread:  next 0-10, aten::mm 10-30 (launch 12-14, launch 16-18), cudaDeviceSynchronize 40-90, aten::add 95-100
        stream:  gemm 20-50, relu 55-85; where gemm takes longer, relu begins later and still ends at 85
    """
    rows = [
        # category, name, start, stop, is on the GPU
        (Category.ANNOTATION, "next", 0, 10, False),
        (Category.OPERATOR, "aten::mm", 10, 30, False),
        (Category.RUNTIME, "cudaLaunchKernel", 12, 14, False),
        (Category.RUNTIME, "cudaLaunchKernel", 16, 18, False),
        (Category.RUNTIME, "cudaDeviceSynchronize", 40, 90, False),
        (Category.OPERATOR, "aten::add", 95, 100, False),
        (Category.KERNEL, "void gemm<float>(int)", 20, 20 + gemm, True),
        (Category.KERNEL, "relu", 25 + gemm, 85, True),
    ]
    names = tuple(dict.fromkeys(name for _, name, *_ in rows))
    events = Events.from_columns(
        {
            "index": range(len(rows)),
            "category": [row[0] for row in rows],
            "name": [names.index(row[1]) for row in rows],
            "start": [1000 * row[2] for row in rows],
            "stop": [1000 * row[3] for row in rows],
            "process": [0 if row[4] else 7 for row in rows],
            "thread": [7 if row[4] else 70 for row in rows],
            "device": [0 if row[4] else -1 for row in rows],
            "stream": [7 if row[4] else -1 for row in rows],
            "correlation": [-1, -1, 1, 2, 3, -1, 1, 2],
            "call": [-1, -1, -1, -1, -1, -1, 2, 3],
        }
    )
    instants = sorted((at, row, is_start) for row, r in enumerate(rows) for at, is_start in ((r[2], 1), (r[3], 0)))
    nodes = Nodes.from_columns(
        {
            "at": [1000 * at for at, _, _ in instants],
            "event": [row for _, row, _ in instants],
            "is_start": [bool(is_start) for _, _, is_start in instants],
        }
    )
    trace = RankTrace(rank, None, "by hand", events, names)
    region = Region(0, 100_000, range(len(rows)), "by hand")  # type: ignore[arg-type]
    return TorchGraph(trace, region, nodes, _edges(nodes, gemm), data_loading)


def node(nodes: Nodes, event: int, *, is_start: bool) -> int:
    """The position of the start or the end of an event."""
    return next(i for i in range(len(nodes)) if nodes.event[i] == event and nodes.is_start[i] == is_start)


def _edges(nodes: Nodes, gemm: int) -> Edges:
    def at(event: int, end: str) -> int:
        return node(nodes, event, is_start=end == "start")

    operator, dependency = EdgeKind.OPERATOR, EdgeKind.DEPENDENCY
    rows = [
        (at(0, "start"), at(0, "end"), operator, 10, 0),
        (at(0, "end"), at(1, "start"), dependency, 0, -1),
        (at(1, "start"), at(2, "start"), operator, 2, 1),
        (at(2, "start"), at(2, "end"), operator, 2, 2),
        (at(2, "end"), at(3, "start"), operator, 2, 1),
        (at(3, "start"), at(3, "end"), operator, 2, 3),
        (at(3, "end"), at(1, "end"), operator, 12, 1),
        (at(1, "end"), at(4, "start"), dependency, 0, -1),
        (at(4, "start"), at(4, "end"), operator, 0, 4),
        (at(4, "end"), at(5, "start"), dependency, 0, -1),
        (at(5, "start"), at(5, "end"), operator, 5, 5),
        (at(2, "start"), at(6, "start"), EdgeKind.LAUNCH_DELAY, 8, -1),
        (at(6, "start"), at(6, "end"), operator, gemm, 6),
        (at(3, "start"), at(7, "start"), EdgeKind.LAUNCH_DELAY, 0, -1),
        (at(6, "end"), at(7, "start"), EdgeKind.KERNEL_DELAY, 5, -1),
        (at(7, "start"), at(7, "end"), operator, 60 - gemm, 7),
        (at(7, "end"), at(4, "end"), EdgeKind.SYNC, 0, -1),
    ]
    return Edges.from_columns(
        {
            "source": [row[0] for row in rows],
            "target": [row[1] for row in rows],
            "kind": [row[2] for row in rows],
            "weight": [1000 * row[3] for row in rows],
            "event": [row[4] for row in rows],
            "inferred": [False for _ in rows],
        }
    )
