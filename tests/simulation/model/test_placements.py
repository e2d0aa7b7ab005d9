from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.ensemble import Ensemble, SimulationJob
from dask_efficiency.simulation.model.placements import Placement, Placements, moved_between_hosts, ranked
from dask_efficiency.simulation.model.result import Prediction, SelfReplay
from dask_efficiency.simulation.model.run_figures import RunFigures
from dask_efficiency.simulation.model.topology import Cable, Host, Topology
from tests.simulated_traces import transfer_bound

TRACE = transfer_bound()

#: The hosts of the trace, 10.0.0.0 and 10.0.0.1, on a switch each.
TRUNK = Topology(
    hosts=(Host("10.0.0.0", slots=2), Host("10.0.0.1", slots=2)),
    switches=("a", "b"),
    links=(Cable(("10.0.0.0", "a"), 1e9), Cable(("10.0.0.1", "b"), 1e9), Cable(("a", "b"), 1e8)),
    payload=1.0,
)


def placement(name: str, *seconds: float, network: Any = None) -> Placement:
    runs = Ensemble(dict(enumerate(seconds)))
    cluster = ClusterSpec(TRACE.workers, network)
    return Placement(name, Prediction(SimulationJob(cluster), SelfReplay(RunFigures.of(TRACE), runs), runs, TRACE))


def test_the_fastest_comes_first_and_is_clear_if_it_is_ahead_by_more_than_runs_differ() -> None:
    found = ranked([placement("slow", 9.0, 9.1), placement("fast", 3.0, 3.1), placement("middle", 5.0, 5.1)])
    assert [one.name for one in found.ranked] == ["fast", "middle", "slow"]
    assert found.saved_seconds == pytest.approx(2.0)
    fast = placement("fast", *np.linspace(2.9, 3.1, 8))
    assert Placements((fast, placement("slow", *np.linspace(3.9, 4.1, 8)))).is_clear
    assert not Placements((fast, placement("close", *np.linspace(2.95, 3.15, 8)))).is_clear
    assert not Placements((fast,)).is_clear
    assert not Placements((placement("once", 3.0), placement("once", 9.0))).is_clear


def test_bytes_between_hosts_and_the_link_that_needs_longest_for_them_are_found() -> None:
    host = np.array([worker.host == "10.0.0.1" for worker in TRACE.workers])
    sender, receiver = host[TRACE.transfers.sender], host[TRACE.transfers.receiver]
    moved, one = moved_between_hosts(TRACE), placement("a", 10.0, network=TRUNK)
    assert moved["10.0.0.0", "10.0.0.1"] == TRACE.transfers.nbytes[~sender & receiver].sum()
    assert one.moved_bytes == TRACE.transfers.nbytes[sender != receiver].sum() == sum(moved.values())
    one_host = tuple(replace(worker, host="here") for worker in TRACE.workers)
    assert moved_between_hosts(replace(TRACE, workers=one_host)) == {}
    assert one.fullest_link == ("a - b", pytest.approx(max(moved.values()) / 1e8 / 10.0))
    assert placement("a", 10.0).fullest_link is None
    kinds = one.prediction.breakdown
    assert one.moving_seconds == kinds["transfer"] + kinds.get("transfer-queue", 0.0) > 0
