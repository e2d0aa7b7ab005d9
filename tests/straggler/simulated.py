"""Workers that run tasks by a fake clock, and the watch that gets their heartbeats."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import numpy as np

from dask_efficiency.accounts.gpu import KernelTotals
from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.straggler.online import StragglerWatch
from dask_efficiency.straggler.task_rates import RunningTask, TaskRateCounter
from tests.straggler.rates import arrived

INTERVAL_SECONDS = 2.5
HEARTBEAT_SECONDS = 1.25

#: Kernels that a task launches.
LAUNCHES = 10


def jitter(rng: np.random.Generator) -> float:
    return float(rng.lognormal(0, 0.1))


@dataclass
class SimulatedWorker:
    """A worker with one thread; functions take an instant."""

    name: str
    host: str = "host"
    group: Hashable = 1
    #: How many times as long its tasks take.
    slowness: Callable[[float], float] = lambda at: 1.0
    #: Of its tasks' time, the share on the CPU.
    share: float = 0.95
    #: Seconds and bytes of a task, by chance.
    task: Callable[[np.random.Generator], tuple[str, float, float]] = lambda rng: ("f", 0.2 * jitter(rng), 1e6)
    paused: Callable[[float], float] = lambda at: 0.0
    #: Share of its threads' time that it spills, and bytes of the results that it holds.
    spilling: float = 0.0
    held: float = 1e8
    disk_seconds_per_byte: float = 0.0
    core_wait: float = 0.02
    #: CPU seconds a second that its process uses beside its tasks.
    beside: float = 0.02
    lag: float = 0.02
    joins_at: float = 0.0
    #: Tasks that never end: their prefix, when they began, and bytes.
    hanging: tuple[tuple[str, float, float], ...] = ()
    #: Address to seconds a byte, of what it fetches.
    transfers: dict[str, float] = field(default_factory=dict)
    #: Of its tasks' time, the share in which a kernel of theirs runs, and how many times as long it takes.
    kernel: float = 0.0
    gpu_slowness: Callable[[float], float] = lambda at: 1.0


class SimulatedCluster:
    """Runs workers under a watch, and keeps its findings."""

    def __init__(self, workers: list[SimulatedWorker], seed: int = 0) -> None:
        self.watch = StragglerWatch()
        self.workers = workers
        self.at = 0.0
        self.found: list[SlowWorker] = []
        self.cleared: list[SlowWorker] = []
        self._rng = np.random.default_rng(seed)
        self._counters = {worker.name: TaskRateCounter() for worker in workers}
        #: By prefix, launches and nanoseconds.
        self._kernels: dict[str, dict[str, list[int]]] = {worker.name: {} for worker in workers}
        self._busy_until = {worker.name: worker.joins_at for worker in workers}
        self._process = {worker.name: np.zeros(5) for worker in workers}
        self._paused = dict.fromkeys(self._counters, 0.0)
        self._here: set[str] = set()

    def run(self, seconds: float) -> SimulatedCluster:
        """Let time go on."""
        end = self.at + seconds
        while self.at < end:
            self.at += HEARTBEAT_SECONDS
            for worker in self.workers:
                if worker.joins_at <= self.at:
                    self._work(worker)
            change = self.watch.poll(at=round(self.at * 1e9), now=1e9 + self.at, interval_seconds=INTERVAL_SECONDS)
            self.found.extend(change.found)
            self.cleared.extend(change.cleared)
        return self

    def _work(self, worker: SimulatedWorker) -> None:
        name, rng, at = worker.name, self._rng, round(self.at * 1e9)
        if name not in self._here:
            self._here.add(name)
            self.watch.joined(name, host=worker.host, group=worker.group, at=at)
        paused = worker.paused(self.at)
        self._paused[name] += paused * HEARTBEAT_SECONDS
        while True:
            busy_until = self._busy_until[name]
            prefix, seconds, nbytes = worker.task(rng)
            of_kernel = worker.kernel * seconds * worker.gpu_slowness(busy_until)
            seconds = (1 - worker.kernel) * seconds * worker.slowness(busy_until) + of_kernel
            ends = busy_until + seconds / max(1e-9, 1 - paused)
            if paused >= 1:
                self._busy_until[name] = max(busy_until, self.at - 1)
                break
            self._busy_until[name] = ends
            # One that ends before the next heartbeat is counted with this one.
            self._count(worker, prefix, seconds, nbytes, of_kernel)
            if ends > self.at:
                break
        counter = self._counters[name]
        for sender, cost in worker.transfers.items():
            for _ in range(3):
                counter.transfer(sender, seconds=cost * 1e6 * float(rng.lognormal(0, 0.2)), nbytes=1_000_000)
        disk = worker.disk_seconds_per_byte
        spilled = 4e6 * HEARTBEAT_SECONDS if disk else 0.0
        of_tasks = counter.cpu_seconds - float(self._process[name][4])
        beside, core_wait = worker.beside * HEARTBEAT_SECONDS, worker.core_wait * HEARTBEAT_SECONDS
        moving = spilled * disk * float(rng.lognormal(0, 0.1))
        self._process[name] += (moving, spilled, core_wait, of_tasks + beside, of_tasks)
        hanging = [(prefix, self.at - began, size) for prefix, began, size in worker.hanging if self.at > began]
        rates = arrived(counter, self._process[name].tolist(), [RunningTask(*task) for task in hanging])
        self.watch.receive(
            name,
            rates,
            at=at,
            paused=self._paused[name],
            spilling=worker.spilling * self.at,
            held=worker.held,
            lag=worker.lag,
            kernels=[KernelTotals(prefix, "gemm", *sums) for prefix, sums in self._kernels[name].items()],
        )

    def _count(self, worker: SimulatedWorker, prefix: str, seconds: float, nbytes: float, of_kernel: float) -> None:
        counter = self._counters[worker.name]
        counter.task(prefix, wall=round(seconds * 1e9), cpu=round(seconds * worker.share * 1e9), nbytes=nbytes)
        if of_kernel:
            sums = self._kernels[worker.name].setdefault(prefix, [0, 0])
            sums[0] += LAUNCHES
            sums[1] += round(of_kernel * 1e9)


def slow(factor: float, since: float = 0.0, until: float = float("inf")) -> Callable[[float], float]:
    """Takes ``factor`` times as long within an interval."""
    return lambda at: factor if since <= at < until else 1.0


def healthy(count: int, **kwargs: object) -> list[SimulatedWorker]:
    """So many workers of one kind."""
    return [SimulatedWorker(f"w{i}", **kwargs) for i in range(count)]  # type: ignore[arg-type]
