"""Export of a trace for Perfetto and chrome://tracing: workers, their slots and transfers, and the critical path."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import cache
from itertools import compress, repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.tables import MISSING, Bool, Int64
from dask_efficiency.files.storage import writing
from dask_efficiency.runs.trace.events import TraceEvents, Written, WrittenSlice, lanes
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import BLOCKED_BY, PHASES, RunOutcome, Runs, Shuffled, WorkerChange, values_at
from dask_efficiency.show.progress import progress

#: A longer key is cut.
_KEY_LENGTH = 200

#: By outcome of a run without a result: its bucket.
_LOST: Mapping[int, Bucket] = {
    RunOutcome.FAILED: Bucket.FAILED,
    RunOutcome.CANCELLED: Bucket.CANCELLED,
    RunOutcome.LOST: Bucket.LOST_WORKER,
    RunOutcome.RUNNING: Bucket.RUNNING,
}

#: chrome://tracing knows these names of colours only; Perfetto chooses a colour for each name of a slice.
_COLOURS: Mapping[str, str] = {
    Bucket.THREAD_CPU: "good",
    Bucket.GPU: "thread_state_running",
    Bucket.THREAD_NONCPU: "bad",
    Bucket.SPILL: "terrible",
    Bucket.FAILED: "black",
    Bucket.CANCELLED: "grey",
    Bucket.RECOMPUTED: "yellow",
    Bucket.LOST_WORKER: "black",
    Bucket.RUNNING: "white",
}

#: Counters of a worker: by name, columns of its series by the name of the line.
_COUNTERS: dict[str, dict[str, str]] = {
    "memory, bytes:": {"process": "memory", "managed": "managed", "spilled": "spilled"},
    "cores:": {"cpu": "cpu"},
    "network, bytes/s:": {"read": "net_read", "write": "net_write"},
    "disk, bytes/s:": {"read": "disk_read", "write": "disk_write"},
    "event loop, seconds a turn:": {"interval": "loop_interval"},
    "host, share of time:": {"cores": "host_cpu", "steal": "steal", "busiest disk": "disk_busy"},
    "host, share of time waiting for:": {
        "cores": "cpu_pressure",
        "memory": "memory_pressure",
        "disks": "disk_pressure",
    },
    "GPU, share of time:": {"kernels": "gpu_utilisation"},
    "GPU, Hz:": {"clock": "gpu_clock"},
    "GPU, W:": {"power": "gpu_power"},
    "GPU, degrees Celsius:": {"temperature": "gpu_temperature"},
}


class PathSlice(NamedTuple):
    """Segment of the critical path."""

    kind: str
    start: int
    stop: int
    #: Position of the run that it belongs to; MISSING where it belongs to a client or the scheduler.
    run: int = MISSING


def save_chrome(
    trace: RunTrace,
    path: str | os.PathLike[str],
    *,
    critical: Sequence[PathSlice] = (),
    only_critical: bool = False,
    **storage_options: Any,
) -> Written:
    """Write a trace in the Trace Event Format, as :meth:`.RunTrace.to_chrome`, with the critical path on top.

    Workers are processes and their slots are threads. A run is a slice named by its prefix, with slices for its parts
    below it. A transfer is a slice of its receiver, with an arrow from the run whose result it brings.
    """
    on_path = np.isin(np.arange(len(trace.runs)), [part.run for part in critical])
    with (
        progress(f"writing {os.fspath(path)}", unit="workers", of=len(trace.workers)) as report,
        writing(path, compression="infer", **storage_options) as file,
    ):
        events = TraceEvents(file, _origin(trace))
        export = _Export(trace, events, on_path if only_critical else np.ones(len(trace.runs), np.bool_))
        export.path(critical)
        export.clients()
        export.scheduler()
        for worker in range(len(trace.workers)):
            export.worker(worker)
            report(worker + 1)
        export.transfer_arrows()
        export.path_arrows(critical)
        events.close()
        return events.written


class _Export:
    """Writes a trace, slices before the arrows between them."""

    def __init__(self, trace: RunTrace, events: TraceEvents, chosen: Bool) -> None:
        self.trace, self.events, runs = trace, events, trace.runs
        #: By run: name of its prefix. The position MISSING is that of the last in a list of names.
        prefixes, prefix = [*trace.prefixes, "unknown"], values_at(trace.tasks.prefix, runs.task)
        self.prefix_names = [prefixes[position] for position in prefix.tolist()]
        self.worker_names = [*(worker.name for worker in trace.workers), "unknown"]
        unknown = np.where(runs.reported != MISSING, runs.reported, trace.stop)
        ended = np.where(runs.ended != MISSING, runs.ended, unknown)
        #: By run: the instant at which it left its slot.
        self.left = np.where(runs.seceded != MISSING, runs.seceded, ended)
        self.runs = chosen & (runs.executing != MISSING) & (self.left >= runs.executing) & (runs.worker != MISSING)
        self.transfers = _whole(trace.transfers)
        if not chosen.all():
            self.transfers &= _wanted_by(trace, chosen)
        self.messages = _whole(trace.shuffled) & np.isin(trace.shuffled.task, runs.task[chosen])
        self.run_places: dict[int, WrittenSlice] = {}
        self.transfer_places: dict[int, WrittenSlice] = {}

    def path(self, critical: Sequence[PathSlice]) -> None:
        if not critical:
            return
        process = self.events.process("critical path")
        track = self.events.track(process, "by kind")
        for kind, start, stop, run in critical:
            args = self._about(run) if run != MISSING else None
            self.events.slice(process, track, start, stop, kind, "critical-path", args=args)

    def clients(self) -> None:
        phases = self.trace.phases
        for client, name in enumerate(self.trace.clients):
            own = phases.take((phases.client == client) & _whole(phases))
            if len(own):
                names = [(*PHASES, "unknown")[phase] for phase in own.phase.tolist()]
                self._slices(self.events.process(f"client {name}"), "phases", own.start, own.stop, names, "client")

    def scheduler(self) -> None:
        graphs = self.trace.graphs
        taken = graphs.take((graphs.received != MISSING) & (graphs.taken_in >= graphs.received))
        process = self.events.process("scheduler")
        names = ["update-graph"] * len(taken)
        self._slices(process, "graphs", taken.received, taken.taken_in, names, "graph-update")
        self._blocked(process, MISSING)

    def worker(self, worker: int) -> None:
        spec = self.trace.workers[worker]
        process = self.events.process(f"worker {spec.name} {spec.address}")
        self._slots(process, np.flatnonzero(self.runs & (self.trace.runs.worker == worker)))
        self._incoming(process, np.flatnonzero(self.transfers & (self.trace.transfers.receiver == worker)))
        self._outgoing(process, self.trace.shuffled.take(self.messages & (self.trace.shuffled.sender == worker)))
        self._blocked(process, worker)
        self._changes(process, worker)
        series = self.trace.series
        own = series.take((series.worker == worker) & (series.at != MISSING))
        for name, lines in _COUNTERS.items():
            for at, *values in _rows(own.at, *(getattr(own, column) for column in lines.values())):
                self.events.counter(process, at, name, dict(zip(lines, values, strict=True)))

    def _slots(self, process: int, rows: NDArray[np.intp]) -> None:
        runs, positions = self.trace.runs, rows.tolist()
        names, args = [self.prefix_names[row] for row in positions], map(self._about, positions)
        buckets = [_bucket(runs, row) for row in positions]
        slots, span = runs.slot[rows].astype(np.int64), (runs.executing[rows], self.left[rows])
        places = self._slices(process, "slot", *span, names, buckets, args=args, wanted=slots)
        for row, place, bucket in zip(positions, places, buckets, strict=True):
            self.run_places[row] = place
            self._within(place, row, bucket)
        seceded = (runs.seceded[rows] != MISSING) & (runs.ended[rows] > runs.seceded[rows])
        names, rows = list(compress(names, seceded)), rows[seceded]
        self._slices(process, "seceded", runs.seceded[rows], runs.ended[rows], names, "seceded")

    def _within(self, place: WrittenSlice, row: int, bucket: Bucket) -> None:
        runs = self.trace.runs
        submitted, start, stop = int(runs.submitted[row]), int(runs.start[row]), int(runs.stop[row])
        begun, done = (min(max(instant, place.start), place.stop) for instant in (start, stop))
        parts = []
        if runs.unspill_ns[row] > 0 and submitted != MISSING:
            parts.append((max(submitted - int(runs.unspill_ns[row]), place.start), min(submitted, begun), "unspill"))
        if start != MISSING and stop != MISSING:
            parts.append((begun, done, str(bucket)))
        if runs.spill_ns[row] > 0 and stop != MISSING:
            parts.append((done, min(done + int(runs.spill_ns[row]), place.stop), "spill"))
        for since, until, name in parts:
            if since < until:
                colour = _COLOURS[bucket if name == bucket else Bucket.SPILL]
                self.events.slice(place.process, place.track, since, until, name, "slot", colour=colour)

    def _incoming(self, process: int, rows: NDArray[np.intp]) -> None:
        moved = self.trace.transfers.take(rows)
        queued = np.where(moved.queued != MISSING, np.maximum(moved.start - moved.queued, 0) / 1e6, 0)
        args = (
            {"key": self._key(task), "from": self.worker_names[sender], "nbytes": nbytes, "queued, ms": milliseconds}
            for task, sender, nbytes, milliseconds in _rows(moved.task, moved.sender, moved.nbytes, queued)
        )
        names = ["transfer" if arrived else "transfer that failed" for arrived in moved.arrived.tolist()]
        places = self._slices(process, "transfer", moved.start, moved.stop, names, "transfer", args=args)
        self.transfer_places.update(zip(rows.tolist(), places, strict=True))

    def _outgoing(self, process: int, sent: Shuffled) -> None:
        args = (
            {"shuffle": self._key(task), "to": self.worker_names[receiver], "nbytes": nbytes}
            for task, receiver, nbytes in _rows(sent.task, sent.receiver, sent.nbytes)
        )
        self._slices(process, "shuffle", sent.start, sent.stop, ["shuffle message"] * len(sent), "transfer", args=args)

    def _changes(self, process: int, worker: int) -> None:
        changes = self.trace.worker_events.take(self.trace.worker_events.worker == worker)
        if len(changes):
            track = self.events.track(process, "state")
            for at, change in _rows(changes.at, changes.change):
                # It may have joined long before the recording.
                self.events.instant(process, track, max(at, self.trace.start), _names(WorkerChange)[change], "worker")

    def _blocked(self, process: int, worker: int) -> None:
        own = self.trace.blocked.take((self.trace.blocked.worker == worker) & _whole(self.trace.blocked))
        # Named by the cause, or else by what took most of it.
        names = [
            BLOCKED_BY[cause] if cause != MISSING else "moves data" if 2 * moving > stop - start else "blocked"
            for cause, moving, start, stop in _rows(own.cause, own.moving_ns, own.start, own.stop)
        ]
        self._slices(process, "event loop", own.start, own.stop, names, "event-loop")

    def _slices(
        self,
        process: int,
        what: str,
        start: Int64,
        stop: Int64,
        names: Sequence[str],
        categories: str | Sequence[Bucket],
        *,
        args: Iterable[Mapping[str, Any] | None] = repeat(None),
        wanted: Int64 | None = None,
    ) -> list[WrittenSlice]:
        """Write intervals that may overlap, on as many tracks as that takes; buckets have their colours."""
        lane = lanes(start, stop, wanted).tolist()
        numbers = sorted(set(lane))
        several = len(numbers) > 1 or what == "slot"
        tracks = {n: self.events.track(process, f"{what} {n}" if several else what) for n in numbers}
        kinds = repeat(categories) if isinstance(categories, str) else categories
        return [
            self.events.slice(process, tracks[n], at, until, name, kind, colour=_COLOURS.get(kind, ""), args=about)
            for n, at, until, name, kind, about in zip(lane, start.tolist(), stop.tolist(), names, kinds, args)  # noqa: B905  # of which two may have no end
        ]

    def transfer_arrows(self) -> None:
        """Write arrows from the run or transfer that brought a result to its sender, to the transfer from there."""
        runs, transfers = self.trace.runs, self.trace.transfers
        sources: dict[tuple[int, int], WrittenSlice] = {}
        for row, place in self.run_places.items():
            if runs.outcome[row] == RunOutcome.SUCCEEDED:
                sources[int(runs.task[row]), int(runs.worker[row])] = place
        for row, place in self.transfer_places.items():
            sources.setdefault((int(transfers.task[row]), int(transfers.receiver[row])), place)
        for row, place in self.transfer_places.items():
            source = sources.get((int(transfers.task[row]), int(transfers.sender[row])))
            if source is not None:
                self.events.arrow(source, place, "transfer", "transfer")

    def path_arrows(self, critical: Sequence[PathSlice]) -> None:
        """Write arrows from each run of the path to the next; the category is the longest kind between them."""
        before: WrittenSlice | None = None
        between: dict[str, int] = {}
        for part in critical:
            place = self.run_places.get(part.run)
            if place is not None and place is not before and part.stop > place.start:
                if before is not None:
                    kind = max(between, key=between.__getitem__, default="ready-wait")
                    self.events.arrow(before, place, "critical path", kind)
                before, between = place, {}
            elif before is not None and part.start >= before.stop:
                between[part.kind] = between.get(part.kind, 0) + part.stop - part.start

    def _key(self, task: int) -> str:
        return self.trace.keys[task][:_KEY_LENGTH] if task != MISSING else "unknown"

    def _about(self, row: int) -> dict[str, Any]:
        runs = self.trace.runs
        outcome = _names(RunOutcome)[runs.outcome[row]]
        about: dict[str, Any] = {"key": self._key(int(runs.task[row])), "outcome": outcome}
        for name, column in (("cpu, ms", runs.cpu_ns), ("gpu, ms", runs.gpu_ns)):
            if column[row] > 0:
                about[name] = int(column[row]) / 1e6
        return about


def _rows(*columns: NDArray[Any]) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.tolist() for column in columns), strict=True)


def _whole(table: Any) -> Bool:
    """Mark the intervals whose start is known and no later than their stop."""
    whole: Bool = (table.start != MISSING) & (table.stop >= table.start)
    return whole


def _wanted_by(trace: RunTrace, chosen: Bool) -> Bool:
    """Mark the transfers that brought an input of a chosen run to its worker."""
    runs, transfers, workers = trace.runs, trace.transfers, len(trace.workers) + 1
    wanted = [
        int(dependency) * workers + int(runs.worker[row])
        for row in np.flatnonzero(chosen & (runs.task != MISSING)).tolist()
        for dependency in trace.dependencies[slice(*trace.dependency_starts[runs.task[row] :][:2])]
    ]
    return np.isin(transfers.task.astype(np.int64) * workers + transfers.receiver, wanted)


def _origin(trace: RunTrace) -> int:
    intervals = [table.start for table in (trace.phases, trace.transfers, trace.shuffled, trace.blocked)]
    columns = (*intervals, trace.graphs.received, trace.runs.executing, trace.series.at)
    return min(trace.start, *(int(column[column != MISSING].min(initial=trace.start)) for column in columns))


def _bucket(runs: Runs, row: int) -> Bucket:
    outcome = int(runs.outcome[row])
    if outcome in _LOST:
        return _LOST[outcome]
    if runs.recomputed[row]:
        return Bucket.RECOMPUTED
    computed = int(runs.stop[row] - runs.start[row])
    cpu, gpu = max(int(runs.cpu_ns[row]), 0), max(int(runs.gpu_ns[row]), 0)
    return max((cpu, Bucket.THREAD_CPU), (gpu, Bucket.GPU), (computed - cpu - gpu, Bucket.THREAD_NONCPU))[1]


@cache
def _names(kind: type[IntEnum]) -> tuple[str, ...]:
    return (*(member.name.lower() for member in kind), "unknown")
