"""A described cluster made real on one machine: hosts are network namespaces, switches bridges, links token buckets.

Latencies are not made, as kernels may lack netem. It takes root, ``ip`` and ``tc``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from distributed import Client, LocalCluster

from benchmarks.worker_bed import add_bridge, add_cable, add_host, end_worker, sh, unlike_others
from dask_efficiency.runs.trace.run_trace import WorkerSpec
from dask_efficiency.simulation.model.cluster_file import ClusterFile
from dask_efficiency.simulation.model.topology import Cable

#: Bytes a second from which on a link is not throttled: the machine has no more.
UNTHROTTLED = 1e9

#: Of what waits for a link; a switch's queue of this length, at most.
QUEUE = "20ms"


def lacking() -> str:
    """Reason for which there can be no bed here; empty if there can."""
    if os.geteuid() != 0:
        return "that takes root"
    for program in ("ip", "tc"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    return ""


def namespaces(described: ClusterFile) -> dict[str, str]:
    """By host: its namespace. Switches are bridges of such names."""
    topology, number = described.topology, unlike_others()
    names = (*topology.switches, *(host.name for host in topology.hosts))
    return {name: f"pl{number}x{i}" for i, name in enumerate(names)}


@contextmanager
def network(described: ClusterFile) -> Iterator[dict[str, str]]:
    """The hosts' addresses, as the file has them; they are there for as long as the block takes."""
    topology, number = described.topology, unlike_others()
    short = namespaces(described)
    addresses = {host.name: host.address for host in topology.hosts}
    with ExitStack() as stack:
        for switch in topology.switches:
            add_bridge(stack, short[switch])
        for i, link in enumerate(topology.links):
            host = next((end for end in link.ends if end in addresses), "")
            if not host:
                _trunk(stack, f"pl{number}t{i}", link, short)
            elif host == described.scheduler:
                # This namespace is the scheduler's host.
                switch = short[next(end for end in link.ends if end != host)]
                sh("ip", "addr", "add", f"{addresses[host]}/24", "dev", switch)
            else:
                _host(stack, link, short, host, addresses[host])
        yield addresses


def _trunk(stack: ExitStack, name: str, link: Cable, short: dict[str, str]) -> None:
    ends = [f"{name}a", f"{name}b"]
    add_cable(stack, *ends)
    for end, switch, bandwidth in zip(ends, link.ends, (link.bandwidth, link.back), strict=True):
        sh("ip", "link", "set", end, "master", short[switch], "up")
        _throttle((), end, bandwidth)


def _host(stack: ExitStack, link: Cable, short: dict[str, str], host: str, address: str) -> None:
    name, switch = short[host], short[next(end for end in link.ends if end != host)]
    up, down = (link.bandwidth, link.back) if link.ends[0] == host else (link.back, link.bandwidth)
    add_host(stack, name, switch, address)
    _throttle((), name, down)
    _throttle(("-n", name), "eth0", up)


def _throttle(place: Sequence[str], device: str, bandwidth: float) -> None:
    if bandwidth < UNTHROTTLED:
        bits = str(round(8 * bandwidth))
        bucket = ("tbf", "rate", bits, "burst", "32kb", "latency", QUEUE)
        sh("tc", *place, "qdisc", "add", "dev", device, "root", *bucket)


@contextmanager
def cluster(described: ClusterFile, addresses: dict[str, str], workers: Sequence[WorkerSpec]) -> Iterator[Client]:
    """A cluster with workers on these hosts, and the scheduler and the client in this namespace."""
    places = namespaces(described)
    with ExitStack() as stack:
        options = {"n_workers": 0, "host": addresses[described.scheduler], "scheduler_port": 0}
        local = stack.enter_context(LocalCluster(dashboard_address=None, silence_logs=50, **options))
        client = stack.enter_context(Client(local))
        for worker in workers:
            command = [sys.executable, "-m", "dask", "worker", local.scheduler_address, "--name", worker.name]
            command += ["--host", addresses[worker.host], "--nthreads", str(worker.nthreads), "--memory-limit", "2GiB"]
            command += ["--no-nanny", "--no-dashboard"]
            environment = {**os.environ, "PYTHONPATH": str(Path.cwd()), "OMP_NUM_THREADS": "1"}
            process = subprocess.Popen(
                ["ip", "netns", "exec", places[worker.host], *command],
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(end_worker, process)
        client.wait_for_workers(len(workers), timeout=120)
        yield client
