"""SLURM: dask-jobqueue's `SLURMCluster` on Debian's SLURM, of this machine alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distributed import Client

from benchmarks.deployments.checks import (
    Check,
    observed,
    of_fixed_cluster,
    of_metrics,
    of_report,
    submit,
    wait_for_accounts,
)
from benchmarks.deployments.programs import Need
from dask_efficiency import EfficiencyPlugin, snapshot
from tests.deployments.programs import HOST, eventually, python_path
from tests.deployments.slurm import MUNGED, SLURMCTLD, SLURMD, slurm

NEEDS = (
    Need("slurmctld", debian="slurmctld", program=SLURMCTLD),
    Need("slurmd", debian="slurmd", program=SLURMD),
    Need("sbatch", debian="slurm-client", program="sbatch"),
    Need("munged", debian="munge", program=MUNGED),
    Need("dask-jobqueue", module="dask_jobqueue"),
)

WORKERS, THREADS = 2, 2

#: Thread-seconds: two seconds from a worker's last heartbeat until its cancelled job has ended.
LOST = 2.0 * WORKERS * THREADS


def fixed(folder: Path) -> list[Check]:
    with metered_cluster(folder) as (cluster, client):
        cluster.scale(jobs=WORKERS)
        client.wait_for_workers(WORKERS, timeout=60)
        return of_fixed_cluster(client, workers=WORKERS, threads=THREADS)


def from_zero_to_zero(folder: Path) -> list[Check]:
    """Work that is there before the first job is asked for, and jobs that are cancelled when it is in the accounts.

    SLURM's cancelling kills a worker before it can say anything: what it did since its last heartbeat nobody knows.
    """
    with metered_cluster(folder) as (cluster, client):
        with observed(client) as seen:
            submitted = submit(client)
            cluster.scale(jobs=WORKERS)
            known = submitted.known()
            wait_for_accounts(client, known)
            cluster.scale(0)
            eventually(lambda: not cluster.scheduler.workers, what="the jobs to end")
        port = client.scheduler_info()["services"]["dashboard"]
        return [
            *of_report(seen, known, workers=WORKERS, threads=THREADS, lost_seconds=LOST),
            *of_metrics(port, known, snapshot(client)),
        ]


@contextmanager
def metered_cluster(folder: Path) -> Iterator[tuple[Any, Client]]:
    """A cluster that asks SLURM for its workers, of which there is none yet."""
    with slurm(folder):
        from dask_jobqueue import SLURMCluster

        options = {
            "cores": THREADS,
            "processes": 1,
            "memory": "1GB",
            "walltime": "00:10:00",
            "interface": "lo",
            "python": sys.executable,
            "local_directory": str(folder),
            "log_directory": str(folder),
            "job_script_prologue": [f"export PYTHONPATH={python_path()}"],
            "scheduler_options": {"interface": "lo", "dashboard_address": f"{HOST}:0"},
        }
        with SLURMCluster(**options) as cluster, Client(cluster) as client:
            client.register_plugin(EfficiencyPlugin())
            yield cluster, client
