"""TraceTables: what happened in a run of a cluster, as columns, on the scheduler's clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from dask_efficiency.trace.tables import Bool, Float64, Int8, Int16, Int32, Int64, Table, Texts

#: States of a task on the scheduler; a transition's columns hold positions in here.
STATES = ("released", "waiting", "no-worker", "queued", "processing", "memory", "erred", "forgotten")


class Outcome(IntEnum):
    """What became of a run."""

    SUCCEEDED = 0
    FAILED = 1
    #: Cancelled, rescheduled, stolen while it waited, or cut off by its worker's closing.
    CANCELLED = 2
    #: Its worker vanished.
    LOST = 3
    #: It had not ended when the recording did.
    RUNNING = 4


class WorkerChange(IntEnum):
    """What a row of :class:`WorkerEvents` tells."""

    JOINED = 0
    LEFT = 1
    PAUSED = 2
    RESUMED = 3
    RETIRING = 4


@dataclass(frozen=True, slots=True)
class Tasks(Table):
    """A row for each task; its position is what other tables call ``task``. Keys are in :attr:`TraceTables.keys`."""

    #: Position in :attr:`TraceTables.prefixes`.
    prefix: Int32
    #: Position in :attr:`TraceTables.spans`.
    span: Int32
    #: Position in :class:`Graphs`, of the graph that brought it first.
    graph: Int32
    #: Whether a client asked for its result.
    wanted: Bool
    #: Size of its result in bytes.
    nbytes: Int64
    #: The scheduler's priority: the user's, the graph's, the order within the graph; smaller runs first.
    priority_user: Int64
    priority_graph: Int64
    priority_order: Int64


@dataclass(frozen=True, slots=True)
class Graphs(Table):
    """A row for each graph that a client submitted, in order."""

    #: Position in :attr:`TraceTables.clients`.
    client: Int32
    #: When the scheduler began to take it in, and when its tasks were there.
    received: Int64
    taken_in: Int64


@dataclass(frozen=True, slots=True)
class Releases(Table):
    """A row for each key that a client wanted no more, in order."""

    at: Int64
    client: Int32
    task: Int32


@dataclass(frozen=True, slots=True)
class Transitions(Table):
    """A row for each transition on the scheduler, in the order in which they happened.

    From ``processing`` to ``processing`` is a task that was stolen: ``worker`` is the thief.
    """

    at: Int64
    task: Int32
    #: Positions in :data:`STATES`.
    start: Int8
    finish: Int8
    #: The worker that it is processing on, or whose message this is.
    worker: Int32
    #: Position in :class:`Stimuli`: what caused it.
    stimulus: Int32


@dataclass(frozen=True, slots=True)
class Stimuli(Table):
    """A row for each stimulus of the scheduler that made transitions, in order."""

    #: Position in :attr:`TraceTables.stimulus_kinds`, such as ``task-finished`` or ``update-graph``.
    kind: Int16
    #: When it was made, by the clock of the process that made it, put on the scheduler's.
    at: Int64
    #: Position in :class:`Graphs` for a graph that was taken in.
    graph: Int32


@dataclass(frozen=True, slots=True)
class Runs(Table):
    """A row for each time that a task was given to a worker, in the order of ``assigned``.

    The instants of one run never decrease in the order of the columns; what did not happen, or was not
    recorded, is :data:`~dask_efficiency.trace.tables.MISSING`.
    """

    task: Int32
    worker: Int32
    #: The scheduler's number of the run.
    run_id: Int64
    #: One of :class:`Outcome`.
    outcome: Int8
    #: Of a task that had been in memory, and runs again because its result, or one that needs it, was lost.
    recomputed: Bool
    #: On the scheduler: sent to the worker (a stolen task: when the thief was told).
    assigned: Int64
    #: On the worker's event loop: heard of; all inputs there; given a slot.
    received: Int64
    ready: Int64
    executing: Int64
    #: Handed to the thread pool, inputs unspilled.
    submitted: Int64
    #: In the thread.
    start: Int64
    stop: Int64
    #: On the worker's event loop: its slot was free again.
    ended: Int64
    #: On the scheduler: its result, or failure, was booked.
    reported: Int64
    #: When it left its slot before its end (``secede``).
    seceded: Int64
    #: Native id of its thread, as ``threading.get_native_id``.
    thread: Int64
    #: Number of its slot on the worker, from 0: slots are given to the runs so that none overlap.
    slot: Int16
    #: The task whose end gave this one its slot, where the slot was what it waited for.
    after: Int32
    #: Nanoseconds: CPU of the thread between start and stop, of which nothing is in the others;
    cpu_ns: Int64
    #: kernel time of its own on the GPU;
    gpu_ns: Int64
    #: reading inputs back from disk before the start;
    unspill_ns: Int64
    #: making room by writing to disk after the stop.
    spill_ns: Int64


@dataclass(frozen=True, slots=True)
class Transfers(Table):
    """A row for each result that a worker got from another one, in the order of ``stop``."""

    #: Whose result.
    task: Int32
    sender: Int32
    receiver: Int32
    nbytes: Int64
    #: Known to be needed; asked for; arrived (or failed).
    queued: Int64
    start: Int64
    stop: Int64
    #: Whether it arrived.
    arrived: Bool


@dataclass(frozen=True, slots=True)
class WorkerEvents(Table):
    """A row each time that a worker came, went, or stopped taking tasks, in order."""

    at: Int64
    worker: Int32
    #: One of :class:`WorkerChange`.
    change: Int8


#: What kept an event loop from turning, where it is known: the worker wrote results to disk, or read them back; the
#: loop computed itself, waited for a core, or for the GIL while others computed, or stood in a call that blocks.
BLOCKED_BY = ("spill", "unspill", "computing", "core", "gil", "call")


@dataclass(frozen=True, slots=True)
class Blocked(Table):
    """A row for each time that an event loop did not turn for a while, by process."""

    #: MISSING is the scheduler.
    worker: Int32
    start: Int64
    stop: Int64
    #: Nanoseconds of it that reading, writing and (de)serialising messages took; when in it is not known.
    moving_ns: Int64
    #: A position in :data:`BLOCKED_BY`; MISSING where nothing tells. Such rows may overlap with those of no cause.
    cause: Int8


@dataclass(frozen=True, slots=True)
class Phases(Table):
    """A row for each interval of a client's ``compute()``."""

    client: Int32
    #: Position in :data:`~dask_efficiency.trace.run_trace.PHASES`.
    phase: Int8
    start: Int64
    stop: Int64


#: What a client does itself in a ``compute()``.
PHASES = ("optimize", "upload", "gather")


@dataclass(frozen=True, slots=True)
class Series(Table):
    """A row for each worker's heartbeat: how it was, and what its slots did since the one before."""

    at: Int64
    worker: Int32
    #: CPU of the process, 1.0 is one core.
    cpu: Float64
    #: Bytes: of the process, of task results in memory, on disk.
    memory: Float64
    managed: Float64
    spilled: Float64
    #: Of the host, bytes a second.
    net_read: Float64
    net_write: Float64
    disk_read: Float64
    disk_write: Float64
    #: Seconds between two turns of the event loop, smoothed; 0.02 is undisturbed.
    loop_interval: Float64
    #: Thread-seconds since the last row, by activity.
    thread_cpu: Float64
    gpu: Float64
    thread_noncpu: Float64
    spill: Float64
    overhead: Float64
    paused: Float64
    retiring: Float64
    waiting_on_data: Float64
    constrained: Float64
    idle: Float64
    no_work: Float64


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """A worker of the run; two of one name are two workers."""

    name: str
    address: str
    host: str
    nthreads: int
    memory_limit: int
    resources: Mapping[str, float] = field(default_factory=dict)
    #: Nanoseconds that were added to this worker's clock to put it on the scheduler's; 0 on the same host.
    clock_offset: int = 0
    #: Half the round trip of the best reading: what the offset may be off by.
    clock_error: int = 0


@dataclass(frozen=True, slots=True)
class TraceTables:
    """A recorded run: every task, transition and transfer, from which its time can be explained.

    Instants are integer nanoseconds since the epoch on the scheduler's clock; durations are integer
    nanoseconds and end in ``_ns``; sizes are bytes.

    Parameters
    ----------
    name
        What the run is called.
    start, stop
        The window that was recorded.
    keys
        A task's key as text, by task.
    dependency_starts, dependencies
        The tasks that task ``i`` needs are ``dependencies[dependency_starts[i] : dependency_starts[i + 1]]``;
        shapes (tasks + 1,) and (edges,).
    constraints
        By task: ``restrictions`` (host or worker names), ``resources``, ``retries``, ``loose_restrictions``,
        where it has any.
    config
        Dask configuration that bears on scheduling, and ``bandwidth``, the scheduler's at the start, in bytes a second.
    dropped
        Rows that did not fit or were lost, by table.
    notes
        What a reader must know to trust the trace, a sentence each.
    """

    name: str
    start: int
    stop: int
    keys: Texts
    tasks: Tasks
    dependency_starts: Int64
    dependencies: Int32
    runs: Runs
    prefixes: tuple[str, ...] = ()
    spans: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    workers: tuple[WorkerSpec, ...] = ()
    stimulus_kinds: tuple[str, ...] = ()
    graphs: Graphs = field(default_factory=Graphs.empty)
    releases: Releases = field(default_factory=Releases.empty)
    transitions: Transitions = field(default_factory=Transitions.empty)
    stimuli: Stimuli = field(default_factory=Stimuli.empty)
    transfers: Transfers = field(default_factory=Transfers.empty)
    worker_events: WorkerEvents = field(default_factory=WorkerEvents.empty)
    blocked: Blocked = field(default_factory=Blocked.empty)
    phases: Phases = field(default_factory=Phases.empty)
    series: Series = field(default_factory=Series.empty)
    constraints: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        seconds = (self.stop - self.start) / 1e9
        size = f"{len(self.tasks)} tasks on {len(self.workers)} workers"
        return f"<{type(self).__name__} {self.name!r}: {size}, {seconds:.3g} s>"
