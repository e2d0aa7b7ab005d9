"""Columns of a trace: types, units, clocks, the tables that they point into, and who reports them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import (
    MISSING,
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


#: Instants by the clock of the scheduler, of the worker that reports the row, of the one that sends a message.
_At = Annotated[Int64, Column(unit="ns", clock=Clock.SCHEDULER)]
_WorkerAt = Annotated[Int64, Column(unit="ns", clock=Clock.WORKER, from_worker=True)]
_SenderAt = Annotated[Int64, Column(unit="ns", clock=Clock.WORKER)]
#: Durations, 0 where unknown; by the worker.
_Duration = Annotated[Int64, Column(unit="ns", missing=0, from_worker=True)]
#: Positions.
_Task = Annotated[Int32, Column(points_into="tasks")]
_Worker = Annotated[Int32, Column(points_into="workers")]
_Client = Annotated[Int32, Column(points_into="clients")]
_Graph = Annotated[Int32, Column(points_into="graphs")]
_State = Annotated[Int8, Column(points_into=STATES)]
#: Sizes and rates of heartbeats, and thread-seconds since the last one.
_Bytes = Annotated[Float64, Column(unit="bytes")]
_BytesPerSecond = Annotated[Float64, Column(unit="bytes/s")]
_ThreadSeconds = Annotated[Float64, Column(unit="s")]
#: Sensors of a worker's host and GPUs, see :mod:`dask_efficiency.accounts.sensors`: shares, counts, sizes and traffic.
_Share = Annotated[Float32, Column()]
_PerSecond = Annotated[Float32, Column(unit="1/s")]
_Size = Annotated[Float32, Column(unit="bytes")]
_Traffic = Annotated[Float32, Column(unit="bytes/s")]


@dataclass(frozen=True, slots=True, repr=False)
class Tasks(ColumnTable):
    """A row for each task; other tables refer to its position as ``task``. Keys are in ``RunTrace.keys``.

    ``graph`` is the first that brought it; ``wanted`` by a client is its result, of ``nbytes``.
    """

    prefix: Annotated[Int32, Column(points_into="prefixes")]
    span: Annotated[Int32, Column(points_into="spans")]
    graph: _Graph
    wanted: Bool
    nbytes: Annotated[Int64, Column(unit="bytes")]
    #: The scheduler's priority: the user's, the graph's, the order within the graph; smaller runs first.
    priority_user: Int64
    priority_graph: Int64
    priority_order: Int64


@dataclass(frozen=True, slots=True, repr=False)
class Graphs(ColumnTable):
    """A row for each graph that a client submitted, in order."""

    client: _Client
    #: Instants at which the scheduler began to take it in, and had its tasks.
    received: _At
    taken_in: _At


@dataclass(frozen=True, slots=True, repr=False)
class Releases(ColumnTable):
    """A row for each key that a client released, in order."""

    at: _At
    client: _Client
    task: _Task


@dataclass(frozen=True, slots=True, repr=False)
class Transitions(ColumnTable):
    """A row for each transition on the scheduler, in the order in which they happened.

    A task from ``processing`` to ``processing`` was stolen: ``worker`` is the thief.
    """

    at: _At
    task: _Task
    start: _State
    finish: _State
    #: The worker that it is processing on, or whose message this is.
    worker: _Worker
    stimulus: Annotated[Int32, Column(points_into="stimuli")]


@dataclass(frozen=True, slots=True, repr=False)
class Stimuli(ColumnTable):
    """A row for each stimulus of the scheduler that made transitions, in order."""

    #: Such as ``task-finished`` or ``update-graph``.
    kind: Annotated[Int16, Column(points_into="stimulus_kinds")]
    at: Annotated[Int64, Column(unit="ns", clock=Clock.DAY)]
    #: The graph that was taken in.
    graph: _Graph


@dataclass(frozen=True, slots=True, repr=False)
class Runs(ColumnTable):
    """A row for each run of a task, given to a worker, in the order of ``assigned``.

    The instants of :data:`RUN_INSTANTS` never decrease; one that did not happen, or was not recorded, is
    :data:`~dask_efficiency.accounts.tables.MISSING`.
    """

    task: _Task
    worker: _Worker
    #: The scheduler's number of the run.
    run_id: Annotated[Int64, Column(from_worker=True)]
    outcome: Annotated[Int8, Column(points_into=RunOutcome)]
    #: True if its task had been in memory, and runs again because its result, or one that needs it, was lost.
    recomputed: Bool
    #: On the scheduler: sent to the worker (a stolen task: to the thief).
    assigned: _At
    #: On the worker's event loop: its message arrived; all inputs were there; it got a slot.
    received: _WorkerAt
    ready: _WorkerAt
    executing: _WorkerAt
    #: Handed to the thread pool, with inputs read back from disk.
    submitted: _WorkerAt
    start: _WorkerAt
    stop: _WorkerAt
    #: On the worker's event loop: its slot was free again.
    ended: _WorkerAt
    #: On the scheduler: its result, or failure, was recorded.
    reported: _At
    #: Instant at which it left its slot before its end (``secede``).
    seceded: _WorkerAt
    thread: Annotated[Int64, Column(from_worker=True)]
    #: Number of its slot on the worker, from 0: numbers are chosen so that runs in a slot do not overlap.
    slot: Annotated[Int16, Column(from_worker=True)]
    #: The task whose end gave this one its slot, if it waited for one. A worker reports the run of that task.
    after: Annotated[Int32, Column(points_into="tasks", from_worker=True)]
    #: Disjoint durations: CPU of the thread between start and stop;
    cpu_ns: _Duration
    #: kernel time of its own on the GPU;
    gpu_ns: Annotated[Int64, Column(unit="ns", missing=0)]
    #: reading inputs back from disk before the start;
    unspill_ns: _Duration
    #: writing to disk after the stop, to make room.
    spill_ns: _Duration


@dataclass(frozen=True, slots=True, repr=False)
class Transfers(ColumnTable):
    """A row for each result of a task that a worker got from another one, in the order of ``stop``."""

    task: _Task
    #: In a batch, a position in the batch's own senders.
    sender: Annotated[Int32, Column(points_into="workers", from_worker=True)]
    receiver: _Worker
    nbytes: Annotated[Int64, Column(unit="bytes", missing=0, from_worker=True)]
    #: Instants at which it was needed; asked for; arrived or failed.
    queued: _WorkerAt
    start: _WorkerAt
    stop: _WorkerAt
    #: True if it arrived. In a batch, :data:`SHUFFLED` for a message of a P2P shuffle that the worker sent.
    arrived: Annotated[Bool, Column(from_worker=True)]


#: Marks a worker's row of :class:`Transfers` as one of :class:`Shuffled`, whose ``sender`` is the receiver.
SHUFFLED = 2


@dataclass(frozen=True, slots=True, repr=False)
class Shuffled(ColumnTable):
    """A row for each message of the P2P shuffle of a barrier, from a worker to any, in the order of ``stop``."""

    task: _Task
    sender: _Worker
    receiver: _Worker
    nbytes: Annotated[Int64, Column(unit="bytes", missing=0)]
    #: Sent, and taken by the receiver or failed.
    start: _SenderAt
    stop: _SenderAt


@dataclass(frozen=True, slots=True, repr=False)
class WorkerEvents(ColumnTable):
    """A row for each change of a worker, in order."""

    at: _At
    worker: _Worker
    change: Annotated[Int8, Column(points_into=WorkerChange)]


@dataclass(frozen=True, slots=True, repr=False)
class Blocked(ColumnTable):
    """A row for each interval in which an event loop was blocked, by process."""

    #: MISSING is the scheduler, which reports its own rows.
    worker: _Worker
    start: _WorkerAt
    stop: _WorkerAt
    #: Nanoseconds of it spent on reading, writing and (de)serialising messages; when in it is unknown.
    moving_ns: _Duration
    #: MISSING if unknown. Rows with a cause may overlap those without.
    cause: Annotated[Int8, Column(points_into=BLOCKED_BY, from_worker=True)]


@dataclass(frozen=True, slots=True, repr=False)
class Phases(ColumnTable):
    """A row for each interval of a client's ``compute()``."""

    client: _Client
    phase: Annotated[Int8, Column(points_into=PHASES)]
    start: _At
    stop: _At


@dataclass(frozen=True, slots=True, repr=False)
class Series(ColumnTable):
    """A row for each heartbeat: the worker's metrics, and its slots' activity since the one before."""

    at: _At
    worker: _Worker
    cpu: Annotated[Float64, Column(unit="cores")]
    #: Memory of the process; task results in memory; those on disk.
    memory: _Bytes
    managed: _Bytes
    spilled: _Bytes
    net_read: _BytesPerSecond
    net_write: _BytesPerSecond
    disk_read: _BytesPerSecond
    disk_write: _BytesPerSecond
    #: Time between two turns of the event loop, smoothed; 0.02 is undisturbed.
    loop_interval: Annotated[Float64, Column(unit="s")]
    #: Thread-seconds since the last row, by activity.
    thread_cpu: _ThreadSeconds
    gpu: _ThreadSeconds
    thread_noncpu: _ThreadSeconds
    spill: _ThreadSeconds
    overhead: _ThreadSeconds
    paused: _ThreadSeconds
    retiring: _ThreadSeconds
    waiting_on_data: _ThreadSeconds
    constrained: _ThreadSeconds
    idle: _ThreadSeconds
    no_work: _ThreadSeconds
    #: Sensors of the host; NaN for those that it lacks.
    host_cpu: _Share
    steal: _Share
    run_queue: Annotated[Float32, Column(unit="threads/core")]
    cpu_clock: Annotated[Float32, Column(unit="Hz")]
    cpu_throttles: _PerSecond
    cpu_pressure: _Share
    memory_available: _Size
    swap_in: _Traffic
    swap_out: _Traffic
    memory_pressure: _Share
    disk_busy: _Share
    disk_wait: Annotated[Float32, Column(unit="s")]
    disk_pressure: _Share
    net_errors: _PerSecond
    net_drops: _PerSecond
    retransmits: _PerSecond
    rdma_read: _Traffic
    rdma_write: _Traffic
    rdma_ecn: _PerSecond
    rdma_cnp: _PerSecond
    pfc_sent: _PerSecond
    pfc_received: _PerSecond
    #: Sensors of the GPUs that the worker uses; NaN for those that they lack.
    gpu_utilisation: _Share
    gpu_memory: _Size
    gpu_clock: Annotated[Float32, Column(unit="Hz")]
    gpu_temperature: Annotated[Float32, Column(unit="degrees Celsius")]
    gpu_power: Annotated[Float32, Column(unit="W")]
    gpu_throttled: _Share
    gpu_pcie: _Traffic
    gpu_nvlink: _Traffic


def instants(table: type[ColumnTable], *clocks: Clock) -> tuple[str, ...]:
    """List the columns of a table that are instants by any of these clocks, or by any clock if none is given."""
    known = {name: column.clock for name, column in table.schema().items() if column.clock is not None}
    return tuple(name for name, clock in known.items() if not clocks or clock in clocks)


def from_worker(table: type[ColumnTable]) -> tuple[str, ...]:
    """List the columns of a table that workers report in their batches, in the order in which they travel."""
    return tuple(name for name, column in table.schema().items() if column.from_worker)


def values_at(column: NDArray[Any], positions: NDArray[np.integer]) -> Int64:
    """Look up whole numbers by position; MISSING where the position is."""
    values: Int64 = np.append(column, MISSING)[positions]
    return values


#: Instants of a run in order; it may also secede at any time before its end.
RUN_INSTANTS = tuple(name for name in instants(Runs) if name != "seceded")
