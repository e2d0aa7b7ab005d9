"""Columns of a trace: types, units, clocks, the tables that they point into, and who reports them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Annotated

from dask_efficiency.accounts.tables import (
    Bool,
    Clock,
    Column,
    ColumnTable,
    Float32,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
)

#: States of a task on the scheduler; a transition's columns hold positions in this tuple.
STATES = ("released", "waiting", "no-worker", "queued", "processing", "memory", "erred", "forgotten")

#: Phases of a client's ``compute()``.
PHASES = ("optimize", "upload", "gather")

#: Causes of a blocked event loop: it wrote results to disk, or read them back; it computed itself, waited for a core,
#: or for the GIL while others computed, or was in a call that blocks.
BLOCKED_BY = ("spill", "unspill", "computing", "core", "gil", "call")


class RunOutcome(IntEnum):
    """Outcome of a run."""

    SUCCEEDED = 0
    FAILED = 1
    #: Cancelled, rescheduled, stolen while it waited, or cut off by its worker's closing.
    CANCELLED = 2
    #: Its worker vanished.
    LOST = 3
    #: It had not ended when the recording did.
    RUNNING = 4


class WorkerChange(IntEnum):
    """Change of a worker in a row of :class:`WorkerEvents`."""

    JOINED = 0
    LEFT = 1
    PAUSED = 2
    RESUMED = 3
    RETIRING = 4


def _instant(clock: Clock) -> Column:
    """Make a column of instants; workers report those by their own clocks."""
    return Column(unit="ns", clock=clock, from_worker=clock is Clock.WORKER)


def _duration(*, from_worker: bool = False) -> Column:
    """Make a column of durations, 0 where unknown."""
    return Column(unit="ns", missing=0, from_worker=from_worker)


def _position(target: str | tuple[str, ...] | type[Enum], *, from_worker: bool = False) -> Column:
    """Make a column of positions in a field of the trace, or of members of an enumeration."""
    return Column(points_into=target, from_worker=from_worker)


#: Instant by the sending worker's clock; it travels in a row of :class:`Transfers`.
_OF_SENDER = Column(unit="ns", clock=Clock.WORKER)
_SIZE = Column(unit="bytes")
_RATE = Column(unit="bytes/s")
_THREAD_SECONDS = Column(unit="s")


def _sensor(unit: str) -> Column:
    """Make a column of a sensor of a worker's host or GPUs; see :mod:`dask_efficiency.accounts.sensors`."""
    return Column(unit=unit)


@dataclass(frozen=True, slots=True, repr=False)
class Tasks(ColumnTable):
    """A row for each task; other tables refer to its position as ``task``. Keys are in ``RunTrace.keys``."""

    prefix: Annotated[Int32, _position("prefixes")]
    span: Annotated[Int32, _position("spans")]
    #: The first graph that brought it.
    graph: Annotated[Int32, _position("graphs")]
    #: True if a client asked for its result.
    wanted: Bool
    #: Size of its result.
    nbytes: Annotated[Int64, _SIZE]
    #: The scheduler's priority: the user's, the graph's, the order within the graph; smaller runs first.
    priority_user: Int64
    priority_graph: Int64
    priority_order: Int64


@dataclass(frozen=True, slots=True, repr=False)
class Graphs(ColumnTable):
    """A row for each graph that a client submitted, in order."""

    client: Annotated[Int32, _position("clients")]
    #: Instants at which the scheduler began to take it in, and had its tasks.
    received: Annotated[Int64, _instant(Clock.SCHEDULER)]
    taken_in: Annotated[Int64, _instant(Clock.SCHEDULER)]


@dataclass(frozen=True, slots=True, repr=False)
class Releases(ColumnTable):
    """A row for each key that a client released, in order."""

    at: Annotated[Int64, _instant(Clock.SCHEDULER)]
    client: Annotated[Int32, _position("clients")]
    task: Annotated[Int32, _position("tasks")]


@dataclass(frozen=True, slots=True, repr=False)
class Transitions(ColumnTable):
    """A row for each transition on the scheduler, in the order in which they happened.

    A task from ``processing`` to ``processing`` was stolen: ``worker`` is the thief.
    """

    at: Annotated[Int64, _instant(Clock.SCHEDULER)]
    task: Annotated[Int32, _position("tasks")]
    start: Annotated[Int8, _position(STATES)]
    finish: Annotated[Int8, _position(STATES)]
    #: The worker that it is processing on, or whose message this is.
    worker: Annotated[Int32, _position("workers")]
    #: Its cause.
    stimulus: Annotated[Int32, _position("stimuli")]


@dataclass(frozen=True, slots=True, repr=False)
class Stimuli(ColumnTable):
    """A row for each stimulus of the scheduler that made transitions, in order."""

    #: Such as ``task-finished`` or ``update-graph``.
    kind: Annotated[Int16, _position("stimulus_kinds")]
    #: When it was made.
    at: Annotated[Int64, _instant(Clock.DAY)]
    #: The graph that was taken in.
    graph: Annotated[Int32, _position("graphs")]


@dataclass(frozen=True, slots=True, repr=False)
class Runs(ColumnTable):
    """A row for each run of a task, given to a worker, in the order of ``assigned``.

    The instants of :data:`RUN_INSTANTS` never decrease; one that did not happen, or was not recorded, is
    :data:`~dask_efficiency.accounts.tables.MISSING`.
    """

    task: Annotated[Int32, _position("tasks")]
    worker: Annotated[Int32, _position("workers")]
    #: The scheduler's number of the run.
    run_id: Annotated[Int64, Column(from_worker=True)]
    outcome: Annotated[Int8, _position(RunOutcome)]
    #: True if its task had been in memory, and runs again because its result, or one that needs it, was lost.
    recomputed: Bool
    #: On the scheduler: sent to the worker (a stolen task: to the thief).
    assigned: Annotated[Int64, _instant(Clock.SCHEDULER)]
    #: On the worker's event loop: its message arrived; all inputs were there; it got a slot.
    received: Annotated[Int64, _instant(Clock.WORKER)]
    ready: Annotated[Int64, _instant(Clock.WORKER)]
    executing: Annotated[Int64, _instant(Clock.WORKER)]
    #: Handed to the thread pool, with inputs read back from disk.
    submitted: Annotated[Int64, _instant(Clock.WORKER)]
    #: In the thread.
    start: Annotated[Int64, _instant(Clock.WORKER)]
    stop: Annotated[Int64, _instant(Clock.WORKER)]
    #: On the worker's event loop: its slot was free again.
    ended: Annotated[Int64, _instant(Clock.WORKER)]
    #: On the scheduler: its result, or failure, was recorded.
    reported: Annotated[Int64, _instant(Clock.SCHEDULER)]
    #: Instant at which it left its slot before its end (``secede``).
    seceded: Annotated[Int64, _instant(Clock.WORKER)]
    #: Native id of its thread, as ``threading.get_native_id``.
    thread: Annotated[Int64, Column(from_worker=True)]
    #: Number of its slot on the worker, from 0: numbers are chosen so that runs in a slot do not overlap.
    slot: Annotated[Int16, Column(from_worker=True)]
    #: The task whose end gave this one its slot, if it waited for one. A worker reports the run of that task.
    after: Annotated[Int32, _position("tasks", from_worker=True)]
    #: Disjoint durations: CPU of the thread between start and stop;
    cpu_ns: Annotated[Int64, _duration(from_worker=True)]
    #: kernel time of its own on the GPU;
    gpu_ns: Annotated[Int64, _duration()]
    #: reading inputs back from disk before the start;
    unspill_ns: Annotated[Int64, _duration(from_worker=True)]
    #: writing to disk after the stop, to make room.
    spill_ns: Annotated[Int64, _duration(from_worker=True)]


@dataclass(frozen=True, slots=True, repr=False)
class Transfers(ColumnTable):
    """A row for each result that a worker got from another one, in the order of ``stop``."""

    #: Whose result.
    task: Annotated[Int32, _position("tasks")]
    #: In a batch, a position in the batch's own senders.
    sender: Annotated[Int32, _position("workers", from_worker=True)]
    receiver: Annotated[Int32, _position("workers")]
    nbytes: Annotated[Int64, Column(unit="bytes", missing=0, from_worker=True)]
    #: Instants at which it was needed; asked for; arrived or failed.
    queued: Annotated[Int64, _instant(Clock.WORKER)]
    start: Annotated[Int64, _instant(Clock.WORKER)]
    stop: Annotated[Int64, _instant(Clock.WORKER)]
    #: True if it arrived. In a batch, :data:`SHUFFLED` for a message of a P2P shuffle that the worker sent.
    arrived: Annotated[Bool, Column(from_worker=True)]


#: Marks a worker's row of :class:`Transfers` as one of :class:`Shuffled`, whose ``sender`` is the receiver.
SHUFFLED = 2


@dataclass(frozen=True, slots=True, repr=False)
class Shuffled(ColumnTable):
    """A row for each message of a P2P shuffle from a worker to another, or to itself, in the order of ``stop``."""

    #: The shuffle's barrier.
    task: Annotated[Int32, _position("tasks")]
    sender: Annotated[Int32, _position("workers")]
    receiver: Annotated[Int32, _position("workers")]
    #: In memory.
    nbytes: Annotated[Int64, Column(unit="bytes", missing=0)]
    #: Sent, and taken by the receiver or failed.
    start: Annotated[Int64, _OF_SENDER]
    stop: Annotated[Int64, _OF_SENDER]


@dataclass(frozen=True, slots=True, repr=False)
class WorkerEvents(ColumnTable):
    """A row for each change of a worker, in order."""

    at: Annotated[Int64, _instant(Clock.SCHEDULER)]
    worker: Annotated[Int32, _position("workers")]
    change: Annotated[Int8, _position(WorkerChange)]


@dataclass(frozen=True, slots=True, repr=False)
class Blocked(ColumnTable):
    """A row for each interval in which an event loop was blocked, by process."""

    #: MISSING is the scheduler, which reports its own rows.
    worker: Annotated[Int32, _position("workers")]
    start: Annotated[Int64, _instant(Clock.WORKER)]
    stop: Annotated[Int64, _instant(Clock.WORKER)]
    #: Nanoseconds of it spent on reading, writing and (de)serialising messages; when in it is unknown.
    moving_ns: Annotated[Int64, _duration(from_worker=True)]
    #: MISSING if unknown. Rows with a cause may overlap those without.
    cause: Annotated[Int8, _position(BLOCKED_BY, from_worker=True)]


@dataclass(frozen=True, slots=True, repr=False)
class Phases(ColumnTable):
    """A row for each interval of a client's ``compute()``."""

    client: Annotated[Int32, _position("clients")]
    phase: Annotated[Int8, _position(PHASES)]
    start: Annotated[Int64, _instant(Clock.SCHEDULER)]
    stop: Annotated[Int64, _instant(Clock.SCHEDULER)]


@dataclass(frozen=True, slots=True, repr=False)
class Series(ColumnTable):
    """A row for each heartbeat: the worker's metrics, and its slots' activity since the one before."""

    at: Annotated[Int64, _instant(Clock.SCHEDULER)]
    worker: Annotated[Int32, _position("workers")]
    #: CPU of the process.
    cpu: Annotated[Float64, Column(unit="cores")]
    #: Memory of the process; task results in memory; those on disk.
    memory: Annotated[Float64, _SIZE]
    managed: Annotated[Float64, _SIZE]
    spilled: Annotated[Float64, _SIZE]
    #: Traffic of the host.
    net_read: Annotated[Float64, _RATE]
    net_write: Annotated[Float64, _RATE]
    disk_read: Annotated[Float64, _RATE]
    disk_write: Annotated[Float64, _RATE]
    #: Time between two turns of the event loop, smoothed; 0.02 is undisturbed.
    loop_interval: Annotated[Float64, Column(unit="s")]
    #: Thread-seconds since the last row, by activity.
    thread_cpu: Annotated[Float64, _THREAD_SECONDS]
    gpu: Annotated[Float64, _THREAD_SECONDS]
    thread_noncpu: Annotated[Float64, _THREAD_SECONDS]
    spill: Annotated[Float64, _THREAD_SECONDS]
    overhead: Annotated[Float64, _THREAD_SECONDS]
    paused: Annotated[Float64, _THREAD_SECONDS]
    retiring: Annotated[Float64, _THREAD_SECONDS]
    waiting_on_data: Annotated[Float64, _THREAD_SECONDS]
    constrained: Annotated[Float64, _THREAD_SECONDS]
    idle: Annotated[Float64, _THREAD_SECONDS]
    no_work: Annotated[Float64, _THREAD_SECONDS]
    #: Sensors of the host; NaN for those that it lacks.
    host_cpu: Annotated[Float32, _sensor("")]
    steal: Annotated[Float32, _sensor("")]
    run_queue: Annotated[Float32, _sensor("threads/core")]
    cpu_clock: Annotated[Float32, _sensor("Hz")]
    cpu_throttles: Annotated[Float32, _sensor("1/s")]
    cpu_pressure: Annotated[Float32, _sensor("")]
    memory_available: Annotated[Float32, _sensor("bytes")]
    swap_in: Annotated[Float32, _sensor("bytes/s")]
    swap_out: Annotated[Float32, _sensor("bytes/s")]
    memory_pressure: Annotated[Float32, _sensor("")]
    disk_busy: Annotated[Float32, _sensor("")]
    disk_wait: Annotated[Float32, _sensor("s")]
    disk_pressure: Annotated[Float32, _sensor("")]
    net_errors: Annotated[Float32, _sensor("1/s")]
    net_drops: Annotated[Float32, _sensor("1/s")]
    retransmits: Annotated[Float32, _sensor("1/s")]
    rdma_read: Annotated[Float32, _sensor("bytes/s")]
    rdma_write: Annotated[Float32, _sensor("bytes/s")]
    rdma_ecn: Annotated[Float32, _sensor("1/s")]
    rdma_cnp: Annotated[Float32, _sensor("1/s")]
    pfc_sent: Annotated[Float32, _sensor("1/s")]
    pfc_received: Annotated[Float32, _sensor("1/s")]
    #: Sensors of the GPUs that the worker uses; NaN for those that they lack.
    gpu_utilisation: Annotated[Float32, _sensor("")]
    gpu_memory: Annotated[Float32, _sensor("bytes")]
    gpu_clock: Annotated[Float32, _sensor("Hz")]
    gpu_temperature: Annotated[Float32, _sensor("degrees Celsius")]
    gpu_power: Annotated[Float32, _sensor("W")]
    gpu_throttled: Annotated[Float32, _sensor("")]
    gpu_pcie: Annotated[Float32, _sensor("bytes/s")]
    gpu_nvlink: Annotated[Float32, _sensor("bytes/s")]


def instants(table: type[ColumnTable], *clocks: Clock) -> tuple[str, ...]:
    """List the columns of a table that are instants by any of these clocks, or by any clock if none is given."""
    known = {name: column.clock for name, column in table.schema().items() if column.clock is not None}
    return tuple(name for name, clock in known.items() if not clocks or clock in clocks)


def from_worker(table: type[ColumnTable]) -> tuple[str, ...]:
    """List the columns of a table that workers report in their batches, in the order in which they travel."""
    return tuple(name for name, column in table.schema().items() if column.from_worker)


#: Instants of a run in order; it may also secede at any time before its end.
RUN_INSTANTS = tuple(name for name in instants(Runs) if name != "seceded")
