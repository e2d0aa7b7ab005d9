"""P2P shuffles: outputs restricted to workers, and parts of inputs that travel while other tasks run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from distributed import SchedulerPlugin

from dask_efficiency.accounts.metered import BARRIERS
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.simulation.engine.worker import ClusterParts, VirtualWorker
from dask_efficiency.simulation.engine.workload import dependencies

_NUMBERS = re.compile(r"(?<=, )\d+(?=[,)])")


@dataclass(frozen=True, slots=True)
class Shuffle:
    """A shuffle, by numbers of tasks."""

    barrier: int
    #: By task that hands over an input: the bytes of that.
    inputs: Mapping[int, int]
    #: Tasks that take what was moved, in the order of their numbers in the shuffle.
    outputs: tuple[int, ...]


def shuffles(trace: RunTrace) -> tuple[Shuffle, ...]:
    """The P2P shuffles of a run."""
    barriers = [i for i, name in enumerate(trace.prefixes) if name.startswith(BARRIERS)]
    recorded = []
    for barrier in np.flatnonzero(np.isin(trace.tasks.prefix, barriers)).tolist():
        owners = np.searchsorted(trace.dependency_starts, np.flatnonzero(trace.dependencies == barrier), "right") - 1
        # By the numbers at the end of their keys: of a partition, or of a chunk.
        numbers = {int(task): [*map(int, _NUMBERS.findall(trace.keys[task]))] for task in owners}
        outputs = sorted(numbers, key=lambda task: (numbers[task], task))
        inputs = {
            task: sum(max(int(trace.tasks.nbytes[other]), 0) for other in dependencies(trace, task))
            for task in dependencies(trace, barrier)
        }
        sent, whole = int(trace.shuffled.nbytes[trace.shuffled.task == barrier].sum()), sum(inputs.values())
        if sent and whole:  # not all of an input may be sent
            inputs = {task: nbytes * sent // whole for task, nbytes in inputs.items()}
        recorded.append(Shuffle(barrier, inputs, tuple(outputs)))
    return tuple(recorded)


class Shuffles(SchedulerPlugin):
    """Restricts outputs of P2P shuffles to workers in the order of their numbers, and moves the parts of inputs.

    Every worker gets a part of each input in proportion to its outputs; the barrier waits until all parts are there.
    """

    name = "dask-efficiency-shuffles"

    def __init__(self, cluster: ClusterParts) -> None:
        self._cluster, self._keys, self._number = cluster, cluster.workload.keys, cluster.workload.number
        recorded = shuffles(cluster.workload.trace)
        self._of_input = {task: shuffle for shuffle in recorded for task in shuffle.inputs}
        self._of_barrier = {shuffle.barrier: shuffle for shuffle in recorded}
        self._inputs = {self._keys[task] for task in self._of_input}
        #: By barrier: the workers' shares of the outputs; number of parts under way; the runs that wait for them.
        self._shares: dict[int, dict[str, float]] = {}
        self._travelling: Counter[int] = Counter()
        self._waiting: dict[int, list[Callable[[], object]]] = {}

    def transition(self, key: Any, start: str, finish: str, *_args: Any, **_kwargs: Any) -> None:
        """Restrict the outputs of a shuffle to workers when its first input is assigned."""
        if finish == "processing" and key in self._inputs:
            shuffle = self._of_input[self._number[key]]
            if shuffle.barrier not in self._shares:
                self._bind(shuffle)

    def remove_worker(self, scheduler: Any, worker: str, **_kwargs: Any) -> None:
        """Move outputs from a worker that left to others, as the shuffle restarts."""
        addresses = [address for address in self._cluster.workers if address != worker and address in scheduler.workers]
        for shuffle in self._of_barrier.values():
            for place, task in enumerate(shuffle.outputs if addresses else ()):
                output = scheduler.tasks.get(self._keys[task])
                if output is not None and output.worker_restrictions == {worker}:
                    scheduler.set_restrictions({output.key: {addresses[place % len(addresses)]}})

    def _bind(self, shuffle: Shuffle) -> None:
        scheduler, keys = self._cluster.scheduler, self._keys
        barrier = scheduler.tasks.get(keys[shuffle.barrier])
        addresses = [*self._cluster.workers]
        if barrier and barrier.worker_restrictions:
            addresses = sorted(barrier.worker_restrictions)
        shift = len(self._shares) % len(addresses)
        addresses = addresses[shift:] + addresses[:shift]
        counts: Counter[str] = Counter()
        for place, task in enumerate(shuffle.outputs):
            address = addresses[len(addresses) * place // len(shuffle.outputs)]
            counts[address] += 1
            output = scheduler.tasks.get(keys[task])
            if output is not None and not output.worker_restrictions:
                scheduler.set_restrictions({keys[task]: {address}})
        outputs = max(len(shuffle.outputs), 1)
        self._shares[shuffle.barrier] = {address: count / outputs for address, count in counts.items()}

    def at_end(self, task: int, worker: VirtualWorker, go_on: Callable[[], object]) -> bool:
        """Send the parts of an input at the end of a thread; True if it is a barrier that waits to ``go_on``."""
        if task in self._of_input:
            self._send(task, worker)
        if task not in self._of_barrier or not self._travelling[task]:
            return False
        self._waiting.setdefault(task, []).append(go_on)
        return True

    def _send(self, task: int, sender: VirtualWorker) -> None:
        clock, network, shuffle = self._cluster.clock, self._cluster.network, self._of_input[task]
        for address, share in self._shares.get(shuffle.barrier, {}).items():
            receiver, part = self._cluster.workers.get(address), round(shuffle.inputs[task] * share)
            if receiver is None or receiver is sender or not part:
                continue
            self._travelling[shuffle.barrier] += 1
            latency, taking = self._cluster.costs.transfer(1, part)
            arrived = partial(receiver.transfers.take_in, taking, self._arrived, shuffle.barrier)
            way = sender.spec.host, receiver.spec.host
            clock.at(clock.now + latency, network.transfer, *way, part, arrived)

    def _arrived(self, barrier: int) -> None:
        self._travelling[barrier] -= 1
        if not self._travelling[barrier]:
            for go_on in self._waiting.pop(barrier, ()):
                go_on()
