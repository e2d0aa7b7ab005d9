"""P2P shuffles: outputs restricted to workers, and parts of inputs that travel while other tasks run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from distributed import SchedulerPlugin

from dask_efficiency.simulation.engine.costs import AtTaskEnd, Costs, WorkerIdentity
from dask_efficiency.simulation.engine.scheduler import VirtualScheduler
from dask_efficiency.simulation.engine.worker import VirtualWorker
from dask_efficiency.simulation.engine.workload import Workload
from dask_efficiency.simulation.model.events import EventHeap
from dask_efficiency.simulation.model.network import NetworkModel
from dask_efficiency.simulation.model.p2p import Shuffle, shuffles


class Shuffles(SchedulerPlugin):
    """Restricts outputs of P2P shuffles to workers, as Dask does, and moves the parts of their inputs.

    A trace records neither: outputs are assigned when the first input is, in the order of their numbers, and every
    worker gets a part of each input in proportion to its outputs. The barrier waits until all parts are there.
    """

    name = "dask-efficiency-shuffles"

    def __init__(
        self,
        clock: EventHeap,
        scheduler: VirtualScheduler,
        workload: Workload,
        workers: Mapping[str, VirtualWorker],
        network: NetworkModel,
        costs: Costs,
    ) -> None:
        self._clock, self._scheduler, self._workload = clock, scheduler, workload
        self._workers, self._network, self._costs = workers, network, costs
        found = shuffles(workload.trace)
        self._of_input = {task: shuffle for shuffle in found for task in shuffle.inputs}
        self._of_barrier = {shuffle.barrier: shuffle for shuffle in found}
        self._keys = {workload.keys[task] for task in self._of_input}
        #: By barrier: the workers' shares of the outputs; number of parts under way; the runs that wait for them.
        self._shares: dict[int, dict[str, float]] = {}
        self._travelling: Counter[int] = Counter()
        self._waiting: dict[int, list[Callable[[], None]]] = {}

    def transition(self, key: Any, start: str, finish: str, *_args: Any, **_kwargs: Any) -> None:
        """Restrict the outputs of a shuffle to workers when its first input is assigned."""
        if finish == "processing" and key in self._keys:
            shuffle = self._of_input[self._workload.number[key]]
            if shuffle.barrier not in self._shares:
                self._bind(shuffle)

    def remove_worker(self, scheduler: Any, worker: str, **_kwargs: Any) -> None:
        """Move outputs from a worker that left to others, as the shuffle restarts."""
        there = [address for address in self._workers if address != worker and address in scheduler.workers]
        for shuffle in self._of_barrier.values():
            for place, task in enumerate(shuffle.outputs if there else ()):
                output = scheduler.tasks.get(self._workload.keys[task])
                if output is not None and output.worker_restrictions == {worker}:
                    self._scheduler.set_restrictions({output.key: {there[place % len(there)]}})

    def _bind(self, shuffle: Shuffle) -> None:
        tasks, keys = self._scheduler.tasks, self._workload.keys
        barrier = tasks.get(keys[shuffle.barrier])
        there = sorted(barrier.worker_restrictions) if barrier and barrier.worker_restrictions else [*self._workers]
        shift = len(self._shares) % len(there)
        there = there[shift:] + there[:shift]
        counts: Counter[str] = Counter()
        for place, task in enumerate(shuffle.outputs):
            address = there[len(there) * place // len(shuffle.outputs)]
            counts[address] += 1
            output = tasks.get(keys[task])
            if output is not None and not output.worker_restrictions:
                self._scheduler.set_restrictions({keys[task]: {address}})
        self._shares[shuffle.barrier] = {
            address: count / max(len(shuffle.outputs), 1) for address, count in counts.items()
        }

    def at_end(self, task: int) -> AtTaskEnd | None:
        """Action at the end of the thread of a shuffle's task; None for other tasks."""
        if task in self._of_input:
            return lambda worker, go_on: self._send(self._of_input[task], task, worker, go_on)
        if task in self._of_barrier:
            return lambda worker, go_on: self._wait(task, go_on)
        return None

    def _send(self, shuffle: Shuffle, task: int, sender: WorkerIdentity, go_on: Callable[[], None]) -> None:
        nbytes = shuffle.inputs[task]
        for address, share in self._shares.get(shuffle.barrier, {}).items():
            receiver = self._workers.get(address)
            part = round(nbytes * share)
            if receiver is None or receiver is sender or not part:
                continue
            self._travelling[shuffle.barrier] += 1
            latency, taking = self._costs.transfer(1, part)
            arrived = lambda receiver=receiver, taking=taking: receiver.transfers.take_in(  # noqa: E731
                taking, self._arrived, shuffle.barrier
            )
            route = (sender.spec.host, receiver.spec.host, part, arrived)
            self._clock.at(self._clock.now + latency, self._network.transfer, *route)
        go_on()

    def _arrived(self, barrier: int) -> None:
        self._travelling[barrier] -= 1
        if not self._travelling[barrier]:
            for go_on in self._waiting.pop(barrier, ()):
                go_on()

    def _wait(self, barrier: int, go_on: Callable[[], None]) -> None:
        if self._travelling[barrier]:
            self._waiting.setdefault(barrier, []).append(go_on)
        else:
            go_on()
