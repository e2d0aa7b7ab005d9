"""TaskRates: totals of tasks, transfers and disk by which workers are compared, and their payload in heartbeats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, log
from typing import Any, NamedTuple

import numpy as np

from dask_efficiency.accounts.checks import MAX_NAME_LENGTH, RefusedPayload, shared_texts, short, whole
from dask_efficiency.accounts.tables import Float64
from dask_efficiency.accounts.wire.heartbeats import Sent
from dask_efficiency.accounts.wire.tables import TableWriter, WireTable, read_table
from dask_efficiency.straggler.signals import FAR_MORE, GIANT, MIN_TRANSFER_BYTES

#: Sums for each prefix: tasks; wall and CPU seconds; logarithms of the wall time in :data:`MIN_WALL_SECONDS` and of the
#: size in bytes, their squares and their product; share of the wall time on the CPU, and its square. None is negative,
#: so all only grow.
TASK_SUMS = ("tasks", "wall", "cpu", "log_wall", "log_wall2", "log_size", "log_size2", "log_product", "share", "share2")

#: Sums for each worker that this one fetches from: transfers; logarithm of the time of a byte in
#: :data:`MIN_SECONDS_A_BYTE`, and its square; seconds. None is negative.
TRANSFER_SUMS = ("transfers", "log_cost", "log_cost2", "seconds")

#: Sums for the worker's process. Seconds of waiting for a core are -1 where the system has no figure; the CPU seconds
#: of its tasks are part of its CPU seconds.
PROCESS_SUMS = ("disk_seconds", "disk_bytes", "core_wait_seconds", "cpu_seconds", "task_cpu_seconds")

#: Most prefixes, senders and running tasks that heartbeats carry; a bound on their size.
MAX_PREFIXES = 50
MAX_SENDERS = 16
MAX_RUNNING = 16

#: Weight with which the usual size follows each task. A guess.
SIZE_LEARNING = 0.125
#: Shorter times are mostly the clock's own.
MIN_WALL_SECONDS = 1e-4
#: Tasks of a prefix that are counted together by arrays, which pays from some ten on.
MIN_TOGETHER = 16
#: Unit of the logarithm of a byte's time; no network is faster.
MIN_SECONDS_A_BYTE = 1e-15


#: A task's prefix, nanoseconds in its thread and on the CPU, and bytes of its input or output.
RatedTask = tuple[str, int, int, float]


@dataclass(frozen=True, slots=True)
class RunningTask:
    """A task that has not ended: prefix, seconds so far, and bytes of input (0 without any)."""

    prefix: str
    seconds: float
    nbytes: float


@dataclass(frozen=True, slots=True, eq=False)
class TaskRates:
    """Totals of a worker, as its heartbeat carries them."""

    #: Names, and an array of shape (prefixes, :data:`TASK_SUMS`).
    prefixes: tuple[str, ...]
    tasks: Float64
    #: Addresses, and an array of shape (senders, :data:`TRANSFER_SUMS`).
    senders: tuple[str, ...]
    transfers: Float64
    #: Shape (:data:`PROCESS_SUMS`,).
    process: Float64
    #: The tasks that have run longest.
    running: tuple[RunningTask, ...] = ()


class TaskRateCounter:
    """Adds up a worker's rates; the first task of each prefix is left out, as it imports and warms up."""

    def __init__(self) -> None:
        #: :data:`TASK_SUMS` by prefix, and :data:`TRANSFER_SUMS` by sender; then the turn of the last use.
        self.tasks: dict[str, list[float]] = {}
        self.transfers: dict[str, list[float]] = {}
        #: By prefix, the logarithm of a task's usual size.
        self._usual_size: dict[str, float] = {}
        #: CPU seconds of all tasks, including those that do not count for the rates.
        self.cpu_seconds = 0.0
        #: Grows with each use.
        self.turn = 0.0

    def add(self, tasks: Iterable[RatedTask]) -> None:
        """Count tasks that succeeded; many of one prefix are counted by arrays."""
        by_prefix: dict[str, list[RatedTask]] = {}
        for task in tasks:
            by_prefix.setdefault(task[0], []).append(task)
        for prefix, rated in by_prefix.items():
            sums = self.tasks.get(prefix)
            if len(rated) >= MIN_TOGETHER and sums is not None and self._usual_size[prefix]:
                self._add_together(prefix, sums, rated)
            else:
                for _, wall, cpu, nbytes in rated:
                    self.task(prefix, wall=wall, cpu=cpu, nbytes=nbytes)

    def _add_together(self, prefix: str, sums: list[float], tasks: Sequence[RatedTask]) -> None:
        """Count many tasks as :meth:`task` does, with the usual figures from before all of them."""
        numbers = np.array([task[1:] for task in tasks], np.float64)
        self.cpu_seconds += float(numbers[:, 1].sum()) / 1e9
        numbers = numbers[numbers[:, 0] >= 1e9 * MIN_WALL_SECONDS]
        n = sums[0]
        self.turn = sums[-1] = self.turn + len(numbers)
        larger = np.log1p(numbers[:, 2]) - self._usual_size[prefix]
        weights = SIZE_LEARNING * (1 - SIZE_LEARNING) ** np.arange(len(larger))[::-1]
        usual, self._usual_size[prefix] = self._usual_size[prefix], self._usual_size[prefix] + float(weights @ larger)
        usually = larger <= GIANT
        numbers, larger = numbers[usually], larger[usually]
        wall = numbers[:, 0] / 1e9
        share = np.minimum(1.0, numbers[:, 1] / numbers[:, 0])
        if n >= 5:
            wall = np.minimum(wall, FAR_MORE * sums[1] / n)
        log_wall = np.log(wall / MIN_WALL_SECONDS)
        columns = np.stack((np.ones_like(wall), wall, share, log_wall, larger + usual))
        products = columns @ columns.T
        ones, walls, shares, logs, sizes = range(5)
        first = [ones, ones, shares, ones, logs, ones, sizes, sizes, ones, shares]
        second = [ones, walls, walls, logs, logs, sizes, sizes, logs, shares, shares]
        sums[:-1] = [n + more for n, more in zip(sums, products[first, second].tolist(), strict=False)]

    def task(self, prefix: str, *, wall: int, cpu: int, nbytes: float) -> None:
        """Count a task that succeeded: nanoseconds in its thread and on the CPU, and bytes of input or output."""
        self.cpu_seconds += cpu / 1e9
        seconds = wall / 1e9
        if seconds < MIN_WALL_SECONDS:
            return
        sums = self.tasks.get(prefix)
        if sums is None:
            self._begin(self.tasks, prefix, MAX_PREFIXES, TASK_SUMS)
            self._usual_size[prefix] = log(1.0 + nbytes)
            return
        self.turn = sums[-1] = self.turn + 1
        log_size = log(1.0 + nbytes)
        usual = self._usual_size[prefix] or log_size
        larger = log_size - usual
        self._usual_size[prefix] = usual + SIZE_LEARNING * larger
        if larger > GIANT:
            return
        n = sums[0]
        share = min(1.0, cpu / wall)
        if n >= 5:
            seconds = min(seconds, FAR_MORE * sums[1] / n)
        log_wall = log(seconds / MIN_WALL_SECONDS)
        sums[0] = n + 1.0
        sums[1] += seconds
        sums[2] += share * seconds
        sums[3] += log_wall
        sums[4] += log_wall * log_wall
        sums[5] += log_size
        sums[6] += log_size * log_size
        sums[7] += log_size * log_wall
        sums[8] += share
        sums[9] += share * share

    def transfer(self, sender: str, *, seconds: float, nbytes: int) -> None:
        """Count data that came from another worker."""
        if nbytes < MIN_TRANSFER_BYTES or not seconds > 0:
            return
        sums = self.transfers.get(sender) or self._begin(self.transfers, sender, MAX_SENDERS, TRANSFER_SUMS)
        self.turn = sums[-1] = self.turn + 1
        cost = log(max(1.0, seconds / nbytes / MIN_SECONDS_A_BYTE))
        sums[0] += 1.0
        sums[1] += cost
        sums[2] += cost * cost
        sums[3] += seconds

    def usual(self, prefix: str) -> float:
        """Usual seconds of a prefix's task on this worker; 0.0 if unknown."""
        sums = self.tasks.get(prefix)
        return sums[1] / sums[0] if sums is not None and sums[0] > 1 else 0.0

    def _begin(self, table: dict[str, list[float]], name: str, at_most: int, columns: Sequence[str]) -> list[float]:
        """Add a row, in place of the one that was unused for longest if there is no room."""
        if len(table) >= at_most:
            oldest = min(table, key=lambda other: table[other][-1])
            del table[oldest]
            if table is self.tasks:
                del self._usual_size[oldest]
        self.turn += 1
        table[name] = [0.0] * len(columns) + [self.turn]
        return table[name]


#: Sums travel as whole multiples of these units, by :data:`TASK_SUMS` and :data:`TRANSFER_SUMS`: 4 us; 2**-14 for
#: logarithms and 2**-10 for their squares, so that a variance of three tasks is off by less than 0.001, where 0.04 is
#: assumed before any is known.
TASK_UNITS = np.array([1.0, *[2.0**-18] * 2, 2.0**-14, 2.0**-10, 2.0**-14, *[2.0**-10] * 4])
TRANSFER_UNITS = np.array([1.0, 2.0**-14, 2.0**-10, 2.0**-18])
_TASK_STEPS, _TRANSFER_STEPS = (tuple((1.0 / units).tolist()) for units in (TASK_UNITS, TRANSFER_UNITS))


class TaskRateWriter:
    """Writes a worker's task rates for its heartbeats, which are sent in order."""

    def __init__(self) -> None:
        self._sent = Sent()
        self._seq = 0
        self._tasks: TableWriter[str] = TableWriter(len(TASK_SUMS))
        self._transfers: TableWriter[str] = TableWriter(len(TRANSFER_SUMS))
        #: Turn of the counter at the last heartbeat.
        self._turn = -1.0

    def heartbeat(
        self, counter: TaskRateCounter, process: Sequence[float], running: Iterable[RunningTask] = ()
    ) -> dict[str, Any]:
        """Next payload: changes of the last few heartbeats, or everything; fresh objects each time."""
        self._seq += 1
        since = self._sent.since()
        for writer, sums, units in (
            (self._tasks, counter.tasks, _TASK_STEPS),
            (self._transfers, counter.transfers, _TRANSFER_STEPS),
        ):
            # The last number of each row is the turn of its last use.
            changed = {
                name: [int(n * steps + 0.5) for n, steps in zip(row, units, strict=False)]
                for name, row in sums.items()
                if row[-1] > self._turn
            }
            writer.take(self._seq, changed, sums.keys())
        self._turn = counter.turn
        tasks, prefixes = self._tasks.write(since)
        transfers, senders = self._transfers.write(since)
        payload: dict[str, Any] = {
            "n": self._seq,
            "v": list(process),
            "r": [[self._tasks.place(task.prefix, task.prefix), task.seconds, task.nbytes] for task in running],
            "b": tasks,
            "p": prefixes,
            "c": transfers,
            "t": senders,
        }
        if since >= 0:
            payload["s"] = since
        self._sent.mark(self._seq)
        return payload

    def begin_anew(self) -> None:
        """Send everything in the next heartbeats, as the scheduler misses something."""
        self._sent.begin_anew()


class ReceivedRates(NamedTuple):
    """A worker's task rates, as the scheduler has them."""

    #: Incarnation of the ledger they came with.
    incarnation: str
    seq: int
    rates: TaskRates
    tasks: WireTable[str]
    transfers: WireTable[str]


class MissedRates(NamedTuple):
    """Task rates with changes since a state that the scheduler does not have."""


def read_task_rates(
    payload: object, incarnation: str = "", last: ReceivedRates | None = None
) -> ReceivedRates | MissedRates:
    """Task rates of a heartbeat, or changes since the last ones read of this worker; RefusedPayload if wrong."""
    if not isinstance(payload, Mapping):
        raise RefusedPayload(f"pace is {type(payload).__name__}; expected a mapping")
    seq = whole("pace.n", payload.get("n"))
    base = None
    if "s" in payload:
        since = whole("pace.s", payload["s"])
        if last is None or last.incarnation != incarnation or not since <= last.seq < seq:
            return MissedRates()
        base = last
    tasks = _table("pace.tasks", base and base.tasks, payload.get("b"), payload.get("p"), TASK_SUMS, MAX_PREFIXES)
    transfers = _table(
        "pace.transfers", base and base.transfers, payload.get("c"), payload.get("t"), TRANSFER_SUMS, MAX_SENDERS
    )
    rates = TaskRates(
        *_named(tasks, TASK_UNITS, base and (base.tasks, base.rates.prefixes, base.rates.tasks)),
        *_named(transfers, TRANSFER_UNITS, base and (base.transfers, base.rates.senders, base.rates.transfers)),
        _process(payload.get("v")),
        tuple(_running(entry, tasks.names) for entry in _listed("running", payload.get("r"), MAX_RUNNING)),
    )
    return ReceivedRates(incarnation, seq, rates, tasks, transfers)


def _table(
    name: str, table: WireTable[str] | None, rows: object, named: object, columns: Sequence[str], at_most: int
) -> WireTable[str]:
    read = read_table(name, table, rows, named, columns=len(columns), check=shared_texts).table
    # A new name is added before the one that it replaces is removed.
    if len(read.names) - read.names.count(None) > at_most or len(read.names) > 2 * at_most:
        raise RefusedPayload(f"{name} has {len(read.names)} names; expected at most {at_most}")
    return read


def _named(
    table: WireTable[str], units: Float64, before: tuple[WireTable[str], tuple[str, ...], Float64] | None
) -> tuple[tuple[str, ...], Float64]:
    """Names and sums of a table; unchanged ones are returned as the same objects."""
    if before is not None and before[0] is table:
        return before[1], before[2]
    rows = table.rows
    if None in table.names:
        rows = rows.take([place for place, name in enumerate(table.names) if name is not None], axis=0)
    sums = rows * units
    if before is not None and before[0].names is table.names:
        return before[1], sums
    return tuple([name for name in table.names if name is not None]), sums


def _process(value: object) -> Float64:
    numbers = _listed("process", value, len(PROCESS_SUMS))
    if len(numbers) != len(PROCESS_SUMS) or not {*map(type, numbers)} <= {int, float}:
        raise RefusedPayload(f"pace: process is {short(value)}; expected {len(PROCESS_SUMS)} numbers")
    if not all(map(isfinite, numbers)):
        raise RefusedPayload(f"pace: process is {short(value)}; expected finite numbers")
    return np.array(numbers, np.float64)


def _listed(name: str, value: object, at_most: int) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)) or len(value) > at_most:
        raise RefusedPayload(f"pace: {name} is {short(value)}; expected a list of at most {at_most}")
    return value


def _running(entry: object, names: Sequence[str | None]) -> RunningTask:
    if isinstance(entry, (list, tuple)) and len(entry) == 3:
        prefix, seconds, nbytes = entry
        if type(prefix) is int and 0 <= prefix < len(names):
            prefix = names[prefix]
        if isinstance(prefix, str) and isinstance(seconds, float) and isinstance(nbytes, float) and 0 <= seconds < 1e12:
            return RunningTask(prefix[:MAX_NAME_LENGTH], seconds, nbytes)
    raise RefusedPayload(f"pace: a running task is {short(entry)}; expected a prefix, seconds and bytes")
