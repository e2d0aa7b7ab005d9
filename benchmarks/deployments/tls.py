"""TLS by Dask's command line: a scheduler and two workers, each with the same certificate."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from distributed import Client, Security

from benchmarks.deployments.checks import Check, equal, of_fixed_cluster
from benchmarks.deployments.programs import Need
from dask_efficiency import EfficiencyPlugin
from tests.deployments.programs import HOST, certificate, eventually, program

NEEDS = (Need("openssl", debian="openssl", program="openssl"),)

WORKERS, THREADS = 2, 2


def run(folder: Path, *, preload: bool) -> list[Check]:
    """With the plugin preloaded on the scheduler, or registered by the client."""
    tls = certificate(folder)
    with cluster(folder, tls, preload=preload) as client:
        if not preload:
            client.register_plugin(EfficiencyPlugin())
        return [
            equal("the address begins with", "tls://", client.scheduler.address[:6]),
            *of_fixed_cluster(client, workers=WORKERS, threads=THREADS, options=_words(tls)),
        ]


@contextmanager
def cluster(folder: Path, tls: dict[str, str], *, preload: bool) -> Iterator[Client]:
    """A client of a scheduler and its workers."""
    security = Security(
        tls_ca_file=tls["--tls-ca-file"],
        tls_client_cert=tls["--tls-cert"],
        tls_client_key=tls["--tls-key"],
        require_encryption=True,
    )
    dask, file = [sys.executable, "-m", "dask"], folder / "scheduler.json"
    common = ["--scheduler-file", str(file), "--host", HOST, "--dashboard-address", f"{HOST}:0", *_words(tls)]
    plugin = ["--preload", "dask_efficiency"] if preload else []
    with ExitStack() as stack:
        scheduler = [*dask, "scheduler", "--protocol", "tls", "--port", "0", *common, *plugin]
        stack.enter_context(program(scheduler, folder / "scheduler.log"))
        eventually(lambda: file.exists() and file.stat().st_size, what="the scheduler's file")
        for i in range(WORKERS):
            options = ["--name", f"tls-{i}", "--nthreads", str(THREADS), "--local-directory", str(folder)]
            stack.enter_context(program([*dask, "worker", *common, *options], folder / f"worker-{i}.log"))
        client = stack.enter_context(Client(scheduler_file=str(file), security=security))
        client.wait_for_workers(WORKERS, timeout=60)
        yield client


def _words(options: dict[str, str]) -> list[str]:
    return [word for option in options.items() for word in option]
