"""Transfers of a simulated worker: results that it gets from others, and sends to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import dask
from dask.utils import parse_bytes
from distributed.worker_state_machine import (
    GatherDep,
    GatherDepBusyEvent,
    GatherDepNetworkFailureEvent,
    GatherDepSuccessEvent,
    RetryBusyWorkerEvent,
    StateMachineEvent,
    WorkerState,
)

from dask_efficiency.runs.trace.run_trace import WorkerSpec
from dask_efficiency.simulation.engine.costs import Costs, Taking
from dask_efficiency.simulation.engine.messages import Loop
from dask_efficiency.simulation.engine.recording import WorkerRows
from dask_efficiency.simulation.model.cores import HostCores
from dask_efficiency.simulation.model.events import EventHeap
from dask_efficiency.simulation.model.network import NetworkModel

#: Nanoseconds until a worker that was too busy to send is asked again: as in Dask.
RETRY = 150_000_000

#: Bytes of a transfer from which Dask measures its bandwidth, and the weight of the newest: as in Dask.
MEASURED, NEWEST = 1_000_000, 0.05


class Peer(Protocol):
    """Worker as its own and other workers' transfers see it."""

    spec: WorkerSpec
    address: str
    state: WorkerState
    rows: WorkerRows
    transfers: WorkerTransfers
    #: Instant until which its loop waits for its disk.
    blocked: int
    closed: bool

    def handle(self, event: StateMachineEvent) -> int:
        """Pass an event to its state machine."""
        ...

    def stimulus(self, kind: str) -> str:
        """Make the id of a stimulus of now."""
        ...

    def wait_for_disk(self) -> tuple[int, int]:
        """Block its loop for the time of writing and reading."""
        ...


class WorkerTransfers:
    """Results that a worker gets from others, and sends to them.

    Parameters
    ----------
    worker
        The worker.
    costs
        Draws the costs other than the network's.
    cores
        Cores of its host; None if there are enough.
    network
        Moves results between hosts.
    peers
        Present workers, by address.
    """

    def __init__(
        self,
        worker: Peer,
        clock: EventHeap,
        *,
        costs: Costs,
        cores: HostCores | None,
        network: NetworkModel,
        peers: Mapping[str, Peer],
    ) -> None:
        self._worker, self._clock = worker, clock
        self._costs, self._network, self._peers = costs, network, peers
        self._incoming = Loop(clock, cores)
        self._outgoing, self._outgoing_limit = 0, int(dask.config.get("distributed.worker.connections.outgoing"))
        #: Bytes a second, as Dask measures it.
        self.bandwidth = float(parse_bytes(dask.config.get("distributed.scheduler.bandwidth")))

    def take_in(self, taking: Taking, then: Callable[..., object], *arguments: Any) -> None:
        """Take in results from another worker, after earlier ones."""
        self._incoming.do(taking.computing, then, *arguments, idly=taking.waiting)

    def gather(self, asked: GatherDep) -> None:
        """Request results from another worker."""
        worker, start = self._worker, self._clock.now
        sender = self._peers.get(asked.worker)
        if sender is None or sender.closed:
            self._clock.at(start + self._costs.refused(), self._lost, asked)
        elif sender.transfers._busy(worker.spec.host):
            event = GatherDepBusyEvent(
                worker=asked.worker, total_nbytes=asked.total_nbytes, stimulus_id=worker.stimulus("gather-dep-busy")
            )
            self._clock.at(start + self._costs.refused(), worker.handle, event)
        else:
            sender.transfers._outgoing += 1
            sender.transfers._serve(asked, worker, start)

    def _busy(self, host: str) -> bool:
        return self._outgoing >= self._outgoing_limit * (2 if host == self._worker.spec.host else 1)

    def _serve(self, asked: GatherDep, receiver: Peer, start: int) -> None:
        """Send results to another worker, which requested them at ``start``."""
        worker, clock, costs, network = self._worker, self._clock, self._costs, self._network
        if clock.now < worker.blocked:
            clock.at(worker.blocked, self._serve, asked, receiver, start)
            return
        held: Any = worker.state.data
        data = {key: held[key] for key in sorted(asked.to_gather, key=str) if key in held}
        worker.wait_for_disk()
        nbytes = sum(result.nbytes for result in data.values())
        latency, taking = costs.transfer(len(data), nbytes)
        there = receiver.transfers
        arrived = lambda: there.take_in(taking, there._arrived, asked, worker, data, nbytes, start)  # noqa: E731
        asking = network.delay(receiver.spec.host, worker.spec.host)
        ready = max(clock.now, worker.blocked) + latency + asking
        clock.at(ready, network.transfer, worker.spec.host, receiver.spec.host, nbytes, arrived)

    def _arrived(self, asked: GatherDep, sender: Peer, data: dict[Any, Any], nbytes: int, start: int) -> None:
        sender.transfers._outgoing -= 1
        if sender.closed:
            self._lost(asked)
            return
        if nbytes > MEASURED:
            bandwidth = nbytes / max((self._clock.now - start) / 1e9, 1e-3)
            self.bandwidth += NEWEST * (bandwidth - self.bandwidth)
        worker = self._worker
        worker.rows.transferred(sender.address, data, start)
        stimulus = worker.stimulus("gather-dep-success")
        worker.handle(
            GatherDepSuccessEvent(worker=asked.worker, total_nbytes=asked.total_nbytes, data=data, stimulus_id=stimulus)
        )

    def _lost(self, asked: GatherDep) -> None:
        """Report that the requested worker is gone."""
        stimulus = self._worker.stimulus("gather-dep-network-failure")
        self._worker.handle(
            GatherDepNetworkFailureEvent(worker=asked.worker, total_nbytes=asked.total_nbytes, stimulus_id=stimulus)
        )

    def retry_later(self, address: str) -> None:
        """Retry a worker that was too busy."""
        self._clock.at(self._clock.now + RETRY, self._retry, address)

    def _retry(self, address: str) -> None:
        stimulus = self._worker.stimulus("retry-busy-worker")
        self._worker.handle(RetryBusyWorkerEvent(worker=address, stimulus_id=stimulus))
