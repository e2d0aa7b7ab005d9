"""SimulatedCluster: scheduler, workers and clients of one simulated run, which reach one another through it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from distributed.scheduler import heartbeat_interval

from dask_efficiency.runs.trace.run_trace import WorkerSpec
from dask_efficiency.runs.trace.schema import WorkerChange
from dask_efficiency.simulation.engine.client import VirtualClients, put_data
from dask_efficiency.simulation.engine.costs import Costs, TaskCosts
from dask_efficiency.simulation.engine.membership import Membership, planned_workers
from dask_efficiency.simulation.engine.memory import WorkerMemory
from dask_efficiency.simulation.engine.messages import Loop
from dask_efficiency.simulation.engine.recording import RunRecorder
from dask_efficiency.simulation.engine.scheduler import NoComm, VirtualScheduler
from dask_efficiency.simulation.engine.shuffles import Shuffles
from dask_efficiency.simulation.engine.worker import ClusterParts, VirtualWorker
from dask_efficiency.simulation.engine.workload import Workload
from dask_efficiency.simulation.model.calibration import Calibration
from dask_efficiency.simulation.model.cores import BACKGROUND, HostCores
from dask_efficiency.simulation.model.ensemble import SimulationJob
from dask_efficiency.simulation.model.events import EventHeap
from dask_efficiency.simulation.model.topology import InstantNetwork


class SimulatedCluster(ClusterParts):
    """Cluster under virtual time, made in an event loop and under Dask's configuration of the run."""

    def __init__(
        self, clock: EventHeap, workload: Workload, calibration: Calibration, job: SimulationJob, seed: int
    ) -> None:
        self.clock, self.workload, self.job, self._calibration = clock, workload, job, calibration
        self._random = random.Random(seed)
        network = None if "transfer" in job.without else job.cluster.network
        self.costs = Costs(
            *(calibration.overheads, calibration.transfers),
            network=network is not None,
            without=job.without,
            seed=seed,
            rare=calibration.rare,
        )
        self._cores = {host: self._host(host, count, seed) for host, count in job.cluster.cores.items()}
        self.loop = Loop(clock, self._cores.get(job.cluster.with_scheduler))
        self.scheduler = VirtualScheduler(clock, self.loop, validate=job.validate)
        self.recorder = RunRecorder(clock, self.scheduler, workload)
        # Without a simulated network, the receivers' costs include the time of the bytes.
        self.network = (network or InstantNetwork()).model(clock)
        #: By address: workers that are there, and all that ever were.
        self.workers: dict[str, VirtualWorker] = {}
        self.ever: dict[str, VirtualWorker] = {}
        shuffles = Shuffles(self)
        self.at_end = shuffles.at_end
        self.scheduler.add_plugin(self.recorder)
        self.scheduler.add_plugin(shuffles)
        self.tasks = TaskCosts(workload, calibration, job, self.costs)

    def _host(self, host: str, cores: float, seed: int) -> HostCores:
        cluster = self.job.cluster
        processes = sum(spec.host == host for spec in cluster.workers) + (host == cluster.with_scheduler)
        return HostCores(self.clock, cores, processes * BACKGROUND, f"{seed} {host}")

    async def start(self) -> None:
        """Let workers join or plan when they do, connect the clients, and put the data that was there."""
        planned = planned_workers(self.workload.trace, self.job.cluster)
        ports = self._random.sample(range(20_000, 60_000), len(planned))
        members = [
            Membership(self, stay, f"tcp://{stay.spec.host}:{port}") for stay, port in zip(planned, ports, strict=True)
        ]
        #: By recorded address: the simulated one. A worker may have the recorded address of the one that it replaced.
        self.addresses = {member.stay.spec.address: member.address for member in members}
        for member in members:
            if not member.stay.joins:
                await self.join(member.stay.spec, member.address)
            member.plan()
        self.clients = VirtualClients(self)
        put_data(self)

    async def join(self, spec: WorkerSpec, address: str) -> None:
        """Make a worker, and register it with the scheduler."""
        worker = VirtualWorker(self, spec, address, self._cores.get(spec.host), self._memory(spec))
        self.workers[address] = self.ever[address] = worker
        self.recorder.joined(address, replace(spec, cores=self.job.cluster.cores.get(spec.host, 0.0)))
        unknown: dict[str, Any] = {"services": {}, "local_directory": "", "versions": {}, "nanny": "", "extra": {}}
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
            stimulus_id=f"worker-connect-{self.clock.seconds}",
            **unknown,
        )
        self._connect(worker)
        interval = round(1e9 * heartbeat_interval(len(self.workers)))
        self.clock.every(interval, lambda: self._heartbeat(worker), lambda: not worker.closed)

    def _connect(self, worker: VirtualWorker) -> None:
        """Connect the streams between a worker and the scheduler."""
        scheduler_host, worker_host, costs = self.job.cluster.scheduler_host, worker.spec.host, self.costs
        delay: Callable[[str, str], int] = self.network.delay
        if not scheduler_host or "scheduler" in self.job.without:
            delay = lambda source, destination: 0  # noqa: E731
        stream: Any = self.scheduler.stream_comms[worker.address]
        stream.connect(lambda: costs.to_worker() + delay(scheduler_host, worker_host), worker.receive)
        way = lambda: costs.to_scheduler() + delay(worker_host, scheduler_host)  # noqa: E731
        worker.stream.connect(way, lambda batch: self._hear(worker.address, batch))

    def _memory(self, spec: WorkerSpec) -> WorkerMemory:
        names = [recorded.name for recorded in self.workload.trace.workers]
        unmanaged = self._calibration.unmanaged
        of = int(unmanaged[names.index(spec.name)] if spec.name in names else np.median(unmanaged)) if names else 0
        disk = None if "spill" in self.job.without else self._calibration.disk
        return WorkerMemory(spec.memory_limit, of, disk, most=float(self._calibration.nbytes.sum()))

    def _heartbeat(self, worker: VirtualWorker) -> None:
        self.scheduler.heartbeat_worker(
            address=worker.address,
            resolve_address=False,
            now=self.clock.seconds,
            metrics=worker.metrics(),
            executing=worker.executing(),
        )
        worker.find_missing()

    def _hear(self, worker: str, batch: list[dict[str, Any]]) -> None:
        if worker not in self.workers:
            return
        do, cost, take = self.loop.do, self.costs.at_scheduler, self._take
        for message in batch:
            do(cost(message["op"]), take, worker, message)

    def _take(self, worker: str, message: dict[str, Any]) -> None:
        if worker not in self.workers:
            return
        key, operation = message.get("key"), message["op"]
        scheduler, transitions = self.scheduler, self.scheduler.transition_counter
        ts = scheduler.tasks.get(key) if operation == "steal-response" else None  # type: ignore[arg-type]
        before = ts.run_id if ts is not None else None
        scheduler.take(worker, message)
        self.loop.spend(self.costs.transitions(scheduler.transition_counter - transitions))
        if operation == "worker-status-change":
            paused = message["status"] == "paused"
            self.recorder.changed(worker, WorkerChange.PAUSED if paused else WorkerChange.RESUMED)
        if ts is not None and ts.run_id != before and ts.state == "processing":
            self.recorder.stolen(key, message.get("stimulus_id", ""))
        self._look(key)

    def _look(self, key: Any) -> None:
        """Pass a result that is there, or failed for good, to the clients."""
        tasks = self.scheduler.tasks
        ts = tasks.get(key)
        if ts is not None and ts.state == "memory":
            self.clients.hear(key)
        elif ts is not None and ts.state == "erred":
            for wanted in [key for key in self.clients.wanted if tasks[key].state == "erred"]:
                self.clients.hear(wanted)

    def forget(self) -> None:
        """Free it, as its state takes more memory than its recording: breaking the references frees most at once."""
        self.recorder.detach()
        _free_tasks(self.scheduler.tasks)
        while self.ever:
            _free_tasks(self.ever.popitem()[1].state.tasks)
        self.workers.clear()
        self.clock.clear()


def _free_tasks(tasks: dict[Any, Any]) -> None:
    """Free tasks of the scheduler or of a worker, which refer to one another."""
    for task in tasks.values():
        task.dependencies = task.dependents = task.waiters = task.who_has = None
    tasks.clear()
