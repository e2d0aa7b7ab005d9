"""When operators could have begun for their data alone, and how long data alone take."""

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.torch_traces.kineto.load import load_kineto
from dask_efficiency.torch_traces.kineto.trace import RankTrace
from dask_efficiency.torch_traces.path.data_flow import DataFlow, data_flow
from dask_efficiency.torch_traces.path.region import find_region
from tests.torch_traces.kineto.test_execution import MM, node, tensor
from tests.torch_traces.path.programs import written

SHORT, LONG = 3, 6


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two branches of matrix products, one after the other, and then their sum; as PyTorch recorded them."""
    import torch
    from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, record_function

    folder = tmp_path_factory.mktemp("recorded")
    times, tensors = folder / "rank.pt.trace.json", folder / "et.json"
    first, second = torch.randn(2, 150, 150)
    observer = ExecutionTraceObserver().register_callback(str(tensors))
    with profile(activities=[ProfilerActivity.CPU], execution_trace_observer=observer) as profiler:
        with record_function("branches"):
            one, other = first, second
            for _ in range(SHORT):
                one = torch.mm(one, first)
            for _ in range(LONG):
                other = torch.mm(other, second)
        with record_function("together"):
            torch.add(one, other).mul_(2)
    profiler.export_chrome_trace(str(times))
    return times, tensors


@pytest.fixture(scope="module")
def trace(recorded: tuple[Path, Path]) -> RankTrace:
    times, tensors = recorded
    return load_kineto(times, execution_trace=tensors).ranks[0]


@pytest.fixture(scope="module")
def products(recorded: tuple[Path, Path]) -> list[tuple[int, int]]:
    """Start and duration of each product, nanoseconds after the first one's start."""
    events = json.loads(recorded[0].read_text(), parse_float=Decimal)["traceEvents"]
    found = sorted((event["ts"], event["dur"]) for event in events if event.get("name") == "aten::mm")
    return [(int((start - found[0][0]) * 1000), int(duration * 1000)) for start, duration in found]


def names(flow: DataFlow) -> list[str]:
    return [flow.execution.names[name] for name in flow.operators.name]


@pytest.mark.needs("torch")
def test_of_two_branches_in_sequence_the_longer_one_is_the_floor(
    trace: RankTrace, products: list[tuple[int, int]]
) -> None:
    flow = data_flow(trace, find_region(trace, "branches"))
    assert names(flow) == ["aten::mm"] * (SHORT + LONG)
    short, long = (sum(duration for _, duration in part) for part in (products[:SHORT], products[SHORT:]))
    assert flow.floor_seconds == max(short, long) / 1e9
    expected = range(SHORT) if short > long else range(SHORT, SHORT + LONG)
    assert flow.longest.tolist() == list(expected)


@pytest.mark.needs("torch")
def test_the_second_branch_could_begin_with_the_first(trace: RankTrace, products: list[tuple[int, int]]) -> None:
    flow = data_flow(trace, find_region(trace, "branches"))
    earliest = [
        sum(duration for _, duration in products[begin:row])
        for begin, end in ((0, SHORT), (SHORT, SHORT + LONG))
        for row in range(begin, end)
    ]
    starts = [start for start, _ in products]
    assert (flow.operators.earliest - flow.operators.start[0]).tolist() == earliest
    earlier = [(start - other) / 1e9 for start, other in zip(starts, earliest, strict=True)]
    assert flow.earlier_seconds.tolist() == earlier
    assert flow.operators.ready[SHORT] == flow.operators.start[0]
    assert flow.operators.ready[SHORT + 1] == flow.operators.stop[SHORT]


@pytest.mark.needs("torch")
def test_an_operator_that_needs_both_branches_comes_after_the_longer_one(trace: RankTrace) -> None:
    flow = data_flow(trace)
    operators = flow.operators
    assert names(flow)[-2:] == ["aten::add", "aten::mul_"]
    alone = data_flow(trace, find_region(trace, "branches"))
    assert flow.floor_seconds == pytest.approx(alone.floor_seconds + operators.duration[-2:].sum() / 1e9, abs=1e-12)
    assert flow.longest[-2:].tolist() == [SHORT + LONG, SHORT + LONG + 1]
    assert flow.floor_seconds <= (operators.stop.max() - operators.start.min()) / 1e9


@pytest.mark.needs("torch")
def test_nothing_begins_before_its_data_as_it_was(trace: RankTrace) -> None:
    operators = data_flow(trace).operators
    assert (operators.earliest <= operators.ready).all()
    assert (operators.ready <= operators.start).all()


@pytest.mark.needs("torch")
def test_data_from_outside_the_region_are_there_from_its_beginning(trace: RankTrace) -> None:
    flow = data_flow(trace, find_region(trace, "together"))
    assert names(flow) == ["aten::add", "aten::mul_"]
    assert flow.operators.earliest[0] == flow.operators.ready[0] == flow.operators.start[0]
    assert flow.longest.tolist() == [0, 1]


@pytest.mark.needs("torch")
def test_without_an_execution_trace_there_is_no_data_flow(recorded: tuple[Path, Path]) -> None:
    with pytest.raises(ValueError, match="it was read without an execution trace; give load_kineto an execution_trace"):
        data_flow(load_kineto(recorded[0]).ranks[0])


VIEW = "aten::t(Tensor(a) self) -> Tensor(a)"


@pytest.fixture
def load(tmp_path: Path) -> Callable[[list[Any], dict[str, Any]], RankTrace]:
    def load(events: list[Any], execution: dict[str, Any]) -> RankTrace:
        (tmp_path / "rank.json").write_text(json.dumps({"traceEvents": events}))
        (tmp_path / "et.json").write_text(json.dumps(execution))
        return load_kineto(tmp_path / "rank.json", execution_trace=tmp_path / "et.json").ranks[0]

    return load


def test_on_a_gpu_operators_take_as_long_as_their_kernels(load: Any) -> None:
    # launches take 1 us each; the first product's two kernels run on two streams beside each other
    nodes = [
        node(2, 1, "aten::mm", [tensor(1, "cuda:0")], [tensor(5, "cuda:0")], MM),
        node(3, 1, "aten::t", [tensor(5, "cuda:0")], [[6, 105, 0, 64, 4, "cuda:0"]], VIEW),
        node(4, 1, "aten::mm", [[6, 105, 0, 64, 4, "cuda:0"]], [tensor(7, "cuda:0")], MM),
        node(5, 1, "aten::mm", [tensor(1, "cuda:0")], [tensor(8, "cuda:0")], MM),
    ]
    # the last kernel is of no operator
    events = written(
        """aten::mm 0-8, aten::t 10-18, aten::mm 20-28, aten::mm 30-38,
        cudaLaunchKernel 1-2 #11, cudaLaunchKernel 2-3 #12, cudaLaunchKernel 21-22 #13, cudaLaunchKernel 31-32 #14,
        cudaLaunchKernel 50-51 #15, gemm 5-105 #11, gemm 50-100 #12 @8, gemm 110-150 #13, gemm 160-220 #14,
        gemm 300-309 #15"""
    )
    for row in range(4):
        events[row]["args"]["Record function id"] = 10 * row + 20
    flow = data_flow(load(events, {"nodes": nodes}))
    operators = flow.operators
    assert operators.duration.tolist() == [100_000, 0, 40_000, 60_000]
    assert operators.start.tolist() == [5_000, 10_000, 110_000, 160_000]
    assert operators.stop.tolist() == [105_000, 18_000, 150_000, 220_000]
    assert flow.floor_seconds == 140e-6
    assert flow.earlier_seconds.tolist() == [0, 0, 5e-6, 155e-6]


def chakra(number: int, after: list[int], micros: int) -> dict[str, Any]:
    return {"id": str(number), "type": "COMP_NODE", "dataDeps": list(map(str, after)), "durationMicros": str(micros)}


def test_of_chakras_nodes_their_own_durations_count(load: Any) -> None:
    nodes = [chakra(4, [], 30), chakra(3, [4], 20), chakra(2, [], 45), chakra(1, [3, 2], 5)]
    flow = data_flow(load(written("aten::mm 0-1"), {"nodes": nodes}))
    assert flow.execution.nodes.number[flow.operators.node[flow.longest]].tolist() == [4, 3, 1]
    assert flow.floor_seconds == 55e-6
    assert (flow.operators.start == MISSING).all()
    assert np.isnan(flow.earlier_seconds).all()


def test_dependencies_in_a_circle_are_refused(load: Any) -> None:
    nodes = [chakra(1, [2], 1), chakra(2, [1], 1), chakra(3, [], 1)]
    with pytest.raises(ValueError, match="the data dependencies of node 1 have a cycle"):
        data_flow(load(written("aten::mm 0-1"), {"nodes": nodes}))
