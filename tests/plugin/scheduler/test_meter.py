from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.plugin.scheduler.meter import ClusterMeter


@pytest.mark.parametrize(("closing", "given_up"), [(False, ["tcp://a"]), (True, [])])
def test_nobody_waits_for_a_worker_that_vanished_while_one_that_closes_in_order_may_answer_yet(closing, given_up):
    cluster, found = ClusterLedger(at=0), []
    cluster.worker_joined("tcp://a", "a", 2, at=0)
    if closing:
        cluster.worker_closing("tcp://a")

    def worker_left(address: str, at: int, stimulus_id: str) -> None:
        cluster.worker_left(address, at=10**9)

    meter: Any = SimpleNamespace(
        accounts=SimpleNamespace(cluster=cluster, worker_left=worker_left),
        workers=SimpleNamespace(vanished=found.append),
    )
    ClusterMeter.worker_left(meter, "tcp://a", "handle-worker-cleanup-1")
    assert found == given_up
