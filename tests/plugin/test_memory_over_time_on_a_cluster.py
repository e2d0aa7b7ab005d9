"""Memory over time of tasks whose results have known sizes, against Dask's own figures."""

from __future__ import annotations

import time

import dask
import pytest
from dask.sizeof import sizeof
from distributed import Client, wait

from dask_efficiency import EfficiencyPlugin, efficiency_report
from dask_efficiency.plugin.names import PLUGIN
from dask_efficiency.plugin.scheduler.replies import of_live
from tests.plugin.watch import eventually

pytestmark = pytest.mark.cluster
MIB = 2**20
#: One result fits below the target, two do not.
MEMORY_LIMIT, RESULT = 1000 * MIB, 200 * MIB
SIZE = sizeof(b"x" * RESULT)


def kept(_: int) -> bytes:
    return b"x" * RESULT


def spilled_at_last(dask_scheduler):
    """Bytes on disk in the last bin of the cluster and the worker, in which more memory may have been taken before."""
    accounts = dask_scheduler.plugins[PLUGIN]._meter.accounts
    (opened,) = accounts._windows.values()
    found = accounts.timelines.memory(opened.memory, at=time.monotonic_ns())
    return [line.spilled[-1] for line in (found.cluster, *found.workers.values())]


def test_results_are_managed_by_prefix_and_then_spilled_beside_the_limit(new_cluster):
    with (
        dask.config.set({"distributed.worker.memory.target": 0.3, "distributed.worker.memory.spill": False}),
        new_cluster(n_workers=1, threads_per_worker=1, memory_limit=MEMORY_LIMIT) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(EfficiencyPlugin())
        accounts = cluster.scheduler.plugins[PLUGIN]._meter.accounts

        def told(managed: int, spilled: int) -> bool:
            levels = [one.memory for one in dict(accounts.cluster.present).values() if one.memory is not None]
            return [(one.held, one.spilled) for one in levels] == [(managed, spilled)]

        with efficiency_report(client) as report:
            first = client.submit(kept, 1)
            wait(first)
            eventually(lambda: told(SIZE, 0))
            second = client.submit(kept, 2)
            wait(second)
            eventually(lambda: told(SIZE, SIZE))
            memory = of_live(accounts)["memory"]
            state = cluster.scheduler.memory
            eventually(lambda: client.run_on_scheduler(spilled_at_last) == [SIZE, SIZE])
            del first, second
    timeline = report.memory_timeline
    assert timeline is not None
    assert (timeline.cluster.limit, max(timeline.cluster.managed), max(timeline.cluster.spilled)) == (
        MEMORY_LIMIT,
        SIZE,
        SIZE,
    )
    assert list(timeline.cluster.prefixes) == ["kept"]
    (worker,) = timeline.workers.values()
    # of a worker the peak between two heartbeats is known, too
    assert all(at_most >= then for at_most, then in zip(worker.process, timeline.cluster.process, strict=True))
    assert (max(worker.managed), max(worker.spilled)) == (SIZE, SIZE)
    assert timeline.cluster.peak > SIZE
    assert (memory["managed"], memory["spilled"], memory["limit"]) == (state.managed, SIZE, MEMORY_LIMIT)
    assert memory["prefixes"] == {"kept": SIZE}
    assert "Memory through the run" in report._repr_html_()
