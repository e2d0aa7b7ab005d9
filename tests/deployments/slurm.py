"""Debian's SLURM, configured for this machine alone and taken down again."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from dashboards.monitor.prometheus import free_port
from tests.deployments.programs import HOST, eventually, program

SLURMCTLD, SLURMD, MUNGED = "/usr/sbin/slurmctld", "/usr/sbin/slurmd", "/usr/sbin/munged"

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
        stack.enter_context(program([SLURMCTLD, "-D", "-f", str(config)], folder / "slurmctld.log"))
        stack.enter_context(program([SLURMD, "-D", "-f", str(config)], folder / "slurmd.log"))
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
    command = [MUNGED, "--foreground", "--force", *(f"--{option}={path}" for option, path in places.items())]
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
