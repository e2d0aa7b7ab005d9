"""Adaptive scaling: workers that come and go and come again, and tasks that wait for the first of them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distributed import Client, LocalCluster, Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin

from benchmarks.deployments.checks import (
    Check,
    Known,
    equal,
    observed,
    of_metrics,
    of_report,
    submit,
    wait_for_accounts,
)
from dask_efficiency import EfficiencyPlugin, snapshot
from tests.deployments.programs import HOST, eventually

THREADS = 1

SCALING = {"minimum": 0, "maximum": 3, "interval": "200ms", "target_duration": "200ms"}

#: Of `adapt()`: how often in a row a worker must be found superfluous. It is retired at once, or not at all.
AT_ONCE, NEVER = 1, 10**6


class Names(SchedulerPlugin):
    """Every name that a worker ever had: Dask uses those of departed workers again."""

    name = "names"

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        self.seen.add(str(scheduler.workers[worker].name))


def come_and_go(*, eagerly: bool) -> list[Check]:
    """Two computations; after each, all workers are retired.

    Eagerly: as soon as they have nothing to do. Otherwise not before the scheduler's accounts have all their tasks.
    """
    with _empty_cluster() as (cluster, client):
        cluster.scheduler.add_plugin(names := Names())
        known = Known(0, 0, 0, 0, 0)
        with observed(client) as seen:
            for _ in range(2):
                cluster.adapt(**SCALING, wait_count=AT_ONCE if eagerly else NEVER)
                known += submit(client).known()
                if not eagerly:
                    wait_for_accounts(client, known)
                    cluster.adapt(**SCALING, wait_count=AT_ONCE)
                eventually(lambda: not cluster.scheduler.workers, what="the last worker's end")
        left = [stay for stay in seen.stays if stay.left < math.inf]
        return [
            equal("workers that came are gone", len(seen.stays), len(left)),
            equal("more came than may be there at once", True, len(left) > SCALING["maximum"]),
            *of_report(seen, known, workers=len(names.seen), threads=THREADS),
            *of_metrics(cluster.scheduler.http_server.port, known, snapshot(client)),
        ]


def from_zero(*, waiting_seconds: float) -> list[Check]:
    """Tasks are outstanding for a while before the cluster is scaled from 0 to 2 workers."""
    with _empty_cluster() as (cluster, client):
        with observed(client) as seen:
            submitted = submit(client)
            eventually(lambda: cluster.scheduler.tasks, what="the tasks to be with the scheduler")
            time.sleep(waiting_seconds)
            cluster.scale(2)
            known = submitted.known()
        return [
            *of_report(seen, known, workers=2, threads=THREADS),
            *of_metrics(cluster.scheduler.http_server.port, known, snapshot(client)),
        ]


@contextmanager
def _empty_cluster() -> Iterator[tuple[Any, Client]]:
    options = {"threads_per_worker": THREADS, "host": HOST, "dashboard_address": f"{HOST}:0", "silence_logs": 50}
    with LocalCluster(n_workers=0, **options) as cluster, Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin())
        yield cluster, client
