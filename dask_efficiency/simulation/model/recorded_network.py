"""What recorded messages took of a network that is known: the same messages, sent over it in virtual time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dask_efficiency.accounts.tables import Int64
from dask_efficiency.runs.trace.run_trace import WorkerSpec
from dask_efficiency.simulation.model.events import EventHeap
from dask_efficiency.simulation.model.network import Network
from dask_efficiency.simulation.model.topology import Topology


def knows(network: Network | None, workers: Sequence[WorkerSpec]) -> bool:
    """Whether a network has the hosts that workers were on, by name or address."""
    return isinstance(network, Topology) and all(network.host(worker.host) is not None for worker in workers)


def arrivals(
    network: Network, workers: Sequence[WorkerSpec], sender: Int64, receiver: Int64, start: Int64, nbytes: Int64
) -> Int64:
    """When messages that start when they did would be there if nothing but the network took time; in nanoseconds."""
    clock = EventHeap(int(start.min()))
    model = network.model(clock)
    found = np.zeros(len(start), np.int64)

    def arrived(i: int) -> None:
        found[i] = clock.now

    hosts = [worker.host for worker in workers]
    for i, (a, b, at, size) in enumerate(
        zip(sender.tolist(), receiver.tolist(), start.tolist(), nbytes.tolist(), strict=True)
    ):
        clock.at(at, model.transfer, hosts[a], hosts[b], size, lambda i=i: arrived(i))
    while clock.step():
        pass
    return found
