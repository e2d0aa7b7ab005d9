"""The cluster of ``benchmarks/scale.py``: a real scheduler, and fake workers whose heartbeats and results are due."""

from __future__ import annotations

import asyncio
import gc
import time
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Scheduler

    from benchmarks.scale_clock import Clock
    from benchmarks.scale_workers import FakeWorker

#: Seconds between two times at which heartbeats and results that are due arrive.
TICK_SECONDS = 0.02

#: Tasks of a graph, and of one prefix in it. With more at once, upstream takes them in for a long time.
GRAPH_TASKS = 1_000
PREFIX_TASKS = 100

CLIENT = "Client-scale"


class Collections:
    """What Python's collection of garbage takes, by the CPU's clock."""

    def __init__(self) -> None:
        #: All CPU nanoseconds so far, and the milliseconds of the longest since :meth:`begin`.
        self.ns = 0
        self.longest_ms = 0.0
        self._before = self._began = 0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, _: object) -> None:
        if phase == "start":
            self._began = time.thread_time_ns()
        else:
            took = time.thread_time_ns() - self._began
            self.ns += took
            self.longest_ms = max(self.longest_ms, took / 1e6)

    def begin(self) -> None:
        """Count from now on."""
        self._before, self.longest_ms = self.ns, 0.0

    @property
    def seconds(self) -> float:
        """CPU seconds since :meth:`begin`."""
        return (self.ns - self._before) / 1e9


class Stream:
    """In place of a connection: what is written to it is gone, and nothing ever comes."""

    name = peer_address = local_address = "stream"

    async def write(self, *_: Any, **__: Any) -> int:
        """Nothing."""
        return 0

    async def read(self, *_: Any, **__: Any) -> Any:
        """Nothing, for ever."""
        await asyncio.get_running_loop().create_future()

    def send(self, *_: Any) -> None:
        """Nothing."""

    def closed(self) -> bool:
        """It is open."""
        return False

    def abort(self) -> None:
        """Nothing."""

    async def close(self) -> None:
        """Nothing."""


class Cluster:
    """A scheduler with workers that send heartbeats and results as they are due.

    Parameters
    ----------
    clock
        Which time it is.
    asked
        What is to be run: ``workers``, ``tasks``, ``prefixes``, ``seconds``, ``plugin``, ``gpu``.
    """

    def __init__(self, clock: Clock, scheduler: Scheduler, asked: Any) -> None:
        from distributed.scheduler import heartbeat_interval

        from benchmarks.scale_workers import FIRST_SECONDS, workers

        self.clock = clock
        self.scheduler = scheduler
        self.asked = asked
        self.workers: list[FakeWorker] = workers(asked.workers, asked.prefixes, gpu=asked.gpu)
        self.interval = float(heartbeat_interval(asked.workers))
        self.payload_bytes: list[int] = []
        self.heartbeats_seconds = 0.0
        self.submitted = self.finished = 0
        self._running: list[Any] = []
        self._inbox = self.workers[0].inbox
        self._released: list[Any] = []
        self._began = 0.0
        #: When each worker's next heartbeat is due, in order.
        self._due = deque(
            (FIRST_SECONDS + i / len(self.workers) * self.interval, worker) for i, worker in enumerate(self.workers)
        )

    def _metrics(self, worker: FakeWorker | None) -> dict[str, Any]:
        from dask_efficiency.plugin.names import METRIC

        metrics: dict[str, Any] = {
            "task_counts": {},
            "bandwidth": {"total": 1e8, "workers": {}, "types": {}},
            "digests_total_since_heartbeat": {"latency": 0.001, "tick-duration": 0.5},
            "managed_bytes": 0,
            "spilled_bytes": {"memory": 0, "disk": 0},
            "transfer": {"incoming_bytes": 0, "incoming_count": 0, "outgoing_bytes": 0, "outgoing_count": 0},
            "event_loop_interval": 0.02,
            "cpu": 90.0,
            "memory": 200_000_000,
            "time": time.time(),
            "host_net_io": {"read_bps": 0.0, "write_bps": 0.0},
            "num_fds": 30,
        }
        if worker is not None:  # made without the plugin, too: it must take the same time and memory
            payload, nbytes = worker.payload(self.interval)
            self.payload_bytes.append(nbytes)
            if self.asked.plugin:
                metrics[METRIC] = payload
        return metrics

    async def join(self) -> None:
        """Add the workers."""
        from distributed import scheduler as upstream

        # Compares each new worker's versions with those of all others.
        upstream.version_module.error_message = lambda *_, **__: {}
        self.scheduler.client_comms[CLIENT] = Stream()  # type: ignore[assignment]
        self.scheduler.clients[CLIENT] = upstream.ClientState(CLIENT)
        for worker in self.workers:
            joining = self.scheduler.add_worker(
                Stream(),  # type: ignore[arg-type]
                address=worker.address,
                status="running",
                server_id=f"Worker-{worker.number}",
                nthreads=4,
                name=f"worker-{worker.number}",
                resolve_address=False,
                now=time.time(),
                resources={},
                memory_limit=2**34,
                metrics=self._metrics(None),
                services={},
                local_directory="/tmp",
                versions={},
                nanny="",
                extra={},
                stimulus_id="join",
            )
            self._running.append(asyncio.create_task(joining))
        while len(self.scheduler.stream_comms) < len(self.workers):  # noqa: ASYNC110  # no event says so
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        for worker in self.workers:
            self.scheduler.stream_comms[worker.address] = worker  # type: ignore[assignment]

    async def run(self, until: float) -> None:
        """Let heartbeats and results arrive, until so many seconds after the first call."""
        self._began = self._began or time.monotonic()
        while (now := time.monotonic() - self._began) < until:
            while self._due[0][0] <= now:
                at, worker = self._due.popleft()
                self._heartbeat(worker)
                self._due.append((at + self.interval, worker))
            self._submit()
            self._finish(round(self.asked.tasks * min(1.0, now / self.asked.seconds)) - self.finished)
            await asyncio.sleep(TICK_SECONDS)

    def _heartbeat(self, worker: FakeWorker) -> None:
        with self.clock.left_out():
            metrics = self._metrics(worker)
        began = time.thread_time()
        self.scheduler.heartbeat_worker(
            address=worker.address, resolve_address=False, now=time.time(), metrics=metrics, executing={}, extensions={}
        )
        self.heartbeats_seconds += time.thread_time() - began

    def _submit(self) -> None:
        """Have enough tasks outstanding for all threads, and some more."""
        enough = 6 * len(self.workers) + GRAPH_TASKS
        while self.submitted < self.asked.tasks and self.submitted - self.finished < enough:
            self._submit_graph(min(GRAPH_TASKS, self.asked.tasks - self.submitted))

    def _submit_graph(self, count: int) -> None:
        from dask._task_spec import Task

        with self.clock.left_out():
            graph = self.submitted // GRAPH_TASKS
            dsk = {}
            for i in range(count):
                prefix = (graph * (GRAPH_TASKS // PREFIX_TASKS) + i // PREFIX_TASKS) % self.asked.prefixes
                key = (f"step{prefix:04}-{graph:032x}", i)
                dsk[key] = Task(key, abs, i)
        self.scheduler._create_taskstate_from_graph(
            start=time.time(),
            dsk=dsk,
            keys=set(dsk),
            ordered={key: i for i, key in enumerate(dsk)},
            client=CLIENT,
            annotations_by_type={},
            global_annotations=None,
            stimulus_id=f"update-graph-{graph}",
            submitting_task=None,
            span_metadata={"collections": []},
        )
        self.submitted += count

    def _finish(self, count: int) -> None:
        """Have results of the tasks that were sent first arrive; the client lets them go."""
        inbox = self._inbox
        for _ in range(min(count, len(inbox))):
            worker, key, run_id = inbox.popleft()
            now = time.time()
            self.scheduler.handle_task_finished(
                key=key,
                worker=worker.address,
                stimulus_id=f"task-finished-{now}",
                run_id=run_id,
                status="OK",
                nbytes=28,
                type=b"",
                typename="int",
                metadata={},
                thread=1,
                startstops=[{"action": "compute", "start": now - 0.01, "stop": now}],
            )
            self.finished += 1
            self._released.append(key)
        if len(self._released) >= PREFIX_TASKS:
            self.scheduler.client_releases_keys(self._released, CLIENT, stimulus_id="release")
            self._released = []
