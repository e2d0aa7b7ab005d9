"""A simulated cluster whose runs are recorded, for tests and benchmarks: in virtual time, so columns are consistent."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import accumulate
from typing import Any

import numpy as np

from dask_efficiency import RunTrace
from dask_efficiency.accounts.tables import MISSING, Texts
from dask_efficiency.runs.trace.run_trace import WorkerSpec
from dask_efficiency.runs.trace.schema import (
    STATES,
    Graphs,
    Phases,
    Releases,
    RunOutcome,
    Runs,
    Stimuli,
    Tasks,
    Transfers,
    Transitions,
    WorkerChange,
    WorkerEvents,
)

US = 1_000
MS = 1_000_000
SECOND = 1_000_000_000
EPOCH = 1_700_000_000 * SECOND

RELEASED, WAITING, _, QUEUED, PROCESSING, MEMORY, *_ = range(len(STATES))
UPDATE_GRAPH, TASK_FINISHED, TASK_ERRED, WORKER_CLEANUP = range(4)
STIMULUS_KINDS = ("update-graph", "task-finished", "task-erred", "handle-worker-cleanup")


@dataclass(frozen=True)
class Graph:
    """Tasks that a client computes at once; a task's inputs come before it."""

    prefixes: Sequence[str]
    inputs: Sequence[Sequence[int]]
    compute_ns: Sequence[int]
    nbytes: Sequence[int]
    wanted: Collection[int]


@dataclass(frozen=True)
class Settings:
    """The cluster and its delays, in nanoseconds; a delay is drawn from half to one and a half of it."""

    workers: int = 4
    nthreads: int = 2
    latency: int = 300 * US
    scheduler_message: int = 60 * US
    scheduler_task: int = 8 * US
    handoff: int = 30 * US
    loop: int = 50 * US
    bytes_per_second: float = 1e9
    incoming_connections: int = 2
    saturation: float = 1.1
    #: Of each run.
    spill: int = 0
    unspill: int = 0
    cpu_share: float = 0.8
    #: Where a task goes that has inputs: by default to its first input.
    spread: bool = False
    #: Tasks that fail once, and that secede at half their time.
    failing: frozenset[int] = frozenset()
    seceding: frozenset[int] = frozenset()
    #: (worker, nanoseconds after the start) of a worker that is killed.
    dies: tuple[int, int] | None = None
    #: By worker, the factor by which its tasks take longer.
    slow: dict[int, float] = field(default_factory=dict)


class _Simulation:
    """A scheduler that does one thing at a time, and workers with slots, in virtual time."""

    def __init__(self, graphs: Sequence[Graph], settings: Settings, seed: int) -> None:
        self.graphs = graphs
        self.settings = settings
        self.offsets = [0, *accumulate(len(graph.inputs) for graph in graphs)]
        count = self.offsets[-1]
        self.inputs = [
            [offset + i for i in needed]
            for graph, offset in zip(graphs, self.offsets, strict=False)
            for needed in graph.inputs
        ]
        self.dependents: list[list[int]] = [[] for _ in range(count)]
        for task, needed in enumerate(self.inputs):
            for i in needed:
                self.dependents[i].append(task)
        self.compute = [ns for graph in graphs for ns in graph.compute_ns]
        self.nbytes = [size for graph in graphs for size in graph.nbytes]
        self.wanted = [i in set(graph.wanted) for graph in graphs for i in range(len(graph.inputs))]
        self.state = [RELEASED] * count
        self.missing = [len(needed) for needed in self.inputs]
        self.holders: list[set[int]] = [set() for _ in range(count)]
        self.current = [MISSING] * count
        self.attempts = [0] * count

        draws = np.random.default_rng(seed).uniform(0.5, 1.5, 1 << 16).tolist()
        self._draws = draws
        self._drawn = 0

        n = settings.workers
        self.alive = [True] * n
        self.free = [list(range(settings.nthreads)) for _ in range(n)]
        self.ready: list[list[tuple[int, int]]] = [[] for _ in range(n)]
        self.processing: list[set[int]] = [set() for _ in range(n)]
        self.fetching: list[dict[int, list[int]]] = [{} for _ in range(n)]
        self.lanes = [[0] * settings.incoming_connections for _ in range(n)]
        self.queue: list[int] = []
        self.limit = math.ceil(settings.nthreads * settings.saturation)
        #: Workers with room for another root, the one that had none for longest first.
        self.open = dict.fromkeys(range(n))
        self.turn = 0

        self.events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self.sequence = 0
        self.scheduler_free = 0
        self.now = EPOCH
        self.left = [0] * len(graphs)
        self.uploaded = EPOCH

        self.runs: list[list[int]] = []
        self.transfers: list[tuple[int, ...]] = []
        self.transitions: list[tuple[int, ...]] = []
        self.stimuli: list[tuple[int, int, int]] = []
        self.graph_rows: list[tuple[int, int, int]] = []
        self.phases: list[tuple[int, int, int, int]] = []
        self.worker_events = [(EPOCH, w, int(WorkerChange.JOINED)) for w in range(n)]

    # Time

    def around(self, ns: int) -> int:
        self._drawn = (self._drawn + 1) & 0xFFFF
        return int(ns * self._draws[self._drawn])

    def at(self, when: int, do: Callable[..., None], *args: Any) -> None:
        self.sequence += 1
        heappush(self.events, (when, self.sequence, do, args))

    def run(self) -> RunTrace:
        self.submit(0, EPOCH)
        if self.settings.dies is not None:
            worker, after = self.settings.dies
            self.at(EPOCH + after, self.die, worker)
        events = self.events
        while events:
            when, _, do, args = heappop(events)
            self.now = when
            do(*args)
        return self.trace()

    # The client

    def submit(self, number: int, at: int) -> None:
        tasks = len(self.graphs[number].inputs)
        optimized = at + self.around(2 * MS + 200 * tasks)
        uploaded = optimized + self.around(2 * MS + 100 * tasks)
        self.phases += [(0, 0, at, optimized), (0, 1, optimized, uploaded)]
        self.uploaded = uploaded
        self.at(uploaded + self.around(self.settings.latency), self.update_graph, number)

    def gathered(self, number: int) -> None:
        # A client begins to gather as soon as it has sent the graph.
        self.phases.append((0, 2, self.uploaded, self.now))
        if number + 1 < len(self.graphs):
            self.submit(number + 1, self.now + self.around(5 * MS))

    # The scheduler

    def begin(self, kind: int, made: int, graph: int = MISSING) -> int:
        """A stimulus; when it is looked at."""
        self.stimuli.append((kind, made, graph))
        return max(self.now, self.scheduler_free) + self.around(self.settings.scheduler_message)

    def transition(self, task: int, finish: int, worker: int, at: int) -> int:
        self.transitions.append((at, task, self.state[task], finish, worker, len(self.stimuli) - 1))
        self.state[task] = finish
        return at + self.around(self.settings.scheduler_task)

    def update_graph(self, number: int) -> None:
        first, last = self.offsets[number], self.offsets[number + 1]
        at = self.begin(UPDATE_GRAPH, self.now, number)
        taken_in = at + self.around(5 * US * (last - first))
        self.graph_rows.append((0, self.now, taken_in))
        at = taken_in
        self.left[number] = sum(self.wanted[first:last])
        for task in range(first, last):
            at = self.transition(task, WAITING, MISSING, at)
        for task in range(first, last):
            if not self.missing[task]:
                at = self.place(task, at)
        self.scheduler_free = at

    def place(self, task: int, at: int) -> int:
        """Give a task whose inputs are there to a worker, or queue it."""
        inputs = self.inputs[task]
        if inputs and not self.settings.spread:
            self.turn += 1
            holders = self.holders[inputs[self.turn % len(inputs)]]
            return self.assign(task, next(iter(sorted(holders))), at)
        if inputs:
            self.turn = (self.turn + 1) % self.settings.workers
            while not self.alive[self.turn]:
                self.turn = (self.turn + 1) % self.settings.workers
            return self.assign(task, self.turn, at)
        worker = next(iter(self.open), MISSING)
        if worker == MISSING:
            heappush(self.queue, task)
            return self.transition(task, QUEUED, MISSING, at)
        # The next root goes to the next worker that is not full.
        del self.open[worker]
        at = self.assign(task, worker, at)
        self.reopen(worker)
        return at

    def reopen(self, worker: int) -> None:
        if self.alive[worker] and len(self.processing[worker]) < self.limit:
            self.open.setdefault(worker)
        else:
            self.open.pop(worker, None)

    def assign(self, task: int, worker: int, at: int) -> int:
        end = self.transition(task, PROCESSING, worker, at)
        self.current[task] = len(self.runs)
        self.processing[worker].add(task)
        # In the order of the columns of Runs, without their last ones.
        number = len(self.runs)
        self.runs.append([task, worker, number, RunOutcome.RUNNING, self.recomputed(task), at, *[MISSING] * 16])
        self.at(at + self.around(self.settings.latency), self.receive, number)
        return end

    def recomputed(self, task: int) -> int:
        return int(self.attempts[task] > 0 and task not in self.settings.failing)

    def finished(self, number: int) -> None:
        """The worker's message that a run has ended."""
        run = self.runs[number]
        task, worker = run[0], run[1]
        if not self.alive[worker] or run[3] == RunOutcome.LOST:
            return
        failed = run[3] == RunOutcome.FAILED
        at = self.begin(TASK_ERRED if failed else TASK_FINISHED, run[12])
        run[13] = at
        self.processing[worker].discard(task)
        self.current[task] = MISSING
        if failed:
            at = self.transition(task, RELEASED, worker, at)
            at = self.transition(task, WAITING, MISSING, at)
            at = self.place(task, at)
        else:
            at = self.transition(task, MEMORY, worker, at)
            self.holders[task].add(worker)
            if self.wanted[task]:
                self.result(task, at)
            for dependent in self.dependents[task]:
                self.missing[dependent] -= 1
                if not self.missing[dependent] and self.state[dependent] == WAITING:
                    at = self.place(dependent, at)
        self.scheduler_free = self.from_queue(worker, at)

    def result(self, task: int, at: int) -> None:
        number = next(i for i in range(len(self.graphs)) if task < self.offsets[i + 1])
        self.left[number] -= 1
        if not self.left[number]:
            stop = at + self.around(self.settings.latency * 3)
            self.at(stop, self.gathered, number)

    def from_queue(self, worker: int, at: int) -> int:
        self.reopen(worker)
        while self.queue and self.open:
            at = self.place(heappop(self.queue), at)
        return at

    def die(self, worker: int) -> None:
        self.alive[worker] = False
        self.worker_events.append((self.now, worker, int(WorkerChange.LEFT)))
        self.open.pop(worker, None)
        at = self.begin(WORKER_CLEANUP, self.now)
        again = sorted(self.processing[worker])
        for task in again:
            run = self.runs[self.current[task]]
            run[6:13] = [MISSING] * 7
            run[14:] = [MISSING] * 8
            run[3], run[13] = RunOutcome.LOST, at
            at = self.transition(task, RELEASED, worker, at)
        for task, holders in enumerate(self.holders):
            if worker in holders:
                holders.discard(worker)
                needed = [d for d in self.dependents[task] if self.state[d] == WAITING]
                if not holders and needed:
                    at = self.transition(task, RELEASED, worker, at)
                    again.append(task)
                    for dependent in needed:
                        self.missing[dependent] += 1
        self.processing[worker].clear()
        for task in again:
            at = self.transition(task, WAITING, MISSING, at)
            if not self.missing[task]:
                at = self.place(task, at)
        self.scheduler_free = at

    # The workers

    def receive(self, number: int) -> None:
        run = self.runs[number]
        task, worker = run[0], run[1]
        if not self.alive[worker]:
            return
        run[6] = self.now
        here = self.fetching[worker]
        waits = 0
        for i in self.inputs[task]:
            if worker in self.holders[i]:
                continue
            waits += 1
            if i in here:
                here[i].append(number)
                continue
            here[i] = [number]
            lane = min(range(len(self.lanes[worker])), key=self.lanes[worker].__getitem__)
            start = max(self.now, self.lanes[worker][lane]) + self.around(self.settings.loop)
            took = self.settings.latency + int(self.nbytes[i] / self.settings.bytes_per_second * SECOND)
            stop = start + self.around(took)
            self.lanes[worker][lane] = stop
            sender = min(self.holders[i], default=MISSING)
            self.at(stop, self.arrive, i, sender, worker, self.now, start)
        if not waits:
            self.at(self.now + self.around(self.settings.loop), self.make_ready, number)

    def arrive(self, task: int, sender: int, worker: int, queued: int, start: int) -> None:
        if not self.alive[worker]:
            return
        self.transfers.append((task, sender, worker, self.nbytes[task], queued, start, self.now, True))
        self.holders[task].add(worker)
        for number in self.fetching[worker].pop(task):
            if all(worker in self.holders[i] for i in self.inputs[self.runs[number][0]]):
                self.at(self.now + self.around(self.settings.loop), self.make_ready, number)

    def make_ready(self, number: int) -> None:
        worker = self.runs[number][1]
        if not self.alive[worker]:
            return
        self.runs[number][7] = self.now
        if self.free[worker]:
            self.execute(number, self.now, MISSING)
        else:
            heappush(self.ready[worker], (self.runs[number][0], number))

    def execute(self, number: int, at: int, after: int) -> None:
        run = self.runs[number]
        task, worker = run[0], run[1]
        settings = self.settings
        unspill = self.around(settings.unspill)
        submitted = at + self.around(settings.loop) + unspill
        start = submitted + self.around(settings.handoff)
        took = int(self.compute[task] * settings.slow.get(worker, 1.0))
        failed = task in settings.failing and not self.attempts[task]
        self.attempts[task] += 1
        if failed:
            took //= 2
        stop = start + took
        spill = 0 if failed else self.around(settings.spill)
        ended = stop + self.around(settings.loop) + spill
        slot = heappop(self.free[worker])
        seceded = start + took // 2 if task in settings.seceding else MISSING
        run[3] = RunOutcome.FAILED if failed else RunOutcome.SUCCEEDED
        run[8:13] = [at, submitted, start, stop, ended]
        thread = 1000 + 100 * worker + slot
        run[14:] = [seceded, thread, slot, after, int(took * settings.cpu_share), 0, unspill, spill]
        self.at(ended if seceded == MISSING else seceded, self.free_slot, number)
        self.at(ended + self.around(settings.latency), self.finished, number)

    def free_slot(self, number: int) -> None:
        task, worker = self.runs[number][:2]
        heappush(self.free[worker], self.runs[number][16])
        if self.alive[worker] and self.ready[worker]:
            self.execute(heappop(self.ready[worker])[1], self.now, task)

    # What was recorded

    def trace(self) -> RunTrace:
        prefixes = sorted({name for graph in self.graphs for name in graph.prefixes})
        position = {name: i for i, name in enumerate(prefixes)}
        names = [name for graph in self.graphs for name in graph.prefixes]
        count = len(names)
        starts = np.zeros(count + 1, np.int64)
        np.cumsum([len(needed) for needed in self.inputs], out=starts[1:])
        ends = [row[3] for row in self.phases] + [row[0] for row in self.transitions]
        return RunTrace(
            name="simulated",
            start=EPOCH,
            stop=max(ends, default=EPOCH) + MS,
            keys=Texts.of(f"{name}-{i}" for i, name in enumerate(names)),
            tasks=Tasks.from_columns(
                {
                    "prefix": np.array([position[name] for name in names], np.int32),
                    "span": np.zeros(count, np.int32),
                    "graph": np.repeat(np.arange(len(self.graphs), dtype=np.int32), np.diff(self.offsets)),
                    "wanted": np.array(self.wanted, np.bool_),
                    "nbytes": np.array(self.nbytes, np.int64),
                    "priority_user": np.zeros(count, np.int64),
                    "priority_graph": np.zeros(count, np.int64),
                    "priority_order": np.arange(count),
                }
            ),
            dependency_starts=starts,
            dependencies=np.array([i for needed in self.inputs for i in needed], np.int32),
            runs=_table(Runs, self.runs),
            prefixes=tuple(prefixes),
            spans=("default",),
            clients=("Client-1",),
            workers=tuple(
                WorkerSpec(f"w{i}", f"tcp://10.0.0.{i}:4000", f"10.0.0.{i // 2}", self.settings.nthreads, 4 << 30)
                for i in range(self.settings.workers)
            ),
            stimulus_kinds=STIMULUS_KINDS,
            graphs=_table(Graphs, self.graph_rows),
            releases=Releases.empty(),
            transitions=_table(Transitions, self.transitions),
            stimuli=_table(Stimuli, self.stimuli),
            transfers=_table(Transfers, self.transfers),
            worker_events=_table(WorkerEvents, self.worker_events),
            phases=_table(Phases, self.phases),
            config={"bandwidth": self.settings.bytes_per_second},
            versions={"distributed": "simulated"},
        )


def _table(table: type[Any], rows: Sequence[Sequence[int]]) -> Any:
    names = list(table.dtypes())
    whole = np.array(rows, np.int64).reshape(len(rows), len(names))
    return table(**{name: whole[:, i].astype(dtype) for i, (name, dtype) in enumerate(table.dtypes().items())})


def simulate(graphs: Graph | Sequence[Graph], *, seed: int = 0, **settings: Any) -> RunTrace:
    """The trace of a cluster that computes one graph after the other; ``settings`` are :class:`Settings`."""
    given = [graphs] if isinstance(graphs, Graph) else list(graphs)
    return _Simulation(given, Settings(**settings), seed).run()
