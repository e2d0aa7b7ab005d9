import math
import statistics
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.torch_traces.summaries.kernel_kinds import KernelKind
from dask_efficiency.torch_traces.summaries.work import (
    Work,
    kernel_kind_times,
    kernel_times,
    merged_work,
    work_of,
)
from tests.torch_traces.path.programs import Event, call, on_cpu, rank_of, work
from tests.torch_traces.path.samples import recorded_rank

#: Runs of some kernels: name and microseconds.
RUNS = st.lists(st.tuples(st.sampled_from(["gemm", "relu_kernel", "mine"]), st.integers(0, 10**6)), min_size=1)


def launched(runs: list[tuple[str, int]]) -> list[Event]:
    """An operator by kernel, one after another: ``aten::gemm`` launches ``gemm``."""
    events, at = [], 0
    for number, (name, lasts) in enumerate(runs, 1):
        events.append(on_cpu(f"aten::{name}", at, at + 9))
        events.append(call("cudaLaunchKernel", at + 2, at + 5, number))
        events.append(work(name, at + 6, at + 6 + lasts, number))
        at += 10 + lasts
    return events


def by_name(found: Work) -> dict[str, dict[str, float]]:
    times = kernel_times(found)
    rows = zip(*(column.tolist() for column in times.columns().values()), strict=True)
    return {found.names[row[0]]: dict(zip(times.columns(), row, strict=True)) for row in rows}


@given(RUNS)
def test_kernels_have_their_count_times_quantiles_and_operator(runs: list[tuple[str, int]]) -> None:
    found = work_of(rank_of(launched(runs)))
    rows = by_name(found)
    assert set(rows) == {name for name, _ in runs}
    for name, row in rows.items():
        lasts = sorted(each / 1e6 for of, each in runs if of == name)
        assert row["count"] == len(lasts)
        assert math.isclose(row["total_seconds"], sum(lasts), abs_tol=1e-12)
        assert math.isclose(row["longest_seconds"], lasts[-1])
        assert math.isclose(row["shortest_seconds"], lasts[0])
        assert math.isclose(row["median_seconds"], lasts[(len(lasts) - 1) // 2], rel_tol=0.003, abs_tol=1e-9)
        assert math.isclose(row["high_seconds"], lasts[math.ceil(0.95 * len(lasts)) - 1], rel_tol=0.003, abs_tol=1e-9)
        if len(lasts) > 1:
            deviation = statistics.stdev(lasts)
            assert math.isclose(row["deviation_seconds"], deviation, rel_tol=1e-3, abs_tol=1e-6 * lasts[-1])
        assert found.names[int(row["operator"])] == f"aten::{name}"
    assert sum(row["total_seconds"] for row in rows.values()) == sum(kernel_kind_times(found).total_seconds)


@given(RUNS, RUNS)
def test_sums_of_two_ranks_are_those_of_both_together(one: list[tuple[str, int]], other: list[tuple[str, int]]) -> None:
    merged = by_name(merged_work([work_of(rank_of(launched(runs))) for runs in (one, other)]))
    both = by_name(work_of(rank_of(launched([*one, *other]))))
    for name, row in both.items():
        same = ("count", "total_seconds", "median_seconds", "high_seconds", "longest_seconds", "share")
        assert np.allclose([merged[name][column] for column in same], [row[column] for column in same])


def test_an_operators_own_time_is_without_the_operators_in_it() -> None:
    found = work_of(rank_of([on_cpu("aten::linear", 0, 100), on_cpu("aten::t", 10, 20), on_cpu("aten::mm", 30, 90)]))
    sums = found.operators
    own = dict(zip([found.names[name] for name in sums.name], sums.own.tolist(), strict=True))
    assert own == {"aten::linear": 30_000, "aten::t": 10_000, "aten::mm": 60_000}
    assert sums.total.sum() == 170_000


def test_operators_and_calls_shorter_than_the_clocks_unit_count() -> None:
    events = [on_cpu("aten::mm", 0, 100), on_cpu("aten::empty", 10, 10), on_cpu("aten::empty", 20, 23)]
    events += [call("cudaLaunchKernel", 30, 30, 1), work("gemm", 50, 70, 1)]
    events += [call("cudaLaunchKernel", 60, 64, 2), work("gemm", 80, 100, 2)]
    found = work_of(rank_of(events))
    calls = dict(zip([found.names[name] for name in found.operators.name], found.operators.count, strict=True))
    assert calls == {"aten::mm": 1, "aten::empty": 2}
    assert found.operators.own.sum() == 100_000
    assert [found.names[name] for name in found.kernels.operator] == ["aten::mm"]
    assert found.kernels.count.tolist() == [2]
    assert [time.calls for time in found.sequences.values()] == [1]


def test_quantiles_of_many_kernels_are_found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sorts: list[Any] = []
    argsort = np.argsort

    def counted(*args: Any, **options: Any) -> Any:
        sorts.append(args)
        return argsort(*args, **options)

    found = work_of(rank_of(launched([(f"k{number}", 10 + number) for number in range(200)])))
    monkeypatch.setattr(np, "argsort", counted)
    assert len(kernel_times(found)) == 200
    assert len(sorts) < 20


def test_a_kernel_has_the_module_and_line_that_launched_it() -> None:
    found = work_of(recorded_rank("h100"))
    times = kernel_times(found)
    names = [*found.names, None]
    (row,) = np.flatnonzero(times.kind == KernelKind.ATTENTION)
    assert names[times.operator[row]] == "aten::_flash_attention_forward"
    assert names[times.module[row]] == "nn.Module: BertSdpaSelfAttention_0"
    assert names[times.line[row]] == "transformers/models/bert/modeling_bert.py(364): forward"
    assert times.places[row] == 4


def test_without_calls_or_stacks_the_place_of_a_launch_is_missing() -> None:
    found = work_of(rank_of([work("gemm", 0, 9, 1)]))
    assert [found.kernels.operator[0], found.kernels.module[0], found.kernels.line[0]] == [MISSING] * 3


def test_a_trace_without_kernels_has_none() -> None:
    found = work_of(recorded_rank("cpu_only"))
    assert len(kernel_times(found)) == len(kernel_kind_times(found)) == 0
    assert len(found.operators) == 1
