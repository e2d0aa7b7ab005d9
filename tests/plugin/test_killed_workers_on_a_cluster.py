"""Workers that their tasks take down: which task it was, as small programs after public reports.

dask/distributed #5234: a few tasks ran, and each that was assigned to the worker became suspicious. #2789: workers die
for memory, and nothing had suggested so before. #1829: they die, with no reason given.
"""

from __future__ import annotations

import os
import time
from typing import Any

import dask
import pytest
from distributed import Client, KilledWorker

from dask_efficiency import EfficiencyPlugin, efficiency_report
from dask_efficiency.plugin.names import PLUGIN
from dask_efficiency.plugin.scheduler.replies import of_live
from tests.plugin.tasks import increment
from tests.plugin.watch import eventually

pytestmark = pytest.mark.cluster
#: Bytes: more than a worker has of its own, and less than it takes.
MEMORY_LIMIT = 700_000_000


def hog(nbytes: int, pieces: int) -> None:
    """Take memory in so many pieces, until the worker is killed."""
    taken = []
    for _ in range(pieces):
        taken.append(b"x" * (nbytes // pieces))
        time.sleep(0.2 if pieces > 1 else 0)
    time.sleep(60)  # the nanny looks now and then


@pytest.mark.parametrize("pieces", [1, 20])
def test_the_task_that_takes_workers_down_is_named_and_no_other(new_cluster, pieces):
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        new_cluster(n_workers=1, threads_per_worker=1, memory_limit=MEMORY_LIMIT) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(EfficiencyPlugin())
        present = cluster.scheduler.plugins[PLUGIN]._meter.accounts.cluster.present
        eventually(lambda: any(one.received for one in dict(present).values()))
        with efficiency_report(client) as report:
            killing = client.submit(hog, MEMORY_LIMIT, pieces, key="hog-1", priority=1)
            # wait with it on the same worker, and are as suspicious to Dask
            others = client.map(increment, range(3), key=[f"innocent-{i}" for i in range(3)])
            with pytest.raises(KilledWorker):
                killing.result()
        live = of_live(cluster.scheduler.plugins[PLUGIN]._meter.accounts)
        del others
    first, second = (one for one in report.lost_workers if one.worker)
    for lost in (first, second):
        assert lost.reason.startswith("killed by its nanny at ")
        assert [(task.key, task.prefix) for task in lost.in_threads] == [("hog-1", "hog")]
        assert lost.memory_limit == MEMORY_LIMIT
        assert lost.last_memory[-1].nbytes >= 0.95 * MEMORY_LIMIT > lost.last_memory[0].nbytes
    assert live["killers"] == {"hog-1": 2}
    ((where, _), *_) = [one.lines for one in report.findings if one.kind == "killed-worker"]
    told = "Task hog-1 was in a thread of 2 workers as they were lost; worker 0 was lost (killed by its nanny at "
    assert told in where
    assert " -> " in where


def exit_at_once(_: Any) -> None:
    os._exit(3)


def test_a_task_that_crashes_its_worker_is_named_with_what_was_measured(new_cluster):
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        new_cluster(n_workers=1, threads_per_worker=2) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(EfficiencyPlugin())
        with efficiency_report(client) as report:
            crashes = client.submit(exit_at_once, 1, key="crash-1")
            with pytest.raises(KilledWorker):
                crashes.result()
    lost = [one for one in report.lost_workers if one.worker]
    assert [[task.key for task in one.in_threads] for one in lost] == [["crash-1"], ["crash-1"]]
    assert {one.reason for one in lost} == {"exited with status 3"}
