"""Costs: what the next message, task or transfer of a simulated run costs, drawn from what was recorded."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.simulation.model.overheads import AROUND, Overheads
from dask_efficiency.simulation.model.transfer_costs import TransferCosts

#: Nanoseconds that a scheduler or a worker takes for a message that starts or ends no task, such as ``add-keys`` or
#: ``free-keys``: of these, 300 of one batch took a scheduler 3.6 ms.
SMALL_MESSAGE = 12_000

#: Messages from a worker that end a task, or what it waits for: each is handled on its own.
_ENDS = frozenset({"task-finished", "task-erred", "reschedule", "long-running", "steal-response"})


def _crowded(ns: int, crowd: float) -> int:
    return ns if ns <= AROUND else AROUND + round((ns - AROUND) * crowd)


class Taking(NamedTuple):
    """What it takes to take in a message, in nanoseconds."""

    #: On a core, and waiting for anything else.
    computing: int
    waiting: int


class Costs:
    """Draws costs in nanoseconds; the seed decides.

    Parameters
    ----------
    network
        Whether a network of its own moves the bytes.
    rare
        A quantile of the recorded costs: where processes wait for cores in the simulation, what is above it is taken
        for such waiting, and is cut off.
    without
        Parts that cost nothing, of :data:`~dask_efficiency.runs.replay.changes.REMOVABLE`.
    """

    def __init__(
        self,
        overheads: Overheads,
        transfers: TransferCosts,
        *,
        network: bool,
        without: Collection[str],
        seed: int,
        rare: float = 1.0,
    ) -> None:
        self._overheads, self._transfers, self._rare = overheads, transfers, rare
        self._byte = transfers.byte_beside_network if network else transfers.byte
        # A text as the seed: hashes of texts are the same everywhere only here.
        self._random = random.Random(f"costs {seed}")
        self._messages = "scheduler" not in without
        self._moving = "transfer" not in without
        self._prepare, self._finish = ([*map(self._drawn, each)] for each in (overheads.prepare, overheads.finish))
        self._switch, self._factor = self._drawn(overheads.switch), self._drawn(transfers.factors)
        nothing = (lambda: 0) if not self._messages else None
        #: A message's way from the scheduler to a worker, and back.
        self.to_worker = nothing or self._drawn(overheads.to_worker)
        self.to_scheduler = nothing or self._drawn(overheads.to_scheduler)

    def _drawn(self, sample: NDArray[Any]) -> Callable[[], Any]:
        """Draws what ``random.choice`` would, in half its time and without an object for each value."""
        if self._rare < 1.0 and len(sample):
            sample = np.minimum(sample, np.quantile(sample, self._rare, method="lower"))
        values, count, draw = sample.data, len(sample), self._random.getrandbits
        bits = count.bit_length()

        def drawn() -> Any:
            place = draw(bits)
            while place >= count > 0:
                place = draw(bits)
            return values[place]

        return drawn

    def prepare(self, prefix: int, crowd: float = 1.0) -> int:
        """Draw the time from a slot until the start in the thread.

        Parameters
        ----------
        crowd
            How many of the threads that held the GIL beside such tasks are there, as a share: what is drawn beyond
            :data:`~dask_efficiency.simulation.model.overheads.AROUND` is waiting for them. In [0, 1].
        """
        return _crowded(int(self._prepare[prefix]()), crowd)

    def finish(self, prefix: int, crowd: float = 1.0) -> int:
        """Draw the time from the end in the thread until the next task can have the slot; as :meth:`prepare`."""
        return _crowded(int(self._finish[prefix]()), crowd) + int(self._switch())

    def at_scheduler(self, operation: str) -> int:
        """What a scheduler takes for a message of a worker, beside transitions."""
        if not self._messages:
            return 0
        return self._overheads.scheduler if operation in _ENDS else SMALL_MESSAGE

    def at_worker(self, operation: str) -> int:
        """What a worker takes for a message of the scheduler."""
        if not self._messages:
            return 0
        return self._overheads.worker if operation == "compute-task" else SMALL_MESSAGE

    def cold(self, worker: int, prefix: int) -> int:
        """What a worker takes, once, for the first task of a prefix; MISSING is one that is not a recorded one."""
        cold = self._overheads.cold[:, prefix]
        if not self._messages or not cold.any():
            return 0
        return int(cold[worker] if worker != MISSING else np.median(cold))

    def transitions(self, count: int) -> int:
        """What a scheduler takes for so many transitions."""
        return count * self._overheads.transition * self._messages

    def taking_in(self, ns: int) -> int:
        """What a scheduler takes until a graph's tasks are there, if it took so long when it was recorded."""
        return ns * self._messages

    def settling(self, graph: int) -> int:
        """What it takes from then on until all of them have their first state."""
        return int(self._overheads.settling[graph]) * self._messages

    def refused(self) -> int:
        """The time until a worker knows that it does not get what it asked for."""
        latency, taking = self.transfer(0, 0)
        return latency + sum(taking)

    def transfer(self, results: int, nbytes: int) -> tuple[int, Taking]:
        """A transfer's time before the network, and what it takes of its receiver."""
        if not self._moving:
            return 0, Taking(0, 0)
        costs, factor = self._transfers, self._factor()
        taking = round((costs.message + results * costs.result + nbytes * self._byte) * factor)
        computing = min(taking, round(costs.computing(results, nbytes)))
        return round(costs.latency * factor), Taking(computing, taking - computing)
