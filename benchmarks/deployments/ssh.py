"""SSH: Dask's `SSHCluster` through a daemon of its own."""

from __future__ import annotations

import sys
from pathlib import Path

from distributed import Client, SSHCluster

from benchmarks.deployments.checks import Check, of_fixed_cluster
from benchmarks.deployments.programs import Need
from dask_efficiency import EfficiencyPlugin
from tests.deployments.programs import HOST
from tests.deployments.ssh import SSHD, daemon

NEEDS = (
    Need("sshd", debian="openssh-server", program=SSHD),
    Need("ssh-keygen", debian="openssh-client", program="ssh-keygen"),
    # Of asyncssh, which SSHCluster imports; named one by one, as nothing else is to be installed.
    *(Need(name, module=name) for name in ("asyncssh", "cryptography", "cffi", "pycparser", "typing_extensions")),
)

WORKERS, THREADS = 2, 2


def run(folder: Path) -> list[Check]:
    """A scheduler and two workers, each over a connection of its own."""
    with (
        daemon(folder) as options,
        SSHCluster(
            [HOST] * (1 + WORKERS),
            connect_options=options,
            remote_python=sys.executable,
            scheduler_options={"host": HOST, "port": 0, "dashboard_address": f"{HOST}:0"},
            worker_options={"nthreads": THREADS, "local_directory": str(folder)},
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(WORKERS, timeout=60)
        client.register_plugin(EfficiencyPlugin())
        return of_fixed_cluster(client, workers=WORKERS, threads=THREADS)
