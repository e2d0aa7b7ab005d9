"""Adaptive scaling: workers that come and go and come again, and tasks that wait for the first of them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distributed import Client, LocalCluster

from benchmarks.deployments import checks
from benchmarks.deployments.checks import Check
from benchmarks.deployments.observed import Observed, observed
from benchmarks.deployments.programs import HOST, eventually
from benchmarks.deployments.work import submit
from dask_efficiency import EfficiencyPlugin, snapshot

MAXIMUM, THREADS = 3, 1


@contextmanager
def _empty_cluster() -> Iterator[tuple[LocalCluster, Client]]:
    """A metered cluster without workers."""
    with (
        LocalCluster(n_workers=0, threads_per_worker=THREADS, host=HOST, dashboard_address=f"{HOST}:0", silence_logs=50) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(EfficiencyPlugin())
        yield cluster, client


def come_and_go() -> list[Check]:
    """Two computations, and all workers gone in between and after."""
    with _empty_cluster() as (cluster, client):
        with observed(client) as seen:
            cluster.adapt(minimum=0, maximum=MAXIMUM, interval="200ms", target_duration="200ms")
            known = submit(client).known()
            eventually(lambda: not _workers(client), seconds=60, what="adapt() to end all workers")
            known += submit(client).known()
            eventually(lambda: not _workers(client), seconds=60, what="adapt() to end all workers")
        life = snapshot(client)
        came = len(seen.stays)
        return [
            checks.equal("more than one worker came, and all left", True, came > 1 and _all_left(seen)),
            *checks.of_report(seen, known, workers=came, threads=THREADS),
            *checks.of_metrics(f"{HOST}:{cluster.scheduler.http_server.port}", known, life),
        ]


def from_zero(*, waiting_seconds: float) -> list[Check]:
    """Tasks are outstanding for a while before the cluster is scaled from 0 to 2 workers."""
    with _empty_cluster() as (cluster, client):
        with observed(client) as seen:
            submitted = submit(client)
            eventually(lambda: cluster.scheduler.tasks, what="the scheduler to know of work")
            time.sleep(waiting_seconds)
            cluster.scale(2)
            known = submitted.known()
        return checks.of_report(seen, known, workers=2, threads=THREADS)


def _workers(client: Client) -> dict[str, Any]:
    workers: dict[str, Any] = client.scheduler_info(n_workers=-1)["workers"]
    return workers


def _all_left(seen: Observed) -> bool:
    return all(stay.left < math.inf for stay in seen.stays)
