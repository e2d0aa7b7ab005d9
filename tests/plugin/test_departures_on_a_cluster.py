"""Why workers leave, on a cluster whose workers end in each way."""

from __future__ import annotations

import inspect
import os
import re
from typing import Any

import pytest
from distributed import Client, Worker, wait

from dask_efficiency import EfficiencyPlugin, efficiency_report
from dask_efficiency.plugin.names import PLUGIN
from tests.plugin.tasks import increment
from tests.plugin.watch import addresses, eventually, worker_process

pytestmark = pytest.mark.cluster
#: Bytes: more than a worker has of its own, and less than it takes.
MEMORY_LIMIT = 600_000_000


def exit_with_three(dask_worker: Any) -> None:
    dask_worker.loop.call_later(0.1, os._exit, 3)


def end_lifetime(dask_worker: Any) -> None:
    """As Dask's own timer does; without a heartbeat that comes after the removal, at which a worker closes as well."""
    assert 'self.close_gracefully, reason="worker-lifetime-reached"' in inspect.getsource(Worker.__init__)
    dask_worker.periodic_callbacks["heartbeat"].stop()
    dask_worker.loop.add_callback(dask_worker.close_gracefully, reason="worker-lifetime-reached")


def take_more_memory_than_there_is(dask_worker: Any, nbytes: int) -> None:
    def take() -> None:
        dask_worker.taken = b"x" * nbytes

    dask_worker.loop.call_later(0.1, take)


def test_each_worker_that_leaves_has_its_reason(new_cluster, tmp_path):
    file = str(tmp_path / "scheduler.json")
    with new_cluster(n_workers=3, memory_limit=MEMORY_LIMIT) as cluster, Client(cluster) as client:
        client.write_scheduler_file(file)
        client.register_plugin(EfficiencyPlugin())
        present = cluster.scheduler.plugins[PLUGIN]._meter.accounts.cluster.present

        def metered() -> dict[str, Any] | None:
            there = dict(present)
            return there if len(there) == 4 and all(one.received for one in there.values()) else None

        def left(address: str, reason: str) -> str:
            """Wait until a worker has left for a reason."""
            eventually(lambda: re.fullmatch(reason, there[address].loss.reason))
            return str(there[address].loss.reason)

        with worker_process(file, "apart", tmp_path) as apart, efficiency_report(client) as report:
            there = eventually(metered)
            exits, grows, retires, ends = addresses(client)
            result = client.submit(increment, 1, workers=[ends], allow_other_workers=True)
            wait(result)
            client.run(exit_with_three, workers=[exits])
            left(exits, "exited with status 3")
            client.run(take_more_memory_than_there_is, nbytes=MEMORY_LIMIT, workers=[grows])
            for_memory = left(grows, r"killed by its nanny at \d+% of its memory limit")
            client.run(end_lifetime, workers=[retires])
            left(retires, "its lifetime was over")
            apart.terminate()
            left(ends, "closed on SIGTERM")
            assert client.submit(increment, result).result() == 3
    # Of those that left in order, the one whose result was lost cost something.
    assert {one.worker: one.reason for one in report.lost_workers} == {
        "0": "exited with status 3",
        "1": for_memory,
        "apart": "closed on SIGTERM",
    }
    (lost,) = (one for one in report.lost_workers if one.in_order)
    assert (lost.worker, lost.ns, lost.recomputed_tasks) == ("apart", 0, 1)
    assert lost.recomputed_ns == report.breakdown.ns("recomputed") > 0
