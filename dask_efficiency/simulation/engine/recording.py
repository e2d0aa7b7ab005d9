"""Recorders of a simulated run, which make the trace that a real one would have."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

import distributed
import numpy as np
from distributed import Scheduler, SchedulerPlugin, WorkerPlugin
from distributed.scheduler import TaskState

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace.batch import BLOCKED, RUN, TRANSFER, WorkerBatch
from dask_efficiency.runs.trace.build import build
from dask_efficiency.runs.trace.recorder import MAX_KEPT, VALUES_KEPT, TaskFacts, TraceRecorder
from dask_efficiency.runs.trace.run_trace import RunTrace, WorkerSpec
from dask_efficiency.simulation.engine.workload import Workload
from dask_efficiency.simulation.model.events import EventHeap

#: Suffix of the name of a simulated trace.
NOTE = "simulated"


@dataclass(slots=True)
class RunRow:
    """Run on its worker, with the columns of :data:`~dask_efficiency.runs.trace.batch.RUN` in their order."""

    run_id: int
    received: int = MISSING
    ready: int = MISSING
    executing: int = MISSING
    submitted: int = MISSING
    start: int = MISSING
    stop: int = MISSING
    ended: int = MISSING
    seceded: int = MISSING
    thread: int = MISSING
    slot: int = MISSING
    after: int = MISSING
    cpu_ns: int = 0
    unspill_ns: int = 0
    spill_ns: int = 0


_COLUMNS = attrgetter(*(field.name for field in fields(RunRow)))
_UNKNOWN = array("q", [MISSING] * len(RUN))


class WorkerRows(WorkerPlugin):
    """Recorder of a worker, as a plugin of its state machine."""

    name = "rows"

    def __init__(self, clock: EventHeap) -> None:
        self._clock = clock
        self._received: dict[Any, int] = {}
        self._ready: dict[Any, int] = {}
        self._needed: dict[Any, int] = {}
        #: By number: runs that have not ended, and the positions reserved for their rows.
        self._open: dict[int, tuple[RunRow, int]] = {}
        #: Rows, one after the other.
        self._runs, self._transfers = array("q"), array("q")
        self._blocked: list[tuple[int, ...]] = []
        self.keys: list[Any] = []
        self.senders: dict[str, int] = {}

    @property
    def begun(self) -> int:
        """Number of runs that have begun."""
        return len(self._runs) // len(RUN)

    def transition(self, key: Any, start: str, finish: str, **_kwargs: Any) -> None:
        """Note a task's change of state on the worker."""
        if finish in ("ready", "constrained"):
            self._ready[key] = self._clock.now
        elif finish == "fetch":
            self._needed[key] = self._clock.now

    def received(self, key: Any) -> None:
        """Note that the message with a task arrived."""
        self._received[key] = self._clock.now

    def run(self, key: Any, run_id: int, slot: int) -> RunRow:
        """Begin the row of a task that got a slot."""
        now = self._clock.now
        received, ready = self._received.pop(key, MISSING), self._ready.pop(key, now)
        row = RunRow(run_id, received, ready, now, slot=slot, thread=slot + 1)
        self._open[run_id] = row, len(self._runs)
        self._runs.extend(_UNKNOWN)
        return row

    def keep(self, row: RunRow) -> None:
        """Store the final row of a run that ended."""
        _, place = self._open.pop(row.run_id)
        self._runs[place : place + len(RUN)] = array("q", _COLUMNS(row))

    def blocked(self, ns: int) -> None:
        """Note that the loop was blocked until now, reading a message."""
        self._blocked.append((self._clock.now - ns, self._clock.now, ns, MISSING))

    def transferred(self, sender: str, data: Mapping[Any, Any], start: int) -> None:
        """Note results that came from another worker."""
        number = self.senders.setdefault(sender, len(self.senders))
        now = self._clock.now
        for key, result in data.items():
            self._transfers.extend((number, result.nbytes, self._needed.pop(key, start), start, now, 1))
            self.keys.append(key)

    def batch(self, address: str) -> WorkerBatch:
        """Make a batch of all rows."""
        for row, _ in [*self._open.values()]:
            self.keep(row)
        return WorkerBatch(
            recording="",
            worker=address,
            seq=1,
            wall=0,
            runs=np.frombuffer(self._runs, np.int64).reshape(-1, len(RUN)),
            transfers=np.frombuffer(self._transfers, np.int64).reshape(-1, len(TRANSFER)),
            blocked=np.array(self._blocked, np.int64).reshape(-1, len(BLOCKED)),
            keys=tuple(self.keys),
            senders=tuple(self.senders),
        )


class RunRecorder(SchedulerPlugin):
    """Recorder of the scheduler, as its plugin."""

    name = "dask-efficiency-engine"

    def __init__(self, clock: EventHeap, scheduler: Scheduler, workload: Workload) -> None:
        self._clock, self._scheduler, self._workload = clock, scheduler, workload
        self._started = clock.now
        self._recorder = TraceRecorder(self._read, max_tasks=4 * len(workload.keys) + 1000)
        self._numbers: dict[str, int] = {}
        self._specs: list[WorkerSpec] = []

    def joined(self, address: str, spec: WorkerSpec) -> None:
        """Note a worker that joined."""
        self._numbers[address] = len(self._specs)
        self._specs.append(spec)

    def changed(self, address: str, change: int, stimulus_id: str | None = None) -> None:
        """Note a worker that joined, left, paused or resumed; the stimulus is the one that removed it."""
        self._recorder.worker_changed(self._clock.now, self._numbers[address], change, stimulus_id=stimulus_id)

    def _read(self, keys: Sequence[Any]) -> TaskFacts:
        tasks = [self._scheduler.tasks[key] for key in keys]
        numbers = [self._workload.number[key] for key in keys]
        constraints = self._workload.trace.constraints
        return TaskFacts(
            prefixes=[ts.prefix.name for ts in tasks],
            spans=[self._workload.spans[task] for task in numbers],
            priorities=[tuple(map(int, ts.priority or (0, 0, 0)))[:3] for ts in tasks],
            dependencies=[[dependency.key for dependency in ts.dependencies] for ts in tasks],
            constraints={i: constraints[task] for i, task in enumerate(numbers) if task in constraints},
        )

    def update_graph(
        self,
        scheduler: Any,
        *,
        client: str,
        tasks: Sequence[Any],
        keys: Collection[Any],
        stimulus_id: str,
        **_kwargs: Any,
    ) -> None:
        """Note a graph that was taken in."""
        received = round(float(stimulus_id.rpartition("-")[2]) * 1e9)
        now = self._clock.now
        self._recorder.graph(tasks, keys, client=client, stimulus_id=stimulus_id, received=min(received, now), at=now)

    def transition(self, key: Any, start: str, finish: str, *_args: Any, **reported: Any) -> None:
        """Note a task's change of state on the scheduler."""
        number = extra = MISSING
        recorder = self._recorder
        if finish == "processing":
            ts = self._scheduler.tasks[key]
            number, extra = self._on(ts)
        elif start == "processing":
            number = self._numbers.get(reported.get("worker", ""), MISSING)
            if finish == "memory":
                extra = int(reported.get("nbytes", MISSING))
        elif finish == "memory":
            extra = int(self._scheduler.tasks[key].nbytes)
        task = recorder.ids.get(key)
        stimulus_id = reported.get("stimulus_id", "")
        if task is None:
            recorder.transition(self._clock.now, key, start, finish, stimulus_id, number, extra)
            return
        recorder.kept += (self._clock.now, task, start, finish, stimulus_id, number, extra, None)
        if len(recorder.kept) >= MAX_KEPT * VALUES_KEPT:
            recorder.make_room()

    def stolen(self, key: Any, stimulus_id: str) -> None:
        """Note a task that another worker stole."""
        ts = self._scheduler.tasks[key]
        number, run_id = self._on(ts)
        self._recorder.transition(self._clock.now, key, "processing", "processing", stimulus_id, number, run_id)

    def _on(self, ts: TaskState) -> tuple[int, int]:
        """Number of the worker that a task was given to, and of the run that it begins there."""
        assert ts.processing_on is not None
        return self._numbers[ts.processing_on.address], ts.run_id or 0

    def detach(self) -> None:
        """Stop recording, and drop the reference to the scheduler."""
        del self._scheduler

    def trace(self, rows: dict[str, WorkerRows], config: Mapping[str, Any], notes: Sequence[str]) -> RunTrace:
        """Build the trace; empties the rows, so that they are not in memory twice."""
        for address in [*rows]:
            batch = rows.pop(address).batch(address)
            self._recorder.batch(self._numbers[address], [self._numbers[sender] for sender in batch.senders], batch)
        frozen = self._recorder.freeze()
        recorded = self._workload.trace
        frozen.facts.update(
            epoch=0,
            started=self._started,
            stopped=self._clock.now,
            workers=[
                {name: getattr(spec, name) for name in ("name", "address", "host", "nthreads", "memory_limit", "cores")}
                | {"resources": dict(spec.resources), "offset": 0, "error": 0, "wall": 0}
                for spec in self._specs
            ],
            config=dict(config),
            versions={**recorded.versions, "distributed": distributed.__version__},
            notes=list(notes),
        )
        return build(frozen.pack(), name=f"{recorded.name} ({NOTE})" if recorded.name else NOTE)
