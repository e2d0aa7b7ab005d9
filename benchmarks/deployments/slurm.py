"""SLURM: dask-jobqueue's `SLURMCluster` on Debian's SLURM, configured for this machine alone and taken down again."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
from benchmarks.deployments.programs import HOST, Need, eventually, program, python_path
from dashboards.monitor.prometheus import free_port
from dask_efficiency import EfficiencyPlugin, snapshot

NEEDS = (
    Need("slurmctld", debian="slurmctld", program="/usr/sbin/slurmctld"),
    Need("slurmd", debian="slurmd", program="/usr/sbin/slurmd"),
    Need("sbatch", debian="slurm-client", program="sbatch"),
    Need("munged", debian="munge", program="/usr/sbin/munged"),
    Need("dask-jobqueue", module="dask_jobqueue"),
)

WORKERS, THREADS = 2, 2

#: Thread-seconds: two seconds from a worker's last heartbeat until its cancelled job has ended.
LOST = 2.0 * WORKERS * THREADS

#: One node, which says that it has room for all jobs at once, and nothing that looks beyond this machine.
CONFIGURATION = """
ClusterName=loopback
SlurmctldHost={name}({host})
SlurmctldPort={controller_port}
SlurmdPort={node_port}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1
KillWait=5
ReturnToService=2
NodeName={name} NodeAddr={host} CPUs=8 RealMemory=8000
PartitionName=all Nodes=ALL Default=YES MaxTime=10
"""


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


@contextmanager
def slurm(folder: Path) -> Iterator[None]:
    """SLURM is up, and its commands in this process and its own find it."""
    name = socket.gethostname().partition(".")[0]
    ports = {"controller_port": free_port(), "node_port": free_port()}
    config = folder / "slurm.conf"
    config.write_text(CONFIGURATION.format(name=name, host=HOST, folder=folder, **ports))
    for directory in ("state", "spool"):
        (folder / directory).mkdir()
    with ExitStack() as stack:
        _authenticated(folder, stack)
        stack.enter_context(_environment("SLURM_CONF", str(config)))
        stack.enter_context(program([NEEDS[0].program, "-D", "-f", str(config)], folder / "slurmctld.log"))
        stack.enter_context(program([NEEDS[1].program, "-D", "-f", str(config)], folder / "slurmd.log"))
        eventually(lambda: "idle" in _output("sinfo", "--noheader", "--format=%T"), what="an idle node")
        try:
            yield
        finally:
            _output("scancel", "--user=root")
            eventually(lambda: not _output("squeue", "--noheader"), what="the jobs to end")


def _authenticated(folder: Path, stack: ExitStack) -> None:
    """Start the daemon by which SLURM's programs authenticate, with a key of its own."""
    key, socket_file = folder / "munge.key", folder / "munge.socket"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    places = {
        "key-file": key,
        "socket": socket_file,
        "pid-file": folder / "munge.pid",
        "seed-file": folder / "munge.seed",
    }
    # By force: it does not like the folder, which is not everybody's.
    command = [NEEDS[3].program, "--foreground", "--force", *(f"--{option}={path}" for option, path in places.items())]
    stack.enter_context(program(command, folder / "munged.log"))
    eventually(socket_file.exists, what="munged")


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def _output(*command: str) -> str:
    """Output of one of SLURM's commands; empty where it fails, as it does until the controller is up."""
    return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.strip()
