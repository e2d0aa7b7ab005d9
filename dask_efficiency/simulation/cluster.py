"""ClusterSpec: the cluster that a run is simulated on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from dask_efficiency.simulation.network import Network, network_of
from dask_efficiency.trace.run_trace import TraceTables, WorkerSpec


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """A cluster to simulate a run on.

    Parameters
    ----------
    workers
        In the order in which they join; names and addresses are unique.
    network
        Between their hosts. None is what the trace shows: the bandwidth and latency that its transfers had.
    speeds
        By name of a worker: how many times as fast as the middle of the recorded workers it computes.
    config
        Dask configuration that differs from the recorded one.
    scheduler_host
        Where the scheduler is; empty where it does not matter.
    """

    workers: tuple[WorkerSpec, ...]
    network: Network | None = None
    speeds: Mapping[str, float] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    scheduler_host: str = ""

    @classmethod
    def from_trace(cls, trace: TraceTables) -> Self:
        """The cluster that a run was recorded on: every worker that it ever had."""
        return cls(tuple(replace(worker, clock_offset=0, clock_error=0) for worker in trace.workers))

    @property
    def nthreads(self) -> int:
        """Threads of all workers."""
        return sum(worker.nthreads for worker in self.workers)

    def to_dict(self) -> dict[str, Any]:
        """The cluster as plain data."""
        return {
            "workers": [
                {name: getattr(worker, name) for name in _WORKER} | {"resources": dict(worker.resources)}
                for worker in self.workers
            ],
            "network": None if self.network is None else self.network.to_dict(),
            "speeds": dict(self.speeds),
            "config": dict(self.config),
            "scheduler_host": self.scheduler_host,
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """What :meth:`to_dict` wrote."""
        network = given["network"]
        return cls(
            workers=tuple(WorkerSpec(**worker) for worker in given["workers"]),
            network=None if network is None else network_of(network),
            speeds=given["speeds"],
            config=given["config"],
            scheduler_host=given["scheduler_host"],
        )


_WORKER = ("name", "address", "host", "nthreads", "memory_limit")
