"""The memory that would do, on a cluster that spills a known amount."""

from __future__ import annotations

from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client, wait

from dask_efficiency import EfficiencyPlugin, efficiency_report
from dask_efficiency.report.memory_needs import needed_limit
from tests.plugin.watch import eventually, nothing_runs

pytestmark = pytest.mark.cluster
MB = 1_000_000
#: The process does not matter: a result is spilled as soon as all of them are above 0.6 of the limit.
ONLY_TARGET = {f"distributed.worker.memory.{name}": False for name in ("spill", "pause", "terminate")}


@pytest.mark.parametrize("limit", [100 * MB, 400 * MB])
def test_results_on_disk_count_among_those_that_need_memory(new_cluster: Any, limit: int) -> None:
    with (
        dask.config.set(ONLY_TARGET),
        new_cluster(n_workers=1, memory_limit=limit) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(EfficiencyPlugin())
        eventually(lambda: nothing_runs(client))
        with efficiency_report(client=client) as report:
            kept = client.map(lambda n: np.random.default_rng(n).random(10 * MB // 8), range(12))
            wait(kept)
            # As Dask looks, ten times a second where it may spill or pause by that.
            resident = client.run(lambda dask_worker: dask_worker.monitor.get_process_memory())
        spilled = client.run(lambda dask_worker: dask_worker.data.spilled_total.memory)
    assert (sum(spilled.values()) > 0) == (limit == 100 * MB)
    (memory,) = report.memory.values()
    assert memory.managed_peak == pytest.approx(120 * MB, rel=0.01)
    assert needed_limit(memory) == pytest.approx(200 * MB, rel=0.01)
    assert memory.unspilled_peak >= max(resident.values())
