"""Transfers of a simulated worker: results that it gets from others, and sends to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import dask
from dask.utils import parse_bytes
from distributed import worker_state_machine as machine

from dask_efficiency.simulation.engine.costs import Taking
from dask_efficiency.simulation.engine.messages import Loop
from dask_efficiency.simulation.model.cores import HostCores

if TYPE_CHECKING:
    from dask_efficiency.simulation.engine.cluster import SimulatedCluster
    from dask_efficiency.simulation.engine.worker import VirtualWorker

#: Nanoseconds until a worker that was too busy to send is asked again: as in Dask.
RETRY = 150_000_000

#: Bytes of a transfer from which Dask measures its bandwidth, and the weight of the newest: as in Dask.
MEASURED, NEWEST = 1_000_000, 0.05


class WorkerTransfers:
    """Results that a worker gets from others, and sends to them."""

    def __init__(self, worker: VirtualWorker, cluster: SimulatedCluster, cores: HostCores | None) -> None:
        self._worker, self._cluster, self._clock, self._costs = worker, cluster, cluster.clock, cluster.costs
        self._incoming = Loop(self._clock, cores)
        self._outgoing, self._outgoing_limit = 0, int(dask.config.get("distributed.worker.connections.outgoing"))
        #: Bytes a second, as Dask measures it.
        self.bandwidth = float(parse_bytes(dask.config.get("distributed.scheduler.bandwidth")))

    def take_in(self, taking: Taking, then: Callable[..., object], *arguments: Any) -> None:
        """Take in results from another worker, after earlier ones."""
        self._incoming.do(taking.computing, then, *arguments, idly=taking.waiting)

    def gather(self, asked: machine.GatherDep) -> None:
        """Request results from another worker."""
        worker, start = self._worker, self._clock.now
        sender = self._cluster.workers.get(asked.worker)
        if sender is None or sender.closed:
            self._clock.at(start + self._costs.refused(), self._lost, asked)
        elif sender.transfers._busy(worker.spec.host):
            event = machine.GatherDepBusyEvent(**self._answer(asked, "busy"))
            self._clock.at(start + self._costs.refused(), worker.handle, event)
        else:
            sender.transfers._outgoing += 1
            sender.transfers._serve(asked, worker, start)

    def _busy(self, host: str) -> bool:
        return self._outgoing >= self._outgoing_limit * (2 if host == self._worker.spec.host else 1)

    def _serve(self, asked: machine.GatherDep, receiver: VirtualWorker, start: int) -> None:
        """Send results to another worker, which requested them at ``start``."""
        worker, clock, network = self._worker, self._clock, self._cluster.network
        if clock.now < worker.blocked:
            clock.at(worker.blocked, self._serve, asked, receiver, start)
            return
        held: Any = worker.state.data
        data = {key: held[key] for key in sorted(asked.to_gather, key=str) if key in held}
        worker.wait_for_disk()
        nbytes = sum(result.nbytes for result in data.values())
        latency, taking = self._costs.transfer(len(data), nbytes)
        there = receiver.transfers
        arrived = lambda: there.take_in(taking, there._arrived, asked, worker, data, nbytes, start)  # noqa: E731
        asking = network.delay(receiver.spec.host, worker.spec.host)
        ready = max(clock.now, worker.blocked) + latency + asking
        clock.at(ready, network.transfer, worker.spec.host, receiver.spec.host, nbytes, arrived)

    def _arrived(
        self, asked: machine.GatherDep, sender: VirtualWorker, data: dict[Any, Any], nbytes: int, start: int
    ) -> None:
        sender.transfers._outgoing -= 1
        if sender.closed:
            self._lost(asked)
            return
        if nbytes > MEASURED:
            bandwidth = nbytes / max((self._clock.now - start) / 1e9, 1e-3)
            self.bandwidth += NEWEST * (bandwidth - self.bandwidth)
        self._worker.rows.transferred(sender.address, data, start)
        self._worker.handle(machine.GatherDepSuccessEvent(**self._answer(asked, "success"), data=data))

    def _lost(self, asked: machine.GatherDep) -> None:
        """Report that the requested worker is gone."""
        self._worker.handle(machine.GatherDepNetworkFailureEvent(**self._answer(asked, "network-failure")))

    def _answer(self, asked: machine.GatherDep, kind: str) -> dict[str, Any]:
        stimulus = self._worker.stimulus(f"gather-dep-{kind}")
        return {"worker": asked.worker, "total_nbytes": asked.total_nbytes, "stimulus_id": stimulus}

    def retry_later(self, address: str) -> None:
        """Retry a worker that was too busy."""
        self._clock.at(self._clock.now + RETRY, self._retry, address)

    def _retry(self, address: str) -> None:
        stimulus = self._worker.stimulus("retry-busy-worker")
        self._worker.handle(machine.RetryBusyWorkerEvent(worker=address, stimulus_id=stimulus))
