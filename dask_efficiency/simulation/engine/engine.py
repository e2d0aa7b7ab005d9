"""Engine: one simulated run, from the first graph to the last result."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import dask
import numpy as np
from distributed import scheduler as upstream
from distributed.scheduler import heartbeat_interval

from dask_efficiency.runs.path.path import CriticalPath
from dask_efficiency.runs.path.scope import Question
from dask_efficiency.runs.trace.run_trace import WorkerSpec
from dask_efficiency.runs.trace.schema import WorkerChange
from dask_efficiency.runs.trace.settings import SETTINGS
from dask_efficiency.simulation.engine.client import VirtualClients, put_data, with_phases
from dask_efficiency.simulation.engine.costs import Costs, TaskCosts
from dask_efficiency.simulation.engine.dask_patches import replace_clocks, replace_hashes, replace_what_is_unused
from dask_efficiency.simulation.engine.membership import Membership, PlannedWorker, membership_note, planned_workers
from dask_efficiency.simulation.engine.memory import WorkerMemory
from dask_efficiency.simulation.engine.messages import Loop
from dask_efficiency.simulation.engine.recording import RunRecorder
from dask_efficiency.simulation.engine.scheduler import NoComm, VirtualScheduler
from dask_efficiency.simulation.engine.settings import simulated_settings
from dask_efficiency.simulation.engine.shuffles import Shuffles
from dask_efficiency.simulation.engine.worker import VirtualWorker
from dask_efficiency.simulation.engine.workload import Workload
from dask_efficiency.simulation.model.calibration import Calibration
from dask_efficiency.simulation.model.cores import BACKGROUND, FewCores, HostCores
from dask_efficiency.simulation.model.ensemble import Simulated, SimulationJob
from dask_efficiency.simulation.model.events import EventHeap
from dask_efficiency.simulation.model.network import InstantNetwork
from dask_efficiency.simulation.model.requirements import SIMULATED, left_out, overfull
from dask_efficiency.simulation.model.units import few_names

#: Nanoseconds without any but periodic events after which a run counts as standing still: far above any recorded wait
#: for nothing.
STILL = 10_000_000_000

#: A run that takes this multiple of the recorded one, and an hour more, has impossible instants.
MAX_TIMES, MAX_MORE = 1_000, 3_600_000_000_000

#: Nanoseconds between two runs of the active memory manager, if it is on: as in Dask.
MEMORY_MANAGER = 2_000_000_000


class StandsStill(RuntimeError):
    """A simulated run waits for something that never happens."""


class Engine:
    """One simulated run.

    Parameters
    ----------
    workload, calibration
        The tasks to run, and the costs of their parts.
    job
        The cluster, and the changes.
    seed
        Decides the order of sets, ports, and the costs that are drawn.
    """

    def __init__(self, workload: Workload, calibration: Calibration, job: SimulationJob, seed: int) -> None:
        self._workload, self._calibration, self._job, self.seed = workload, calibration, job, seed
        self.clock = EventHeap(workload.trace.start)
        self._random = random.Random(seed)
        #: Number of periodic events, and the last instant with any other one.
        self._periodic, self._moved = 0, self.clock.now
        recorded = workload.trace.stop - workload.trace.start
        self._latest = workload.trace.start + MAX_TIMES * recorded + MAX_MORE

    def run(self, report: Callable[[float], object] = lambda share: None) -> Simulated:
        """Run to the end.

        Parameters
        ----------
        report
            Called now and then with the share of the recorded runs of tasks that have begun.
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
        return self._result({name: value for name, value in settings.items() if name in SETTINGS})

    async def _simulate(self) -> None:
        await self._build()
        self._turn()

    # -- the cluster ---------------------------------------------------------------------------

    async def _build(self) -> None:
        clock, calibration, job = self.clock, self._calibration, self._job
        free = "transfer" in job.without
        network = None if free else job.cluster.network
        self._costs = Costs(
            calibration.overheads,
            calibration.transfers,
            network=network is not None,
            without=job.without,
            seed=self.seed,
            rare=calibration.rare if job.cluster.cores else 1.0,
        )
        self._cores = self._hosts()
        self._loop = Loop(clock, self._cores.get(job.cluster.with_scheduler))
        self.scheduler = VirtualScheduler(clock, self._loop, validate=job.validate)
        self.recorder = RunRecorder(clock, self.scheduler, self._workload)
        self.scheduler.add_plugin(self.recorder)
        # Without a simulated network, the receivers' costs include the time of the bytes.
        self._network = (network or InstantNetwork()).model(clock)
        #: Workers that are there, and all that ever were.
        self.workers: dict[str, VirtualWorker] = {}
        self._ever: dict[str, VirtualWorker] = {}
        shuffles = Shuffles(clock, self.scheduler, self._workload, self.workers, self._network, self._costs)
        self.scheduler.add_plugin(shuffles)
        self._tasks = TaskCosts(self._workload, calibration, job, self._costs, shuffles.at_end)
        there = planned_workers(self._workload.trace, job.cluster)
        ports = self._random.sample(range(20_000, 60_000), len(there))
        addresses = [f"tcp://{stay.spec.host}:{port}" for stay, port in zip(there, ports, strict=True)]
        # A worker may have the recorded address of the one that it replaced.
        by_recorded = {stay.spec.address: address for stay, address in zip(there, addresses, strict=True)}
        membership = Membership(clock, self.scheduler, self.recorder, self.workers, self._join)
        for stay, address in zip(there, addresses, strict=True):
            if not stay.joins:
                await self._join(stay, address)
            membership.plan(stay, address)
        self.clients = VirtualClients(clock, self.scheduler, self._loop, self._workload, self._costs, by_recorded)
        put_data(self._workload, self.scheduler, self.workers, by_recorded, clock)

    def _hosts(self) -> dict[str, HostCores]:
        """By host: its cores, where their number is known."""
        cluster, found = self._job.cluster, {}
        for host, cores in cluster.cores.items():
            processes = sum(spec.host == host for spec in cluster.workers) + (host == cluster.with_scheduler)
            found[host] = FewCores(self.clock, cores, processes * BACKGROUND, f"{self.seed} {host}")
        return dict(found)

    async def _join(self, stay: PlannedWorker, address: str) -> None:
        clock, costs, job, spec = self.clock, self._costs, self._job, stay.spec
        worker = VirtualWorker(
            clock,
            spec,
            address,
            costs=costs,
            cores=self._cores.get(spec.host),
            costs_of_run=self._tasks.of_run,
            first=self._tasks.first,
            network=self._network,
            peers=self.workers,
            memory=self._memory(spec),
            validate=job.validate,
        )
        self.workers[address] = self._ever[address] = worker
        self.recorder.joined(address, replace(spec, cores=job.cluster.cores.get(spec.host, 0.0)))
        await self.scheduler.add_worker(
            comm=NoComm(),  # type: ignore[arg-type]
            address=address,
            status="running",
            server_id=f"worker-{self._random.getrandbits(64)}",
            nthreads=spec.nthreads,
            name=spec.name,
            resolve_address=False,
            now=self.clock.seconds,
            resources=dict(spec.resources),
            memory_limit=spec.memory_limit,
            metrics=worker.metrics(),
            services={},
            local_directory="",
            versions={},
            nanny="",
            extra={},
            stimulus_id=f"worker-connect-{self.clock.seconds}",
        )
        stream: Any = self.scheduler.stream_comms[address]
        here, there, delay = job.cluster.scheduler_host, spec.host, self._network.delay
        if not here or "scheduler" in job.without:
            delay = _no_delay
        stream.connect(lambda: costs.to_worker() + delay(here, there), worker.receive)
        way = lambda: costs.to_scheduler() + delay(there, here)  # noqa: E731
        worker.stream.connect(way, lambda batch: self._hear(address, batch))
        interval = round(1e9 * heartbeat_interval(len(self.workers)))
        self._every(interval, lambda: self._heartbeat(worker), lambda: not worker.closed)

    def _memory(self, spec: WorkerSpec) -> WorkerMemory:
        names = [recorded.name for recorded in self._workload.trace.workers]
        unmanaged = self._calibration.unmanaged
        of = int(unmanaged[names.index(spec.name)] if spec.name in names else np.median(unmanaged)) if names else 0
        disk = None if "spill" in self._job.without else self._calibration.disk
        return WorkerMemory(spec.memory_limit, of, disk, most=float(self._calibration.nbytes.sum()))

    # -- the scheduler's loop ------------------------------------------------------------------

    def _hear(self, worker: str, batch: list[dict[str, Any]]) -> None:
        if worker not in self.workers:
            return
        do, cost, take = self._loop.do, self._costs.at_scheduler, self._take
        for message in batch:
            do(cost(message["op"]), take, worker, message)

    def _take(self, worker: str, message: dict[str, Any]) -> None:
        if worker not in self.workers:
            return
        key, operation, stimulus = message.get("key"), message["op"], message.get("stimulus_id", "")
        stealing = operation == "steal-response"
        ts = self.scheduler.tasks.get(key) if stealing else None  # type: ignore[arg-type]
        before = ts.run_id if ts is not None else None
        transitions = self.scheduler.transition_counter
        self.scheduler.take(worker, message)
        self._loop.spend(self._costs.transitions(self.scheduler.transition_counter - transitions))
        if operation == "worker-status-change":
            paused = message["status"] == "paused"
            self.recorder.changed(worker, WorkerChange.PAUSED if paused else WorkerChange.RESUMED)
        if ts is not None and ts.run_id != before and ts.state == "processing":
            self.recorder.stolen(key, stimulus)
        self._look(key)

    def _look(self, key: Any) -> None:
        """Pass a result that is there, or failed for good, to the clients."""
        ts = self.scheduler.tasks.get(key)
        if ts is not None and ts.state == "memory":
            self.clients.hear(key)
        elif ts is not None and ts.state == "erred":
            for wanted in [key for key in self.clients.wanted if self.scheduler.tasks[key].state == "erred"]:
                self.clients.hear(wanted)

    # -- time ----------------------------------------------------------------------------------

    def _every(self, interval: int, function: Any, goes_on: Callable[[], bool] = lambda: True) -> None:
        """Call a function periodically, as long as a condition holds."""
        self._periodic += 1

        def again() -> None:
            if not goes_on():
                self._periodic -= 1
                return
            function()
            self.clock.at(self.clock.now + interval, again)
            self._check_that_it_moves()

        self.clock.at(self.clock.now + interval, again)

    def _turn(self) -> None:
        """Process events until the clients have all results."""
        stealing = self.scheduler.extensions.get("stealing")
        if stealing is not None:
            self._every(round(stealing._callback_time * 1e9), stealing.balance)
        if dask.config.get("distributed.scheduler.active-memory-manager.start"):
            self._every(MEMORY_MANAGER, self.scheduler.extensions["amm"].run_once)
        recorded = self._workload.trace
        self._every(max((recorded.stop - recorded.start) // 100, 1), lambda: self._report(self._begun))
        self.clients.start()
        clock, clients = self.clock, self.clients
        while not clients.done:
            # A graph that is yet to be sent may wait for no result.
            if not (clock.run(clients.wanted) if clients.wanted else clock.step()):
                raise StandsStill(self._waiting())

    @property
    def _begun(self) -> float:
        """Number of runs that have begun, as a share of the recorded number."""
        return sum(worker.rows.begun for worker in self._ever.values()) / max(len(self._workload.trace.runs), 1)

    def _result(self, config: Mapping[str, Any]) -> Simulated:
        rows = {address: worker.rows for address, worker in self._ever.items()}
        recorder, recorded, notes = self.recorder, self._workload.trace, [SIMULATED, *self._notes()]
        self._forget()
        trace = with_phases(recorder.trace(rows, config, notes), recorded)
        path = CriticalPath.of(trace, Question())
        return Simulated(self.seed, path.makespan_seconds, path.seconds("kind"), trace)

    def _check_that_it_moves(self) -> None:
        """Refuse to go on if there were only periodic events lately, or the run takes impossibly long."""
        if len(self.clock) > self._periodic:
            self._moved = self.clock.now
        elif self.clock.now - self._moved > STILL:
            raise StandsStill(self._waiting())
        if self.clock.now > self._latest:
            took = (self.clock.now - self._workload.trace.start) / 1e9
            raise StandsStill(f"after {took:.3g} s of virtual time it has not ended: {self._waiting()}")

    def _forget(self) -> None:
        """Free the cluster: its state takes more memory than its recording."""
        self.recorder.detach()
        # Breaking the references frees most of it at once, without a search by the garbage collector.
        _free_tasks(self.scheduler.tasks)
        while self._ever:
            _free_tasks(self._ever.popitem()[1].state.tasks)
        self.workers.clear()
        self.clock.clear()
        del self.recorder, self.scheduler, self.clients, self.workers, self._ever, self._tasks, self._loop
        gc.collect()

    def _notes(self) -> list[str]:
        """Notes on assumptions, and on what is left out."""
        trace = self._workload.trace
        names = [worker.spec.name for worker in self._ever.values() if worker.overfull]
        threads = max((worker.spec.nthreads for worker in self._ever.values()), default=0)
        return [
            *(self._calibration.notes if threads > 1 else ()),
            *membership_note(trace, self._job.cluster),
            *left_out(trace),
            *([overfull(names)] if names else []),
        ]

    def _heartbeat(self, worker: VirtualWorker) -> None:
        self.scheduler.heartbeat_worker(
            address=worker.address,
            resolve_address=False,
            now=self.clock.seconds,
            metrics=worker.metrics(),
            executing=worker.executing(),
        )
        worker.find_missing()

    def _waiting(self) -> str:
        """Describe the tasks that wait, and the paused workers."""
        return self._waiting_tasks() + self._paused()

    def _why_erred(self, ts: upstream.TaskState) -> str:
        """Explain a failed task: Dask fails one whose inputs are larger than the memory of the worker that it chose."""
        inputs, limits = ts.get_nbytes_deps(), [worker.spec.memory_limit for worker in self.workers.values()]
        least = min(filter(None, limits), default=0)
        if ts.state != "erred" or not 0 < least < inputs:
            return ""
        return f", as its inputs take {inputs / 1e6:.0f} MB and a worker has a memory limit of {least / 1e6:.0f} MB"

    def _paused(self) -> str:
        full = [
            f"{worker.spec.name} ({worker.memory.process(worker.state.nbytes) / 1e6:.0f} of "
            f"{worker.spec.memory_limit / 1e6:.0f} MB)"
            for address, worker in self.workers.items()
            if self.scheduler.workers[address].status.name == "paused"
        ]
        if not full:
            return ""
        return f"; {len(full)} of {len(self.workers)} workers are paused, as their memory is full: {few_names(full)}"

    def _waiting_tasks(self) -> str:
        if not self.clients.wanted:
            return f"the simulated run stands still: {self.clients.graphs_left} graphs are never sent"
        found = []
        for key in sorted(self.clients.wanted, key=str)[:5]:
            ts = self.scheduler.tasks.get(key)
            if ts is None:
                found.append(f"{key!r} is unknown to the scheduler")
            else:
                waiting = sorted(str(other.key) for other in ts.waiting_on or ())[:3]
                state = f"{key!r} is {ts.state}" + (f", waiting for {', '.join(waiting)}" if waiting else "")
                found.append(state + self._why_erred(ts))
        return f"the simulated run stands still at {len(self.clients.wanted)} results: " + "; ".join(found)


def _no_delay(source: str, destination: str) -> int:
    return 0


def _free_tasks(tasks: dict[Any, Any]) -> None:
    """Free tasks of the scheduler or of a worker, which refer to one another."""
    for task in tasks.values():
        task.dependencies = task.dependents = task.waiters = task.who_has = None
    tasks.clear()
