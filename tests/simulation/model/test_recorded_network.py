from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dask_efficiency.runs.trace.files import load_trace
from dask_efficiency.runs.trace.run_trace import RunTrace, WorkerSpec
from dask_efficiency.runs.trace.schema import Transfers
from dask_efficiency.simulation.model.network import Constant
from dask_efficiency.simulation.model.recorded_network import arrivals, knows
from dask_efficiency.simulation.model.topology import Host, Link, Topology
from dask_efficiency.simulation.model.transfer_costs import transfer_costs
from tests.simulation.model.test_cluster import RECORDED
from tests.simulation.topologies import MBIT

MS = 1_000_000

WORKERS = tuple(WorkerSpec(str(i), f"tcp://10.0.0.{i}:1", f"10.0.0.{i}", 1, 0) for i in range(3))


def star(bandwidth: float) -> Topology:
    hosts = tuple(Host(f"pc{i}", address=f"10.0.0.{i}") for i in range(3))
    return Topology(hosts, ("top",), tuple(Link((host.name, "top"), bandwidth) for host in hosts), payload=1.0)


def recorded(messages: int, took: int) -> RunTrace:
    """A run in which each message of 1.25 MB from worker 1 to worker 0 took so long, one after the other."""
    start = np.arange(messages, dtype=np.int64) * 1000 * MS
    columns = {
        "task": np.zeros(messages, np.int32),
        "sender": np.full(messages, 1, np.int32),
        "receiver": np.zeros(messages, np.int32),
        "nbytes": np.full(messages, 1_250_000, np.int64),
        "start": start,
        "stop": start + took,
        "arrived": np.ones(messages, bool),
    }
    columns = {name: np.zeros(messages, dtype) for name, dtype in Transfers.dtypes().items()} | columns
    return replace(load_trace(RECORDED), workers=WORKERS, transfers=Transfers(**columns))


def test_a_network_knows_the_hosts_of_a_run_by_name_or_address() -> None:
    assert knows(star(MBIT), WORKERS)
    assert not knows(star(MBIT), (replace(WORKERS[0], host="elsewhere"),))
    assert not knows(Constant(1e8), WORKERS)
    assert not knows(None, WORKERS)


def test_recorded_messages_share_the_network_as_they_did() -> None:
    # Two of 1.25 MB to worker 0 share its 100 Mbit: 200 ms; one that comes when both are there has it alone: 100 ms.
    sender, receiver = np.array([1, 2, 1]), np.array([0, 0, 0])
    start = np.array([5, 5, 300]) * MS

    there = arrivals(star(100 * MBIT), WORKERS, sender, receiver, start, np.full(3, 1_250_000))

    assert there / MS == pytest.approx([205.0, 205.0, 400.0])


def test_what_the_network_took_is_no_cost_of_transfers_where_it_is_known() -> None:
    # 100 ms over 100 Mbit, and 5 ms beside it.
    costs = transfer_costs(recorded(50, 105 * MS), star(100 * MBIT))

    beside = costs.latency + costs.message + costs.result + 1_250_000 * costs.byte_beside_network
    assert beside * float(np.median(costs.factors)) == pytest.approx(5 * MS, rel=1e-6)


def test_a_network_that_is_slower_than_the_run_was_leaves_some_cost() -> None:
    costs = transfer_costs(recorded(50, 105 * MS), star(10 * MBIT))

    assert (costs.factors > 0).all()
