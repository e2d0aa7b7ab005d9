"""Costs of messages, transfers and tasks of a simulated run, drawn from what was recorded."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace.run_trace import WorkerSpec
from dask_efficiency.simulation.engine.workload import Workload
from dask_efficiency.simulation.model.calibration import Calibration
from dask_efficiency.simulation.model.cores import Needs
from dask_efficiency.simulation.model.ensemble import SimulationJob
from dask_efficiency.simulation.model.overheads import AROUND, Overheads
from dask_efficiency.simulation.model.thread_waits import LEAST_CROWD
from dask_efficiency.simulation.model.transfer_costs import TransferCosts

#: Nanoseconds of a scheduler or a worker for a message that starts or ends no task, such as ``add-keys`` or
#: ``free-keys``: measured, 300 of one batch took a scheduler 3.6 ms.
SMALL_MESSAGE = 12_000
#: Messages from a worker that end a task, or what it waits for: each is handled on its own.
_ENDS = frozenset({"task-finished", "task-erred", "reschedule", "long-running", "steal-response"})


def _crowded(ns: int, crowd: float) -> int:
    return ns if ns <= AROUND else AROUND + round((ns - AROUND) * crowd)


class Taking(NamedTuple):
    """Cost of taking in a message: nanoseconds on a core, and of waiting for anything else."""

    computing: int
    waiting: int


class Costs:
    """Draws costs in nanoseconds by a seed; recorded ones above the quantile ``rare`` count as waiting for cores."""

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
        self._byte = transfers.byte_with_network if network else transfers.byte
        # The seed is a text: only here, hashes of texts are the same in every process.
        self._random = random.Random(f"costs {seed}")
        self._messages = "scheduler" not in without
        self._moving = "transfer" not in without
        self._prepare, self._finish = (
            [*map(self._drawn, observed)] for observed in (overheads.prepare, overheads.finish)
        )
        self._switch, self._factor = self._drawn(overheads.switch), self._drawn(transfers.factors)
        nothing = (lambda: 0) if not self._messages else None
        #: Draw the travel time of a message from the scheduler to a worker, and back.
        self.to_worker = nothing or self._drawn(overheads.to_worker)
        self.to_scheduler = nothing or self._drawn(overheads.to_scheduler)

    def _drawn(self, sample: NDArray[Any]) -> Callable[[], Any]:
        """Make a function that draws as ``random.choice``, in half its time and without an object for each value."""
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
        """Draw the time from a slot until the start in the thread; ``crowd`` is the part of its waiting that stays."""
        return _crowded(int(self._prepare[prefix]()), crowd)

    def finish(self, prefix: int, crowd: float = 1.0) -> int:
        """Draw the time from the end in the thread until the next task can have the slot; as :meth:`prepare`."""
        return _crowded(int(self._finish[prefix]()), crowd) + int(self._switch())

    def at_scheduler(self, operation: str) -> int:
        """Cost for the scheduler of a worker's message, without transitions."""
        return (self._overheads.scheduler if operation in _ENDS else SMALL_MESSAGE) * self._messages

    def at_worker(self, operation: str) -> int:
        """Cost for a worker of a message from the scheduler."""
        return (self._overheads.worker if operation == "compute-task" else SMALL_MESSAGE) * self._messages

    def cold(self, worker: int, prefix: int) -> int:
        """Extra cost, once, of a worker's first task of a prefix; MISSING is a worker that was not recorded."""
        cold = self._overheads.cold[:, prefix]
        if not self._messages or not cold.any():
            return 0
        return int(cold[worker] if worker != MISSING else np.median(cold))

    def transitions(self, count: int) -> int:
        """Cost for the scheduler of a number of transitions."""
        return count * self._overheads.transition * self._messages

    def taking_in(self, ns: int) -> int:
        """Time of the scheduler until a graph's tasks are there, given the recorded one."""
        return ns * self._messages

    def settling(self, graph: int) -> int:
        """Time from then on until all of the graph's tasks have their first state."""
        return int(self._overheads.settling[graph]) * self._messages

    def refused(self) -> int:
        """Time until a worker knows that its request for results is refused."""
        latency, taking = self.transfer(0, 0)
        return latency + sum(taking)

    def transfer(self, results: int, nbytes: int) -> tuple[int, Taking]:
        """Draw a transfer's latency before the network, and its cost for the receiver."""
        if not self._moving:
            return 0, Taking(0, 0)
        costs, factor = self._transfers, self._factor()
        taking = round((costs.message + results * costs.result + nbytes * self._byte) * factor)
        computing = min(taking, round(costs.computing(results, nbytes)))
        return round(costs.latency * factor), Taking(computing, taking - computing)


class RunCosts(NamedTuple):
    """Costs of one run of a task on a worker, in nanoseconds."""

    task: int
    prepare: int
    compute: int
    finish: int
    #: From its start until it leaves its slot; -1 where it does not.
    secede: int
    nbytes: int
    fails: bool
    #: Of its time in its thread.
    needs: Needs


class TaskCosts:
    """Costs of each run of a task on the worker that it is given to."""

    def __init__(self, workload: Workload, calibration: Calibration, job: SimulationJob, costs: Costs) -> None:
        trace, prefixes = workload.trace, job.prefixes or {}
        self._number, self._costs = workload.number, costs
        self._prefix = trace.tasks.prefix.data
        self._factor = [prefixes.get(name, 1.0) for name in workload.prefixes]
        # Buffers, without an object for each value.
        self._compute, self._secede = calibration.compute.data, calibration.secede.data
        self._nbytes, self._failures = calibration.nbytes.data, calibration.failures.data
        self._cpu, self._held, self._gpu = calibration.cpu.data, calibration.held.data, calibration.gpu.data
        self._crowd = calibration.crowd.tolist()
        self._others = max((worker.nthreads for worker in trace.workers), default=1) - 1
        self._failed: Counter[int] = Counter()
        #: By name: the number of the recorded worker. Addresses and prefixes of the tasks that workers have read.
        self._recorded = {worker.name: i for i, worker in enumerate(trace.workers)}
        self._read: set[tuple[str, int]] = set()
        #: By name of a worker, and by prefix: time of a task as a multiple of the median worker's.
        self._pace = {worker.name: pace for worker, pace in zip(trace.workers, calibration.pace.tolist(), strict=True)}
        columns = calibration.pace.shape[1]
        self._pace |= {name: [1.0 / speed] * columns for name, speed in job.cluster.speeds.items()}
        self._even = [1.0] * columns

    def first(self, address: str, spec: WorkerSpec, key: Any) -> int:
        """Extra time of a worker to read a task, above 0 for the first of its prefix where that was slow."""
        prefix = self._prefix[self._number[key]]
        if (address, prefix) in self._read:
            return 0
        self._read.add((address, prefix))
        return self._costs.cold(self._recorded.get(spec.name, MISSING), prefix)

    def of_run(self, spec: WorkerSpec, key: Any) -> RunCosts:
        """Draw the costs of the run that begins."""
        task = self._number[key]
        prefix = self._prefix[task]
        factor = self._pace.get(spec.name, self._even)[prefix] * self._factor[task]
        failures, secede = self._failures[task], self._secede[task]
        fails = failures < 0 or self._failed[task] < failures
        self._failed[task] += fails
        # With fewer or more threads that hold the GIL than recorded, the event loop waits less or longer around a task.
        others, recorded = spec.nthreads - 1, self._crowd[prefix]
        crowd = others / recorded if others < recorded else 1.0
        if others > self._others > 0 and recorded >= LEAST_CROWD:
            crowd = others / self._others
        return RunCosts(
            task=task,
            prepare=self._costs.prepare(prefix, crowd),
            compute=round(self._compute[task] * factor),
            finish=self._costs.finish(prefix, crowd),
            secede=round(secede * factor) if secede >= 0 else -1,
            nbytes=self._nbytes[task],
            fails=fails,
            needs=Needs(self._cpu[task], self._held[task], self._gpu[task]),
        )
