"""VirtualWorker: Dask's worker state machine, with computing and transfers in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from heapq import heappop, heappush
from typing import Any

import dask
from dask.utils import parse_bytes
from distributed import worker_state_machine as machine
from distributed.protocol import Serialize

from dask_efficiency.runs.trace.run_trace import WorkerSpec
from dask_efficiency.simulation.engine.costs import Costs, RunCosts, Taking, TaskCosts
from dask_efficiency.simulation.engine.dask_patches import SmallTasks
from dask_efficiency.simulation.engine.memory import Result, WorkerMemory
from dask_efficiency.simulation.engine.messages import Loop, Stream
from dask_efficiency.simulation.engine.recording import RunRecorder, RunRow, WorkerRows
from dask_efficiency.simulation.engine.scheduler import VirtualScheduler
from dask_efficiency.simulation.engine.workload import Workload
from dask_efficiency.simulation.model.cores import HostCores
from dask_efficiency.simulation.model.ensemble import SimulationJob
from dask_efficiency.simulation.model.events import EventHeap
from dask_efficiency.simulation.model.topology import PlainModel, TopologyModel

#: Nanoseconds between two batches of messages to the scheduler: as in Dask.
TO_SCHEDULER = 2_000_000
#: Nanoseconds between two checks of a worker's memory monitor: as in Dask.
MONITOR = 100_000_000
#: Nanoseconds of a core that a thread needs to wake up: a guess, within what operating systems take.
WAKE = 100_000

_EVENTS: dict[str, type[machine.StateMachineEvent]] = {
    "cancel-compute": machine.CancelComputeEvent,
    "acquire-replicas": machine.AcquireReplicasEvent,
    "compute-task": machine.ComputeTaskEvent,
    "free-keys": machine.FreeKeysEvent,
    "remove-replicas": machine.RemoveReplicasEvent,
    "steal-request": machine.StealRequestEvent,
    "refresh-who-has": machine.RefreshWhoHasEvent,
    "remove-worker": machine.RemoveWorkerEvent,
}


#: Nanoseconds until a worker that was too busy to send is asked again: as in Dask.
RETRY = 150_000_000
#: Bytes of a transfer from which Dask measures its bandwidth, and the weight of the newest: as in Dask.
MEASURED, NEWEST = 1_000_000, 0.05

#: Of a run that failed in the recorded run, too.
_FAILURE: dict[str, Any] = {
    "exception": Serialize(RuntimeError("it failed in the recorded run")),
    "exception_text": "it failed in the recorded run",
    "traceback": None,
    "traceback_text": "",
}


class ClusterParts:
    """Parts of a simulated cluster, which reach one another through it."""

    clock: EventHeap
    workload: Workload
    job: SimulationJob
    costs: Costs
    tasks: TaskCosts
    network: PlainModel | TopologyModel
    #: The scheduler, its event loop, and its recorder.
    scheduler: VirtualScheduler
    loop: Loop
    recorder: RunRecorder
    #: By address: workers that are there. By recorded address: the simulated one.
    workers: dict[str, VirtualWorker]
    addresses: dict[str, str]
    #: Makes a worker, and registers it with the scheduler.
    join: Callable[[WorkerSpec, str], Coroutine[Any, Any, None]]
    #: Called at the end of a task's thread; True if the run waits for a call of the last argument.
    at_end: Callable[[int, VirtualWorker, Callable[[], object]], bool]


class VirtualWorker:
    """Worker of the simulated cluster; ``cores`` are those of its host, None if there are enough."""

    def __init__(
        self, cluster: ClusterParts, spec: WorkerSpec, address: str, cores: HostCores | None, memory: WorkerMemory
    ) -> None:
        self._clock, self._costs, self._tasks = cluster.clock, cluster.costs, cluster.tasks
        self._at_end = cluster.at_end
        self.spec, self.address, self.memory = spec, address, memory
        self.loop = Loop(self._clock, cores)
        self.transfers = WorkerTransfers(self, cluster, cores)
        self.stream = Stream(self._clock, TO_SCHEDULER, self.loop)
        self.rows = WorkerRows(self._clock)
        config = dask.config.get
        share = config("distributed.worker.memory.transfer")
        self.state = machine.WorkerState(
            nthreads=spec.nthreads,
            address=address,
            data=memory.data,  # type: ignore[arg-type]  # keys and results of ours
            resources=dict(spec.resources),
            plugins={"rows": self.rows},
            transfer_incoming_count_limit=config("distributed.worker.connections.incoming"),
            transfer_incoming_bytes_limit=spec.memory_limit * share if share and spec.memory_limit else float("inf"),
            transfer_message_bytes_limit=parse_bytes(config("distributed.worker.transfer.message-bytes-limit")),
            validate=cluster.job.validate,
        )
        self.state.plugins["small-tasks"] = SmallTasks(self.state.tasks)
        self._free_slots = list(range(max(spec.nthreads, 1)))
        #: By key: runs that have a slot or have seceded, and their inputs, which stay in memory while they run.
        self.running: dict[Any, RunRow] = {}
        self._inputs: dict[Any, list[Any]] = {}
        #: Instant at which a slot was last freed, and the run that freed it.
        self._last_freed: tuple[int, int] | None = None
        #: Instant until which its event loop waits for the disk.
        self.blocked = 0
        self._paused = self._monitored = self.closed = False
        #: True if its memory got so full that a nanny would have ended it.
        self.overfull = False

    def receive(self, batch: list[dict[str, Any]]) -> None:
        """Take a batch of the scheduler's messages."""
        for message in batch:
            begins = message["op"] == "compute-task"
            if begins and (first := self._tasks.first(self.address, self.spec, message["key"])):
                self.loop.do(first, self.rows.blocked, first)
            self.loop.do(self._costs.at_worker(message["op"]), self._take, message)

    def close(self) -> None:
        """Stop at once, and send nothing more."""
        self.closed = True
        self.stream.abort()

    def _take(self, message: dict[str, Any]) -> None:
        # A message may go to several workers: do not change it.
        given = message.copy()
        event = _EVENTS.get(given.pop("op"))
        if event is not None:
            if event is machine.ComputeTaskEvent:
                self.rows.received(message["key"])
            self.handle(event(**given))
        elif message["op"] == "worker-status-change":
            retiring = message["status"] == "closing_gracefully"
            self.handle((machine.PauseEvent if retiring else machine.UnpauseEvent)(stimulus_id=message["stimulus_id"]))
            if not retiring:
                self.stream.send(message)

    def find_missing(self) -> None:
        """Ask the scheduler for inputs that no worker is known to have, as often as Dask's worker."""
        if self.state.missing_dep_flight:
            self.handle(machine.FindMissingEvent(stimulus_id=self.stimulus("find-missing")))

    def put(self, data: dict[Any, Any]) -> None:
        """Store results that were not computed here."""
        self.handle(machine.UpdateDataEvent(data=data, stimulus_id=self.stimulus("update-data")))

    def handle(self, event: machine.StateMachineEvent) -> int:
        """Pass an event to the state machine; returns the nanoseconds in which the loop wrote and read files."""
        if self.closed:
            return 0
        if self._clock.now < self.blocked:
            self._clock.at(self.blocked, self.handle, event)
            return 0
        instructions = self.state.handle_stimulus(event)
        self.memory.peak = max(self.memory.peak, self.state.nbytes)
        wrote, read = self.wait_for_disk()
        if wrote or read:
            self._clock.at(self.blocked, self._follow, instructions)
        else:
            self._follow(instructions)
        if not self._monitored and self.memory.limited and (self._paused or self.memory.full(self.state.nbytes)):
            self._monitored = True
            self._clock.at(-(-self._clock.now // MONITOR) * MONITOR, self._monitor)
        return wrote + read

    def _follow(self, instructions: list[machine.Instruction]) -> None:
        if self.closed:
            return
        for instruction in instructions:
            if isinstance(instruction, machine.Execute):
                self._execute(instruction.key)
            elif isinstance(instruction, machine.GatherDep):
                self.transfers.gather(instruction)
            elif isinstance(instruction, machine.RetryBusyWorkerLater):
                self._clock.at(self._clock.now + RETRY, self._retry, instruction.worker)
            else:
                self.stream.send(instruction.to_dict())  # type: ignore[attr-defined]  # messages to the scheduler

    def _retry(self, address: str) -> None:
        self.handle(machine.RetryBusyWorkerEvent(worker=address, stimulus_id=self.stimulus("retry-busy-worker")))

    def stimulus(self, kind: str) -> str:
        """Make the id of a stimulus of now."""
        return f"{kind}-{self._clock.now / 1e9:.9f}"

    def wait_for_disk(self) -> tuple[int, int]:
        """Block the loop for the time of writing and reading; returns both, in nanoseconds."""
        wrote, read = self.memory.waited()
        if wrote or read:
            self.loop.do(wrote + read, int)  # and nothing more
            self.blocked = max(self._clock.now, self.blocked) + wrote + read
        return wrote, read

    def _monitor(self) -> None:
        """Check the memory of the process, as Dask does every 100 ms: here, only if something may follow."""
        self._monitored = False
        if self.closed:
            return
        memory, managed = self.memory, self.state.nbytes
        self.overfull |= memory.exceeds("terminate", managed)
        pauses = memory.exceeds("pause", managed)
        memory.evict(managed)
        self.wait_for_disk()
        if pauses != self._paused:
            self._paused = pauses
            stimulus = self.stimulus("worker-status-change")
            status = "paused" if pauses else "running"
            self.stream.send({"op": "worker-status-change", "status": status, "stimulus_id": stimulus})
            self.handle((machine.PauseEvent if pauses else machine.UnpauseEvent)(stimulus_id=stimulus))
        if pauses and not memory.exceeds("pause", self.state.nbytes):
            self._monitored = True
            self._clock.at(self._clock.now + MONITOR, self._monitor)

    def _execute(self, key: Any) -> None:
        steps = self._run(key, lambda: next(steps, None))
        next(steps)

    def _run(self, key: Any, go_on: Callable[[], object]) -> Iterator[None]:
        """Run a task: each step ends where the clock, or a thread that is done, is to call ``go_on``."""
        clock, cores, threads = self._clock, self.loop.cores, self.loop.cores.threads
        run, now = self._tasks.of_run(self.spec, key), max(clock.now, self.blocked)
        task, data = self.state.tasks[key], self.state.data
        task.start_time = now / 1e9
        slot = heappop(self._free_slots) if self._free_slots else self.spec.nthreads
        self.running[key] = row = self.rows.run(key, task.run_id, slot)
        if self._last_freed is not None and row.ready < self._last_freed[0]:
            row.after = self._last_freed[1]
        self._inputs[key] = [data[other.key] for other in task.dependencies if other.key in data]
        row.unspill_ns = sum(self.wait_for_disk())
        row.submitted = row.start = max(now, cores.take(run.prepare) - run.prepare) + row.unspill_ns + run.prepare
        clock.at(row.start, go_on)
        yield
        left = run.compute
        if 0 <= run.secede < run.compute:
            threads.run(self.address, run.secede, run.needs, go_on)
            yield
            if self.closed:
                return
            row.seceded, left = clock.now, run.compute - run.secede
            self._free(row)
        threads.run(self.address, left, run.needs, go_on)
        if row.seceded >= 0:
            took = (row.seceded - row.start) / 1e9
            self.handle(machine.SecedeEvent(key=key, compute_duration=took, stimulus_id=self.stimulus("secede")))
        yield
        # A thread that wakes up must get a core first.
        if (awake := cores.take(WAKE) - WAKE) > clock.now:
            clock.at(awake, go_on)
            yield
        if self._at_end(run.task, self, go_on):
            yield
        row.stop = clock.now
        row.cpu_ns = min(round(run.compute * run.needs.cpu), row.stop - row.start)
        clock.at(cores.take(run.finish), go_on)
        yield
        while not self.closed and clock.now < self.blocked:
            clock.at(self.blocked, go_on)
            yield
        if not self.closed:
            self._end(key, row, run)

    def _end(self, key: Any, row: RunRow, run: RunCosts) -> None:
        del self.running[key], self._inputs[key]
        if row.seceded < 0:
            self._free(row)
        ran: dict[str, Any] = {"key": key, "run_id": row.run_id, "start": row.start / 1e9, "stop": row.stop / 1e9}
        if run.fails:
            row.ended = self._clock.now
            self.rows.keep(row)
            self.handle(machine.ExecuteFailureEvent(**ran, **_FAILURE, stimulus_id=self.stimulus("task-erred")))
            return
        ran |= {"value": Result(run.nbytes), "nbytes": run.nbytes, "type": None}
        row.spill_ns = self.handle(machine.ExecuteSuccessEvent(**ran, stimulus_id=self.stimulus("task-finished")))
        row.ended = self._clock.now + row.spill_ns
        self.rows.keep(row)

    def _free(self, row: RunRow) -> None:
        if row.slot < self.spec.nthreads:
            heappush(self._free_slots, row.slot)
        self._last_freed = self._clock.now, row.run_id

    def metrics(self) -> dict[str, Any]:
        """Metrics of a heartbeat."""
        return {
            "bandwidth": {"total": self.transfers.bandwidth, "workers": {}, "types": {}},
            "memory": self.memory.process(self.state.nbytes),
            "spilled_bytes": {"memory": self.memory.spilled, "disk": self.memory.spilled},
            "digests_total_since_heartbeat": {},
            "managed_bytes": self.state.nbytes,
            "task_counts": {},
            "cpu": 0.0,
            "event_loop_interval": 0.02,
            "transfer": {},
        }

    def executing(self) -> dict[Any, float]:
        """By key: seconds for which each task has been running."""
        now = self._clock.now
        # A thread that has not begun yet counts as 0 s.
        return {key: max(now - row.start, 0) / 1e9 for key, row in self.running.items()}


class WorkerTransfers:
    """Results that a worker gets from others, and sends to them."""

    def __init__(self, worker: VirtualWorker, cluster: ClusterParts, cores: HostCores | None) -> None:
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
        transfers = receiver.transfers
        arrived = lambda: transfers.take_in(taking, transfers._arrived, asked, worker, data, nbytes, start)  # noqa: E731
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
