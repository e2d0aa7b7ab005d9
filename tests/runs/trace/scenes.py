"""A scheduler and its workers as far as a recorder sees them, written by hand."""

from collections.abc import Sequence
from typing import Any

from dask_efficiency import RunTrace
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace.batch import RUN, TRANSFER, decode, encode
from dask_efficiency.runs.trace.build import build
from dask_efficiency.runs.trace.files import check_positions
from dask_efficiency.runs.trace.recorder import TaskFacts, TraceRecorder
from dask_efficiency.runs.trace.recording import Recording

#: The scheduler's clock of the day, when its monotonic clock is at zero.
EPOCH = 1_700_000_000_000_000_000


class Scene:
    """A recorder, a clock that goes on by a microsecond at each look, and workers with clocks of their own.

    Parameters
    ----------
    offsets
        By worker, nanoseconds that the scheduler's monotonic clock is ahead.
    """

    def __init__(self, *, max_tasks: int = 1_000, offsets: Sequence[int] = (0, 0)) -> None:
        self.now = 1_000_000
        self.offsets = offsets
        #: By key: prefix, span, priority, what it needs, constraints.
        self.facts: dict[Any, tuple[str, str, tuple[int, int, int], Sequence[Any], dict[str, Any] | None]] = {}
        self.recorder = TraceRecorder(self.read, max_tasks=max_tasks)
        self.run_ids = 0
        self.seq = 0

    def read(self, keys: Sequence[Any]) -> TaskFacts | None:
        found = [self.facts[key] for key in keys if key in self.facts]
        if len(found) < len(keys):
            return None
        prefixes, spans, priorities, needs, constraints = map(list, zip(*found, strict=True))
        constrained = {i: values for i, values in enumerate(constraints) if values}
        return TaskFacts(prefixes, spans, priorities, needs if any(needs) else [], constrained)

    def tick(self, ns: int = 1_000) -> int:
        self.now += ns
        return self.now

    def cause(self, kind: str) -> str:
        return f"{kind}-{(EPOCH + self.tick()) / 1e9}"

    def submit(self, graph: dict[Any, Sequence[Any]], **constraints: Any) -> str:
        """A graph, of keys and what they need."""
        for order, (key, needs) in enumerate(graph.items()):
            self.facts[key] = ("prefix", "span", (0, 1, order), needs, constraints)
        stimulus = self.cause("update-graph")
        received = self.tick()
        self.recorder.graph(graph, set(graph), client="client", stimulus_id=stimulus, received=received, at=self.tick())
        for key in graph:
            self.move(key, "released", "waiting", stimulus)
        return stimulus

    def move(self, key: Any, start: str, finish: str, stimulus: str, *values: Any) -> None:
        """A transition; the values are the worker's number, the run's or the size of the result, and startstops."""
        worker, extra, *startstops = (*values, *(MISSING, MISSING)[len(values) :])
        self.recorder.transition(self.tick(), key, start, finish, stimulus, worker, extra, *startstops)

    def process(self, key: Any, worker: int, stimulus: str, *, start: str = "waiting") -> int:
        """A task is given to a worker; its run's number."""
        self.run_ids += 1
        self.move(key, start, "processing", stimulus, worker, self.run_ids)
        return self.run_ids

    def on_worker(self, worker: int, run_id: int, **reported: int) -> list[int]:
        """A run's row, an instant after the other by the worker's clock."""
        row = dict.fromkeys(RUN, MISSING) | {"run_id": run_id, "cpu_ns": 7, "unspill_ns": 0, "spill_ns": 0}
        for name in ("received", "ready", "executing", "submitted", "start", "stop", "ended"):
            row[name] = self.tick() - self.offsets[worker]
        return [(row | reported)[name] for name in RUN]

    def send(
        self, worker: int, *rows: list[int], transfers: dict[Any, dict[str, int]] | None = None, **profiled: Any
    ) -> None:
        moved = [[reported.get(name, 0) for name in TRANSFER] for reported in (transfers or {}).values()]
        self.seq += 1
        about = {"recording": "scene", "worker": str(worker), "seq": self.seq, "wall": EPOCH + self.offsets[worker]}
        tables = {"runs": rows, "transfers": moved, "keys": list(transfers or {}), "senders": ["0", "1"]}
        self.recorder.batch(worker, [0, 1], decode(encode(**about, **tables, **profiled)))

    def run(self, key: Any, worker: int, stimulus: str, **reported: int) -> str:
        """A task's whole life until its result is there; what that causes."""
        run_id = self.process(key, worker, stimulus)
        self.send(worker, self.on_worker(worker, run_id, **reported))
        finished = self.cause("task-finished")
        self.move(key, "processing", "memory", finished, worker, 28)
        return finished

    def recording(self) -> Recording:
        frozen = self.recorder.freeze()
        same = {"host": "host", "nthreads": 1, "memory_limit": 0, "resources": {}, "error": 1}
        workers = [
            {"name": str(i), "address": f"tcp://{i}", **same, "offset": offset, "wall": EPOCH + offset}
            for i, offset in enumerate(self.offsets)
        ]
        frozen.facts.update(epoch=EPOCH, started=0, stopped=self.now, workers=workers, config={}, versions={}, notes=[])
        return frozen.pack()

    def trace(self, **options: Any) -> RunTrace:
        trace = build(self.recording(), name="scene", **options)
        check_positions(trace)
        return trace


def runs_of(trace: RunTrace, key: Any) -> list[dict[str, Any]]:
    """The rows of a task's runs, by column."""
    rows = trace.runs.take(trace.runs.task == list(trace.keys).index(str(key)))
    return [dict(zip(rows.columns(), row, strict=True)) for row in zip(*rows.columns().values(), strict=True)]


def needs_of(trace: RunTrace, key: Any) -> set[str]:
    """The keys that a task needs."""
    task = list(trace.keys).index(str(key))
    rows = trace.dependencies[trace.dependency_starts[task] : trace.dependency_starts[task + 1]]
    return {trace.keys[int(row)] for row in rows}
