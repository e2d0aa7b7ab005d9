from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_efficiency.runs.trace.files import load_trace
from dask_efficiency.runs.trace.run_trace import RunTrace, WorkerSpec
from dask_efficiency.runs.trace.schema import Transfers
from dask_efficiency.simulation.model.topology import ConstantNetwork, Host, Topology
from dask_efficiency.simulation.model.transfer_costs import arrivals_on, has_hosts, transfer_costs
from tests.runs.trace.samples import damaged_traces
from tests.simulated_traces import MS, tree
from tests.simulation.model.test_cluster import RECORDED
from tests.simulation.topologies import MBIT, star

WORKERS = tuple(WorkerSpec(str(i), f"tcp://10.0.0.{i}:1", f"10.0.0.{i}", 1, 0) for i in range(3))


def lab(bandwidth: float) -> Topology:
    return star([Host(f"pc{i}", address=f"10.0.0.{i}") for i in range(3)], bandwidth, payload=1.0)


def recorded(messages: int, took: int) -> RunTrace:
    """A run in which each message of 1.25 MB from worker 1 to worker 0 took so long, one after the other."""
    start = np.arange(messages, dtype=np.int64) * 1000 * MS
    columns = {name: np.zeros(messages, dtype) for name, dtype in Transfers.dtypes().items()}
    columns |= {"sender": np.ones(messages, np.int32), "nbytes": np.full(messages, 1_250_000, np.int64)}
    columns |= {"start": start, "stop": start + took, "arrived": np.ones(messages, bool)}
    return replace(load_trace(RECORDED), workers=WORKERS, transfers=Transfers(**columns))


def test_recorded_messages_share_the_network_as_they_did() -> None:
    # Two of 1.25 MB to worker 0 share its 100 Mbit: 200 ms; one that comes when both are there has it alone: 100 ms.
    sender, receiver = np.array([1, 2, 1]), np.array([0, 0, 0])
    start = np.array([5, 5, 300]) * MS
    there = arrivals_on(lab(100 * MBIT), WORKERS, sender, receiver, start, np.full(3, 1_250_000))
    assert there / MS == pytest.approx([205.0, 205.0, 400.0])
    assert has_hosts(lab(MBIT), WORKERS)  # by their addresses
    assert not has_hosts(lab(MBIT), (replace(WORKERS[0], host="elsewhere"),))
    assert not has_hosts(ConstantNetwork(1e8), WORKERS)
    assert not has_hosts(None, WORKERS)


def test_the_time_of_a_known_network_is_no_cost_of_transfers() -> None:
    # 100 ms over 100 Mbit, and 5 ms beside it.
    costs = transfer_costs(recorded(50, 105 * MS), lab(100 * MBIT))
    beside = costs.latency + costs.message + costs.result + 1_250_000 * costs.byte_with_network
    assert beside * float(np.median(costs.factors)) == pytest.approx(5 * MS, rel=1e-6)
    # One that is slower than the run was leaves some cost.
    assert (transfer_costs(recorded(50, 105 * MS), lab(10 * MBIT)).factors > 0).all()


def moved(*messages: tuple[int, int, int, list[int]], latency: int, message: int, result: int, byte: int) -> RunTrace:
    """A run with these messages: (receiver, sender, start, sizes), one after the other on each receiver's loop."""
    names = ("receiver", "sender", "nbytes", "queued", "start", "stop", "arrived")
    rows: dict[str, list[Any]] = {name: [] for name in names}
    free: dict[int, int] = {}
    for receiver, sender, start, sizes in messages:
        ready = max(free.get(receiver, 0), start + latency)
        stop = free[receiver] = ready + message + result * len(sizes) + byte * sum(sizes)
        for size in sizes:
            for name, value in zip(rows, (receiver, sender, size, start, start, stop, True), strict=True):
                rows[name].append(value)
    return replace(tree(8), transfers=Transfers.from_columns({"task": np.zeros(len(rows["stop"]), np.int64), **rows}))


COSTS = {"latency": 2 * MS, "message": MS, "result": 200_000, "byte": 5}


def test_costs_are_found_again_if_transfers_differ() -> None:
    rng = np.random.default_rng(0)
    messages = []
    for i in range(600):
        start = i * 200 * MS
        sizes = rng.integers(1, 200_000, rng.integers(1, 9)).tolist()
        messages += [(0, sender, start, sizes) for sender in range(1, 1 + int(rng.integers(1, 4)))]
    found = transfer_costs(moved(*messages, **COSTS))
    assert [found.latency, found.message, found.result, found.byte] == pytest.approx(list(COSTS.values()), rel=0.1)
    assert found.factors == pytest.approx(np.ones(600), rel=0.05)
    assert found.byte_with_network < COSTS["byte"]


@settings(max_examples=15)
@given(st.integers(1, 60), st.integers(1, 3000), st.integers(1, 5))
def test_a_run_whose_transfers_are_all_alike_gets_their_time_back(count: int, kilobytes: int, results: int) -> None:
    messages = [(0, 1, i * 200 * MS, [1000 * kilobytes] * results) for i in range(count)]
    found = transfer_costs(moved(*messages, **COSTS))
    real = sum(COSTS.values()) - COSTS["byte"] - COSTS["result"]
    real += results * (COSTS["result"] + COSTS["byte"] * 1000 * kilobytes)
    predicted = found.latency + found.message + results * (found.result + found.byte * 1000 * kilobytes)
    assert predicted * float(np.mean(found.factors)) == pytest.approx(real, rel=1e-6)


def test_observations_of_many_workers_in_a_long_run_are_kept_apart() -> None:
    """Nanoseconds of an hour, times pairs of 4,000 workers, do not fit into 64 bits."""
    found = []
    for apart in (1, 100):
        messages = [(apart * i, apart * i + 1, i * 90_000 * MS, [1000] * 3) for i in range(40)]
        found.append(transfer_costs(moved(*messages, **COSTS)))
    few, many = found
    assert len(many.factors) == 40
    np.testing.assert_array_equal(many.factors, few.factors)


def test_results_that_came_together_are_one_message() -> None:
    trace = moved((0, 1, 0, [10] * 50), **COSTS)
    together, each = transfer_costs(trace), trace.transfers.columns()
    each["stop"] = each["stop"] - np.arange(50)[::-1] * 20_000
    each["start"] = each["start"] + np.arange(50) * 1000
    found = transfer_costs(replace(trace, transfers=Transfers(**each)))
    assert found.message == pytest.approx(together.message)
    assert found.factors == pytest.approx(together.factors)


@settings(max_examples=15)
@given(damaged_traces())
def test_costs_are_never_negative_or_unknown(trace: RunTrace) -> None:
    found = transfer_costs(trace)
    costs = [found.latency, found.message, found.result, found.byte, found.byte_with_network]
    assert np.isfinite(costs).all()
    assert min(costs) >= 0
    assert len(found.factors)
    none = transfer_costs(replace(trace, transfers=Transfers.empty()))
    assert none.factors.tolist() == [1.0]
    assert min(none.latency, none.message) > 0
    assert (np.isfinite(found.factors) & (found.factors >= 0)).all()
