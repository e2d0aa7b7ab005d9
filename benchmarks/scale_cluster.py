"""The cluster of ``benchmarks/scale.py``: a real scheduler, and fake workers whose heartbeats and results are due.

The accounts of the fake workers grow as real ones do, and travel in the real messages.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgpack

from benchmarks.scale_clock import Clock
from dask_efficiency.accounts.buckets import CAUSES, Bucket, fit_causes
from dask_efficiency.accounts.details import WindowDetails
from dask_efficiency.accounts.gpu import DeviceTotals, GpuTotals, KernelTotals
from dask_efficiency.accounts.lines import Frame, HolderRow, SampleRow
from dask_efficiency.accounts.skew import Most, TaskSizes
from dask_efficiency.accounts.wire.heartbeats import HeartbeatWriter
from dask_efficiency.accounts.wire.snapshots import (
    CORE_WAIT,
    OTHER_CPU,
    OWN_WORK,
    Snapshot,
    SnapshotCauses,
)
from dask_efficiency.accounts.worker.answer import WindowAnswer, answer_of, encode_answer
from dask_efficiency.accounts.worker.balance import TASK_BUCKETS, Outcome, WindowBalance
from dask_efficiency.accounts.worker.ledger import Ledger
from dask_efficiency.straggler.task_rates import RunningTask, TaskRateCounter, TaskRateWriter

if TYPE_CHECKING:
    from distributed import Scheduler


NTHREADS = 4
SECOND = 1_000_000_000

#: Histories that workers have; of the workers of one history, only names and GPUs are told apart.
KINDS = 40

#: Prefixes whose tasks a worker runs between two heartbeats, those of other workers are others in part, and how many
#: seconds it takes until one of them is over.
ACTIVE_PREFIXES = 50
SPREAD = 40
TURN_SECONDS = 10.0

#: Senders that a worker fetches from, and kernels that its GPU runs.
SENDERS = 16
KERNELS = 50

#: Of the stacks that a worker tells of in a window: calls of one, lines of code in all of them.
DEPTH = 20
LINES = 100
STACKS = 1_000

#: What stands for the names of a worker's ledger and of its GPU in what workers of one kind send.
INCARNATION = "ledger" * 5
GPU = "GPU-of-the-worker"

#: Seconds of a worker's life before its first heartbeat.
FIRST_SECONDS = 0.1

#: Slowdown of the first worker.
SLOW = 2.0


class Kind:
    """The history that some workers have in common: a beat after the other.

    Parameters
    ----------
    number
        Which kind it is.
    prefixes
        How many there are in all.
    gpu, slow
        Whether it has one, and whether its tasks take longer.
    """

    def __init__(self, number: int, prefixes: int, *, gpu: bool, slow: bool = False) -> None:
        self._random = random.Random(number)
        self._ledger = Ledger(NTHREADS, at=0)
        self._rates = TaskRateCounter()
        self._snapshots, self._rate_writer = HeartbeatWriter(), TaskRateWriter()
        self._prefixes = prefixes
        self._first = number % SPREAD
        self._gpu = gpu
        self._factor = SLOW if slow else 1.0
        self._at = self._beats = self._tasks = 0
        self._kernel_ns = 0
        self._process = [0.0] * 5
        #: What the last heartbeats carry, as some workers have yet to send them.
        self._payloads: dict[int, bytes] = {}
        #: Answers by the window and by whether it closes.
        self._answers: dict[tuple[str, bool], bytes] = {}

    def payload(self, beat: int, interval: float) -> bytes:
        """Payload of the heartbeat of this number; asked for in order, and the last ones are kept."""
        while beat not in self._payloads:
            # The first one comes soon after a worker has joined.
            self._work(round((interval if self._beats else FIRST_SECONDS) * SECOND))
            self._payloads[self._beats] = msgpack.packb(self._encode())
            self._payloads.pop(self._beats - 4, None)
        return self._payloads[beat]

    def answer(self, window: str, limit: int | None) -> bytes:
        """Answer to a request to open a window or, with a limit of rows, to close it."""
        asked = window, limit is not None
        if asked not in self._answers:
            answer: dict[str, Any] = {"snapshot": self._snapshots.everything(self._snapshot())}
            if limit is None:
                self._ledger.open_window(window, at=self._at)
            else:
                balance = self._ledger.close_window(window, at=self._at)
                assert balance is not None
                answer["window"] = encode_answer(self._answer(balance, limit), limit=limit)
            self._answers[asked] = msgpack.packb(answer)
        return self._answers[asked]

    def _answer(self, balance: WindowBalance, limit: int) -> WindowAnswer:
        """As many rows of each profile as are let through, and what the tasks of each prefix took."""
        prefixes = [prefix for _, prefix in balance.rows]
        files = [f"/usr/lib/python3/site-packages/pandas/core/{i}.py" for i in range(9)]
        lines = [Frame(f"Series.step_{i}", files[i % len(files)], i) for i in range(LINES)]
        # All workers run the same code.
        shared, choice = random.Random(0), self._random.choice
        stacks = [tuple(shared.choices(lines, k=DEPTH)) for _ in range(STACKS)]
        stacks = self._random.choices(stacks, k=limit)
        bucket = Bucket.THREAD_NONCPU
        causes = {}
        for key, row in balance.rows.items():
            noncpu = row[TASK_BUCKETS.index(bucket)]
            causes[key] = fit_causes(dict.fromkeys(CAUSES[bucket][:3], noncpu // 4), bucket, noncpu)
        details = WindowDetails(
            profile={
                SampleRow(bucket, "gil", choice(prefixes), stack): self._random.randrange(10**9) for stack in stacks
            },
            holders={
                HolderRow(choice(prefixes), choice(prefixes), stack): self._random.randrange(10**9) for stack in stacks
            },
            skew=dict(zip(prefixes, map(self._sizes, prefixes), strict=True)),
        )
        bare = {key: {name.partition("/")[2]: ns for name, ns in row.items()} for key, row in causes.items()}
        return answer_of(balance, causes=bare, overhead={"hand-over": 10_000_000}, details=details)

    def _sizes(self, prefix: str) -> TaskSizes:
        lengths = [round(1e7 * self._random.lognormvariate(0, 0.2)) for _ in range(5)]
        sizes = TaskSizes(longest=Most(max(lengths), f"{prefix}-0"), largest=Most(1_000_000, f"{prefix}-0"))
        sizes.ns.add(lengths)
        sizes.nbytes.add([1_000_000] * len(lengths))
        return sizes

    def _work(self, elapsed: int) -> None:
        """Run a task of each active prefix or so, one after the other on each thread."""
        rounds = ACTIVE_PREFIXES // NTHREADS
        shift = self._first + int(self._at / SECOND / TURN_SECONDS)
        if not self._beats:  # what came before, which is any of all prefixes
            shift = self._first * self._prefixes // SPREAD
        for turn in range(rounds):
            start = self._at + elapsed * turn // rounds
            took = elapsed * self._random.randint(60, 95) // (100 * rounds)
            for thread in range(NTHREADS):
                prefix = f"step{(shift + turn * NTHREADS + thread) % self._prefixes:04}"
                self._ledger.reserve(thread, prefix, at=start)
            for thread in range(NTHREADS):
                reservation = self._ledger.release(thread, at=start + took)
                assert reservation is not None
                cpu, wall = took * 6 // 10, took * 9 // 10
                self._ledger.finalize(reservation, Outcome.SUCCEEDED, cpu=cpu, wall=wall, spill=took // 50)
                length = round(1e7 * self._factor * self._random.lognormvariate(0, 0.2))
                self._rates.task(reservation.prefix, wall=length, cpu=length * 6 // 10, nbytes=1e6)
                self._kernel_ns += took // 8
                self._tasks += 1
        for sender in range(SENDERS):
            self._rates.transfer(
                f"tcp://10.0.0.{1 + sender}:40000", seconds=self._random.lognormvariate(-4, 0.2), nbytes=1_000_000
            )
        seconds = elapsed / SECOND
        for i, gained in enumerate((0.1, 1e7, 0.02, 3.0, 2.5)):
            self._process[i] += gained * seconds
        self._at += elapsed
        self._beats += 1

    def _encode(self) -> dict[str, Any]:
        running = [RunningTask(f"step{self._first % self._prefixes:04}", 0.5, 1e6)] * NTHREADS
        payload = self._snapshots.heartbeat(self._snapshot())
        return {**payload, "pace": self._rate_writer.heartbeat(self._rates, self._process, running)}

    def _snapshot(self) -> Snapshot:
        balance = self._ledger.balance(at=self._at)
        causes = SnapshotCauses(_causes(balance.finalized), _causes(balance.active))
        outside = {OWN_WORK: self._at // 100, OTHER_CPU: self._at // 50}
        outside |= {f"gather-dep: {kind}": self._at // 30 for kind in ("network", "deserialize", "decompress")}
        details = {CORE_WAIT: self._at // 40, "thread-noncpu: disk": self._at // 60}
        details |= {f"spill: {kind}": self._at // 90 for kind in ("disk-read", "disk-write", "serialize", "compress")}
        gpu = self._gpus() if self._gpu else None
        return Snapshot(INCARNATION, self._beats, balance, outside, details, gpu=gpu, causes=causes)

    def _gpus(self) -> GpuTotals:
        busy = min(self._kernel_ns, self._at)
        names = [f"step{(self._first + i) % self._prefixes:04}" for i in range(ACTIVE_PREFIXES)]
        shares = dict.fromkeys(names, busy // ACTIVE_PREFIXES)
        rest = busy - sum(shares.values())
        device = DeviceTotals(GPU, "NVIDIA L4", self._at, busy, 0, self._at - busy, shares, unattributed=rest)
        kernels = tuple(
            KernelTotals(
                names[i], f"void gemm_kernel_{i:03}<float, 128, 64, true>", self._tasks, self._kernel_ns // KERNELS
            )
            for i in range(KERNELS)
        )
        return GpuTotals(
            "cupti",
            "CUPTI 13.0",
            (device,),
            kernels,
            kernel_ns=self._kernel_ns,
            attributed_ns=self._kernel_ns - rest,
            readings={GPU: {"utilisation_ratio": 0.5, "memory_used_bytes": 1e9}},
        )


def _causes(row: Mapping[str, int]) -> dict[str, int]:
    noncpu, overhead = row.get(Bucket.THREAD_NONCPU, 0), row.get(Bucket.OVERHEAD, 0)
    found = fit_causes({"gil": noncpu // 3, "lock": noncpu // 5, "file": noncpu // 9}, Bucket.THREAD_NONCPU, noncpu)
    return found | fit_causes({"hand-over": overhead // 2, "event-loop": overhead // 3}, Bucket.OVERHEAD, overhead)


@dataclass(eq=False, slots=True)
class FakeWorker:
    """A worker by its address, and the tasks that the scheduler has sent it."""

    number: int
    kind: Kind
    beat: int = 0
    #: (key, run_id) of the tasks that it has, shared by all workers: those that were sent first end first.
    inbox: deque[tuple[FakeWorker, Any, int]] = field(default_factory=deque)

    @property
    def address(self) -> str:
        """Four of them are on a host."""
        host = self.number // 4
        return f"tcp://10.{host >> 16}.{host >> 8 & 255}.{host & 255}:{40_000 + self.number % 4}"

    def send(self, *messages: Mapping[str, Any]) -> None:
        """Take messages of the scheduler, in place of a batched stream."""
        for message in messages:
            if message["op"] == "compute-task":
                self.inbox.append((self, message["key"], message["run_id"]))

    def closed(self) -> bool:
        return False

    def payload(self, interval: float) -> tuple[dict[str, Any], int]:
        """Payload of the next heartbeat for the plugin, as it arrives, and its bytes."""
        self.beat += 1
        packed = self._own(self.kind.payload(self.beat, interval))
        return msgpack.unpackb(packed, use_list=False, strict_map_key=False), len(packed)

    def answer(self, window: str, limit: int | None) -> bytes:
        return self._own(self.kind.answer(window, limit))

    def _own(self, packed: bytes) -> bytes:
        for name in (INCARNATION, GPU):
            packed = packed.replace(name.encode(), f"{self.number:0{len(name)}}".encode())
        return packed


def workers(count: int, prefixes: int, *, gpu: bool) -> list[FakeWorker]:
    """Workers that run these prefixes; the first one is slow."""
    kinds = [Kind(number, prefixes, gpu=gpu) for number in range(min(count, KINDS))]
    inbox: deque[tuple[FakeWorker, Any, int]] = deque()
    made = [FakeWorker(number, kinds[number % len(kinds)], inbox=inbox) for number in range(count)]
    made[0].kind = Kind(0, prefixes, gpu=gpu, slow=True)
    return made


#: Seconds between two times at which heartbeats and results that are due arrive.
TICK_SECONDS = 0.02

#: Tasks of a graph, and of one prefix in it. With more at once, upstream takes them in for a long time.
GRAPH_TASKS = 1_000
PREFIX_TASKS = 100

CLIENT = "Client-scale"


class Stream:
    """In place of a connection: what is written to it is gone, and nothing ever comes."""

    name = peer_address = local_address = "stream"

    async def write(self, *_: Any, **__: Any) -> int:
        return 0

    async def read(self, *_: Any, **__: Any) -> Any:
        await asyncio.get_running_loop().create_future()

    def send(self, *_: Any) -> None:
        """Nothing."""

    def closed(self) -> bool:
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
        """Let heartbeats and results arrive, until ``until`` seconds after the first call."""
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
