"""ClusterSpec: the cluster that a run is simulated on."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from numbers import Integral
from typing import Any, Self

from dask_efficiency.files.text_files import TextFileError
from dask_efficiency.runs.trace.errors import UnknownNameError
from dask_efficiency.runs.trace.run_trace import RunTrace, WorkerSpec
from dask_efficiency.simulation.model.cluster_file import read_cluster_file
from dask_efficiency.simulation.model.picture import draw_topology
from dask_efficiency.simulation.model.placement import (
    PlacementError,
    add_to_hosts,
    copy_workers,
    place_workers,
    read_hostfile_of,
)
from dask_efficiency.simulation.model.topology import NetworkSpec, Topology, network_from_dict, network_to_dict


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """Cluster to simulate a run on: an immutable value, whose methods make others.

    Parameters
    ----------
    workers
        In the order in which they join; names and addresses are unique.
    network
        Network between the hosts. None is the recorded one: the bandwidth and latency of the trace's transfers.
    speeds
        By name of a worker: its speed as a multiple of the median recorded worker's.
    config
        Dask configuration that differs from the recorded one, of settings that change a schedule.
    cores
        By host: cores that its workers may use. Event loops and threads that wake up wait for each other, which matters
        for short tasks of many workers on a host; computing tasks share the rest. Other hosts have enough.
    scheduler_host
        Host of the scheduler; empty if it does not matter.

    Raises
    ------
    ValueError
        If there is no worker, a name or address is not unique, or a number is out of range.
    UnknownNameError
        If a speed's worker does not exist, or the topology lacks a host.
    """

    workers: tuple[WorkerSpec, ...]
    network: NetworkSpec | None = None
    speeds: Mapping[str, float] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    scheduler_host: str = ""
    cores: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.workers:
            raise ValueError("expected a cluster of at least one worker, got none")
        for quantity in ("name", "address"):
            counts = Counter(getattr(worker, quantity) for worker in self.workers)
            if twice := [value for value, times in counts.items() if times > 1]:
                raise ValueError(f"expected the {quantity} of each worker to be its own, got {twice[0]!r} twice")
        for worker in self.workers:
            if worker.nthreads < 1:
                raise ValueError(f"expected at least 1 thread of worker {worker.name!r}, got {worker.nthreads!r}")
            if worker.memory_limit < 0:
                raise ValueError(f"expected a memory limit of worker {worker.name!r}, got {worker.memory_limit!r}")
        self._check_known(self.speeds)
        for name, speed in self.speeds.items():
            if not 0 < speed < inf:
                raise ValueError(f"expected a speed above 0 of worker {name!r}, got {speed!r}")
        for host, count in self.cores.items():
            if not 0 < count < inf:
                raise ValueError(f"the host {host!r} has {count} cores; expected more than 0")
        if isinstance(self.network, Topology):
            for host in (*(worker.host for worker in self.workers), *filter(None, [self.scheduler_host])):
                if self.network.host(host) is None:
                    raise UnknownNameError("host", host, [known.name for known in self.network.hosts], "the topology")

    @classmethod
    def from_trace(cls, trace: RunTrace) -> Self:
        """Make the cluster that a run was recorded on: every worker that it ever had, except replaced ones.

        A worker that takes the name or the address of an earlier one has replaced it.
        """
        last: dict[str, WorkerSpec] = {}
        for worker in trace.workers:
            last = {
                name: earlier
                for name, earlier in last.items()
                if name == worker.name or earlier.address != worker.address
            }
            last[worker.name] = replace(worker, clock_offset=0, clock_error=0, cores=0.0)
        cores = {worker.host: worker.cores for worker in trace.workers if 0 < worker.cores < inf}
        return cls(tuple(last.values()), cores=cores)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], hostfile: str | os.PathLike[str] | None = None) -> Self:
        """Read a cluster from a file, with workers placed by a hostfile, or on all of its slots.

        A mistake raises an error with the file and line, what is there and what was expected.
        """
        described = read_cluster_file(path)
        topology, placed = described.topology, {host: n for host, n in described.workers.items() if n}
        if hostfile is not None:
            workers = _placed(topology, hostfile)
        elif placed:
            workers = place_workers(topology, placed)
        else:
            raise TextFileError(path, 0, "no host has a slot for a worker")
        return cls(workers, topology, _speeds(topology, workers), scheduler_host=described.scheduler)

    def picture(self) -> str:
        """Draw the tree of switches and hosts of a topology, with the number of workers of each."""
        if not isinstance(self.network, Topology):
            raise ValueError("expected a cluster from a file that describes its switches and links, for a picture")
        return draw_topology(self.network, self.workers, self.scheduler_host)

    def with_workers(self, n: int, nthreads: int | None = None, memory_limit: int | None = None) -> Self:
        """Change the number of workers.

        Fewer are the first ones. More are placed in free slots, host by host, where the network is a topology; else
        they are copies of these workers, taken in turn.

        Parameters
        ----------
        n
            At least 1.
        nthreads, memory_limit
            Threads and bytes of each worker; None leaves their own.

        Raises
        ------
        TypeError
            If ``n`` is not a whole number.
        PlacementError
            If the topology has fewer slots.
        """
        if isinstance(n, bool) or not isinstance(n, Integral):
            raise TypeError(f"expected a whole number of workers, got {n!r:.80}")
        if n < 1:
            raise ValueError(f"expected at least 1 worker, got {n!r}")
        workers, speeds, cores = self.workers[:n], dict(self.speeds), dict(self.cores)
        more = n - len(workers)
        if isinstance(self.network, Topology):
            workers = add_to_hosts(self.network, workers, more)
            speeds |= _speeds(self.network, workers[len(self.workers) :])
        else:
            copies = copy_workers(workers, more)
            workers += tuple(worker for worker, _ in copies)
            speeds |= {worker.name: speeds[original.name] for worker, original in copies if original.name in speeds}
            cores |= {worker.host: cores[original.host] for worker, original in copies if original.host in cores}
        sizes = {"nthreads": nthreads, "memory_limit": memory_limit}
        given: dict[str, Any] = {name: size for name, size in sizes.items() if size is not None}
        workers = tuple(replace(worker, **given) for worker in workers)
        return replace(self._with(workers, speeds), cores=cores)

    def without_workers(self, *names: str) -> Self:
        """Remove workers; an unknown name is an error."""
        self._check_known(names)
        return self._with(tuple(worker for worker in self.workers if worker.name not in names), self.speeds)

    def with_config(self, config: Mapping[str, Any]) -> Self:
        """Change settings of Dask, such as ``{"distributed.scheduler.work-stealing": False}``."""
        return replace(self, config={**self.config, **config})

    def with_cores(self, cores: Mapping[str, float]) -> Self:
        """Change the number of cores of hosts, such as ``{"127.0.0.1": 2}``.

        A host that has no cores, or is none of the workers' nor the scheduler's, is an error.
        """
        hosts = {worker.host for worker in self.workers} | ({self.scheduler_host} - {""})
        for host in cores:
            if host not in hosts:
                raise ValueError(f"no worker is on the host {host!r}; expected one of {', '.join(sorted(hosts))}")
        return replace(self, cores={**self.cores, **cores})

    @property
    def with_scheduler(self) -> str:
        """Host of the scheduler; if it is not given, that of all workers if they share one."""
        hosts = {worker.host for worker in self.workers}
        return self.scheduler_host or (hosts.pop() if len(hosts) == 1 else "")

    def with_network(self, network: NetworkSpec | None) -> Self:
        """Change the network between the hosts; None is the recorded one.

        A topology has the hosts of all workers, by name or address.
        """
        return replace(self, network=network)

    def with_speeds(self, speeds: Mapping[str, float]) -> Self:
        """Change the speeds of workers, as multiples of the median recorded worker's, by their names."""
        return replace(self, speeds={**self.speeds, **speeds})

    def _with(self, workers: tuple[WorkerSpec, ...], speeds: Mapping[str, float]) -> Self:
        names = {worker.name for worker in workers}
        kept = {name: speed for name, speed in speeds.items() if name in names}
        return replace(self, workers=workers, speeds=kept)

    def _check_known(self, names: Iterable[str]) -> None:
        known = dict.fromkeys(worker.name for worker in self.workers)
        for name in names:
            if name not in known:
                raise UnknownNameError("worker", name, known, "this cluster")

    @property
    def nthreads(self) -> int:
        """Number of threads of all workers."""
        return sum(worker.nthreads for worker in self.workers)

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain data."""
        return {
            "workers": [
                {name: getattr(worker, name) for name in _WORKER} | {"resources": dict(worker.resources)}
                for worker in self.workers
            ],
            "network": None if self.network is None else network_to_dict(self.network),
            "speeds": dict(self.speeds),
            "config": dict(self.config),
            "scheduler_host": self.scheduler_host,
            "cores": dict(self.cores),
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """Read the data of :meth:`to_dict`."""
        workers = tuple(WorkerSpec(**worker) for worker in given["workers"])
        network = None if given["network"] is None else network_from_dict(given["network"])
        return cls(**{**given, "workers": workers, "network": network})


_WORKER = ("name", "address", "host", "nthreads", "memory_limit")


def _placed(topology: Topology, path: str | os.PathLike[str]) -> tuple[WorkerSpec, ...]:
    """Place workers by a hostfile."""
    hostfile = read_hostfile_of(topology, path)
    try:
        return place_workers(topology, hostfile.slots)
    except PlacementError as error:
        line = max(line for name, line in hostfile.lines.items() if topology.host(name) == topology.host(error.host))
        raise TextFileError(path, line, str(error)) from error


def _speeds(topology: Topology, workers: Iterable[WorkerSpec]) -> dict[str, float]:
    """By worker: speed of its host, if it is not 1."""
    hosts = {worker.name: topology.host(worker.host) for worker in workers}
    return {name: host.speed for name, host in hosts.items() if host is not None and host.speed != 1.0}
