"""TaskCosts: what each run of a task costs on the worker that it is given to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.simulation.engine.costs import Costs
from dask_efficiency.simulation.engine.worker import Moves, VirtualWorker, Work
from dask_efficiency.simulation.engine.workload import Workload
from dask_efficiency.simulation.model.calibration import Calibration
from dask_efficiency.simulation.model.job import Job
from dask_efficiency.simulation.model.processor import Needs


class TaskCosts:
    """What each run of a task costs on the worker that it is given to.

    Parameters
    ----------
    costs
        Draws what goes on around a task.
    moves
        By task: as of :attr:`Work.moves`.
    """

    def __init__(
        self,
        workload: Workload,
        calibration: Calibration,
        job: Job,
        costs: Costs,
        moves: Callable[[int], Moves | None],
    ) -> None:
        trace, prefixes = workload.trace, job.prefixes or {}
        self._number, self._costs, self._moves = workload.number, costs, moves
        self._prefix = trace.tasks.prefix.data
        self._factor = [prefixes.get(name, 1.0) for name in workload.prefixes]
        # Without an object for each value.
        self._compute, self._secede = calibration.compute.data, calibration.secede.data
        self._nbytes, self._failures = calibration.nbytes.data, calibration.failures.data
        self._cpu, self._held, self._gpu = calibration.cpu.data, calibration.held.data, calibration.gpu.data
        self._crowd = calibration.crowd.tolist()
        self._failed: Counter[int] = Counter()
        #: By name: the number of the recorded worker. Addresses and prefixes of the tasks that workers have read.
        self._recorded = {worker.name: i for i, worker in enumerate(trace.workers)}
        self._read: set[tuple[str, int]] = set()
        #: By name of a worker, and by prefix: how many times as long as in the middle a task takes.
        self._pace = {worker.name: pace for worker, pace in zip(trace.workers, calibration.pace.tolist(), strict=True)}
        columns = calibration.pace.shape[1]
        self._pace |= {name: [1.0 / speed] * columns for name, speed in job.cluster.speeds.items()}
        self._even = [1.0] * columns

    def first(self, worker: VirtualWorker, key: Any) -> int:
        """What a worker takes to read a task beyond what it takes for every one: the first of its kind may be slow."""
        prefix = self._prefix[self._number[key]]
        if (worker.address, prefix) in self._read:
            return 0
        self._read.add((worker.address, prefix))
        return self._costs.cold(self._recorded.get(worker.spec.name, MISSING), prefix)

    def work(self, worker: VirtualWorker, key: Any) -> Work:
        """What a worker needs to know of the run of a task that begins."""
        task = self._number[key]
        prefix = self._prefix[task]
        factor = self._pace.get(worker.spec.name, self._even)[prefix] * self._factor[task]
        failures, secede = self._failures[task], self._secede[task]
        fails = failures < 0 or self._failed[task] < failures
        self._failed[task] += fails
        # Where fewer threads hold the GIL than when it was recorded, the event loop waits less for it around a task.
        others, recorded = worker.spec.nthreads - 1, self._crowd[prefix]
        crowd = others / recorded if others < recorded else 1.0
        return Work(
            prepare=self._costs.prepare(prefix, crowd),
            compute=round(self._compute[task] * factor),
            finish=self._costs.finish(prefix, crowd),
            secede=round(secede * factor) if secede >= 0 else -1,
            nbytes=self._nbytes[task],
            fails=fails,
            needs=Needs(self._cpu[task], self._held[task], self._gpu[task]),
            moves=self._moves(task),
        )
