"""Engine: one simulated run, from the first graph to the last result."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import dask
from distributed import scheduler as upstream

from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.settings import SETTINGS
from dask_efficiency.simulation.engine.client import with_phases
from dask_efficiency.simulation.engine.cluster import SimulatedCluster
from dask_efficiency.simulation.engine.dask_patches import replace_clocks, replace_hashes, replace_what_is_unused
from dask_efficiency.simulation.engine.membership import membership_note
from dask_efficiency.simulation.engine.settings import simulated_settings
from dask_efficiency.simulation.engine.workload import Workload
from dask_efficiency.simulation.model.calibration import Calibration
from dask_efficiency.simulation.model.disk import Disk
from dask_efficiency.simulation.model.ensemble import SimulationJob
from dask_efficiency.simulation.model.events import EventHeap
from dask_efficiency.simulation.model.requirements import OVERFULL, SIMULATED, left_out
from dask_efficiency.simulation.model.units import few_names

#: Nanoseconds without any but periodic events after which a run counts as standing still: far above any recorded wait
#: for nothing. And between two looks for them.
STILL, LOOK = 10_000_000_000, 1_000_000_000
#: A run that takes this multiple of the recorded one, and an hour more, has impossible instants.
MAX_TIMES, MAX_MORE = 1_000, 3_600_000_000_000
#: Nanoseconds between two runs of the active memory manager, if it is on: as in Dask.
MEMORY_MANAGER = 2_000_000_000


class StandsStill(RuntimeError):
    """A simulated run waits for something that never happens."""


class Engine:
    """One simulated run; the seed decides the order of sets, ports, and the costs that are drawn."""

    def __init__(self, workload: Workload, calibration: Calibration, job: SimulationJob, seed: int) -> None:
        self._workload, self._calibration, self._job, self.seed = workload, calibration, job, seed
        self.clock = EventHeap(workload.trace.start)
        #: Last instant with any but a periodic event.
        self._moved = self.clock.now
        #: Known after the run: the memory limit with which no worker would have spilled or paused; and True if some
        #: worker's memory got so full that a nanny would have ended it.
        self.memory_needed, self.overfull = 0, False

    def run(self, report: Callable[[float], object] = lambda share: None) -> RunTrace:
        """Run to the end, as a recorder would have recorded it.

        Reports now and then the share of the recorded runs of tasks that have begun.
        """
        self._report = report
        replace_clocks(self.clock)
        replace_hashes(self.seed)
        replace_what_is_unused()
        upstream.TaskState._run_id_iterator = count()
        settings = simulated_settings(self._workload.trace.config, self._job.cluster.config)
        # Without logs of events: they would keep results in memory that must be read back from disk.
        with dask.config.set({**settings, "distributed.admin.low-level-log-length": 0}):
            asyncio.run(self._simulate())
        # The loop is closed: nothing refers to the scheduler any more.
        return self._trace({name: value for name, value in settings.items() if name in SETTINGS})

    async def _simulate(self) -> None:
        self._cluster = cluster = SimulatedCluster(self.clock, self._workload, self._calibration, self._job, self.seed)
        await cluster.start()
        clock, clients, recorded = self.clock, cluster.clients, self._workload.trace
        stealing = cluster.scheduler.extensions.get("stealing")
        if stealing is not None:
            clock.every(round(stealing._callback_time * 1e9), stealing.balance)
        if dask.config.get("distributed.scheduler.active-memory-manager.start"):
            clock.every(MEMORY_MANAGER, cluster.scheduler.extensions["amm"].run_once)
        clock.every(max((recorded.stop - recorded.start) // 100, 1), self._report_share)
        clock.every(LOOK, self._check_that_it_moves)
        clients.start()
        while not clients.done:
            # A graph that is yet to be sent may wait for no result.
            if not (clock.run(clients.wanted) if clients.wanted else clock.step()):
                raise StandsStill(self._waiting())

    def _report_share(self) -> None:
        """Report the number of runs that have begun, as a share of the recorded number."""
        begun = sum(worker.rows.begun for worker in self._cluster.ever.values())
        self._report(begun / max(len(self._workload.trace.runs), 1))

    def _check_that_it_moves(self) -> None:
        """Refuse to go on if there were only periodic events lately, or the run takes impossibly long."""
        now, recorded = self.clock.now, self._workload.trace
        if len(self.clock) >= self.clock.periodic:  # this periodic event is not among them now
            self._moved = now
        elif now - self._moved > STILL:
            raise StandsStill(self._waiting())
        if (took := now - recorded.start) > MAX_TIMES * (recorded.stop - recorded.start) + MAX_MORE:
            raise StandsStill(f"after {took / 1e9:.3g} s of virtual time it has not ended: {self._waiting()}")

    def _trace(self, config: Mapping[str, Any]) -> RunTrace:
        cluster, notes = self._cluster, [SIMULATED, *self._notes()]
        self.memory_needed = max((worker.memory.needed for worker in cluster.ever.values()), default=0)
        self.overfull = any(worker.overfull for worker in cluster.ever.values())
        rows, recorder = {address: worker.rows for address, worker in cluster.ever.items()}, cluster.recorder
        cluster.forget()
        del cluster, self._cluster
        gc.collect()
        return with_phases(recorder.trace(rows, config, notes), self._workload.trace)

    def _notes(self) -> list[str]:
        """Notes on assumptions, and on what is left out."""
        trace, workers = self._workload.trace, self._cluster.ever.values()
        full = few_names([worker.spec.name for worker in workers if worker.overfull])
        spills = any(worker.memory.needed > worker.spec.memory_limit > 0 for worker in workers)
        guessed = spills and self._calibration.disk == Disk() and "spill" not in self._job.without
        threads = max((worker.spec.nthreads for worker in workers), default=0)
        return [
            *(self._calibration.notes if threads > 1 else ()),
            *membership_note(trace, self._job.cluster),
            *left_out(trace),
            *([f"{OVERFULL} {full} gets so full that a nanny would end it: here, it goes on."] if full else []),
            *(["How fast results are spilled is a guess, as the recorded run spilled none."] if guessed else []),
        ]

    def _waiting(self) -> str:
        """Describe the tasks that wait, and the paused workers."""
        clients, tasks = self._cluster.clients, self._cluster.scheduler.tasks
        if not clients.wanted:
            return f"the simulated run stands still: {clients.graphs_left} graphs are never sent{self._paused()}"
        states = []
        for key in sorted(clients.wanted, key=str)[:5]:
            ts = tasks.get(key)
            if ts is None:
                states.append(f"{key!r} is unknown to the scheduler")
            else:
                waiting = sorted(str(other.key) for other in ts.waiting_on or ())[:3]
                state = f"{key!r} is {ts.state}" + (f", waiting for {', '.join(waiting)}" if waiting else "")
                states.append(state + self._why_erred(ts))
        results = f"the simulated run stands still at {len(clients.wanted)} results: " + "; ".join(states)
        return results + self._paused()

    def _why_erred(self, ts: upstream.TaskState) -> str:
        """Explain a failed task: Dask fails one whose inputs are larger than the memory of the worker that it chose."""
        inputs, limits = ts.get_nbytes_deps(), [worker.spec.memory_limit for worker in self._cluster.workers.values()]
        least = min(filter(None, limits), default=0)
        if ts.state != "erred" or not 0 < least < inputs:
            return ""
        return f", as its inputs take {inputs / 1e6:.0f} MB and a worker has a memory limit of {least / 1e6:.0f} MB"

    def _paused(self) -> str:
        workers = self._cluster.workers
        full = [
            f"{worker.spec.name} ({worker.memory.process(worker.state.nbytes) / 1e6:.0f} of "
            f"{worker.spec.memory_limit / 1e6:.0f} MB)"
            for address, worker in workers.items()
            if self._cluster.scheduler.workers[address].status.name == "paused"
        ]
        if not full:
            return ""
        return f"; {len(full)} of {len(workers)} workers are paused, as their memory is full: {few_names(full)}"
