from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulated_traces import MS, tree
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import Transfers
from dask_efficiency.simulation.model.transfer_costs import transfer_costs
from tests.runs.trace.samples import damaged_traces


def moved(*messages: tuple[int, int, int, list[int]], latency: int, message: int, result: int, byte: int) -> RunTrace:
    """A run with these messages: (receiver, sender, start, sizes), one after the other on each receiver's loop."""
    rows: dict[str, list[Any]] = {
        name: [] for name in ("receiver", "sender", "nbytes", "queued", "start", "stop", "arrived")
    }
    free: dict[int, int] = {}
    for receiver, sender, start, sizes in messages:
        ready = max(free.get(receiver, 0), start + latency)
        stop = free[receiver] = ready + message + result * len(sizes) + byte * sum(sizes)
        for size in sizes:
            for name, value in zip(rows, (receiver, sender, size, start, start, stop, True), strict=True):
                rows[name].append(value)
    return replace(tree(8), transfers=Transfers.from_columns({"task": np.zeros(len(rows["stop"]), np.int64), **rows}))


COSTS = {"latency": 2 * MS, "message": MS, "result": 200_000, "byte": 5}


def test_costs_are_found_again_where_the_transfers_tell_them_apart() -> None:
    rng = np.random.default_rng(0)
    messages = []
    for i in range(600):
        start = i * 200 * MS
        sizes = rng.integers(1, 200_000, rng.integers(1, 9)).tolist()
        messages += [(0, sender, start, sizes) for sender in range(1, 1 + int(rng.integers(1, 4)))]
    found = transfer_costs(moved(*messages, **COSTS))
    assert [found.latency, found.message, found.result, found.byte] == pytest.approx(list(COSTS.values()), rel=0.1)
    assert found.factors == pytest.approx(np.ones(600), rel=0.05)
    assert found.byte_beside_network < COSTS["byte"]


@settings(max_examples=15)
@given(st.integers(1, 60), st.integers(1, 3000), st.integers(1, 5))
def test_a_run_whose_transfers_are_all_alike_gets_their_time_back(count: int, kilobytes: int, results: int) -> None:
    messages = [(0, 1, i * 200 * MS, [1000 * kilobytes] * results) for i in range(count)]
    found = transfer_costs(moved(*messages, **COSTS))
    real = sum(COSTS.values()) - COSTS["byte"] - COSTS["result"]
    real += results * (COSTS["result"] + COSTS["byte"] * 1000 * kilobytes)
    predicted = found.latency + found.message + results * (found.result + found.byte * 1000 * kilobytes)
    assert predicted * float(np.mean(found.factors)) == pytest.approx(real, rel=1e-6)


def test_stretches_of_many_workers_in_a_long_run_are_told_apart() -> None:
    """Nanoseconds of an hour, times pairs of 4,000 workers, do not fit into 64 bits."""
    found = []
    for apart in (1, 100):
        messages = [(apart * i, apart * i + 1, i * 90_000 * MS, [1000] * 3) for i in range(40)]
        found.append(transfer_costs(moved(*messages, **COSTS)))
    few, many = found
    assert len(many.factors) == 40
    np.testing.assert_array_equal(many.factors, few.factors)


def test_results_that_came_together_are_one_message() -> None:
    together = transfer_costs(moved((0, 1, 0, [10] * 50), **COSTS))
    shifted = moved((0, 1, 0, [10] * 50), **COSTS)
    each = shifted.transfers.columns()
    each["stop"] = each["stop"] - np.arange(50)[::-1] * 20_000
    each["start"] = each["start"] + np.arange(50) * 1000
    found = transfer_costs(replace(shifted, transfers=Transfers(**each)))
    assert found.message == pytest.approx(together.message)
    assert found.factors == pytest.approx(together.factors)


def test_without_transfers_costs_are_assumed() -> None:
    found = transfer_costs(replace(tree(8), transfers=Transfers.empty()))
    assert found.latency > 0
    assert found.message > 0
    assert found.factors.tolist() == [1.0]


@settings(max_examples=15)
@given(damaged_traces())
def test_costs_are_never_negative_or_unknown(trace: RunTrace) -> None:
    found = transfer_costs(trace)
    costs = [found.latency, found.message, found.result, found.byte, found.byte_beside_network]
    assert np.isfinite(costs).all()
    assert min(costs) >= 0
    assert len(found.factors)
    assert (np.isfinite(found.factors) & (found.factors >= 0)).all()
