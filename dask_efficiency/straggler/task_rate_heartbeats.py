"""Task rates in heartbeats: changes are written on the worker and read on the scheduler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.checks import MAX_NAME_LENGTH, RefusedPayload, shared_texts, short, whole
from dask_efficiency.accounts.wire.heartbeats import Sent
from dask_efficiency.accounts.wire.tables import Table, TableWriter, read_table
from dask_efficiency.straggler.task_rates import (
    MAX_PREFIXES,
    MAX_RUNNING,
    MAX_SENDERS,
    PROCESS_SUMS,
    TASK_SUMS,
    TRANSFER_SUMS,
    RunningTask,
    TaskRateCounter,
    TaskRates,
)

#: Sums travel as whole multiples of these, by :data:`~dask_efficiency.straggler.task_rates.TASK_SUMS` and
#: ``TRANSFER_SUMS``: 4 us; 2**-14 for logarithms and 2**-10 for their squares, so that a variance of three tasks is off
#: by less than 0.001, where 0.04 is assumed before any is known.
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
        #: The counter's turn at the last heartbeat.
        self._turn = -1.0

    def heartbeat(
        self, counter: TaskRateCounter, process: Sequence[float], running: Iterable[RunningTask] = ()
    ) -> dict[str, Any]:
        """Make the next payload: changes of the last few heartbeats, or everything; fresh objects each time."""
        self._seq += 1
        since = self._sent.since()
        for writer, sums, units in (
            (self._tasks, counter.tasks, _TASK_STEPS),
            (self._transfers, counter.transfers, _TRANSFER_STEPS),
        ):
            # Each row has the turn of its last use behind its numbers.
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
    """A worker's task rates as the scheduler has them."""

    #: The ledger with which they came.
    incarnation: str
    seq: int
    rates: TaskRates
    tasks: Table[str]
    transfers: Table[str]


class MissedRates(NamedTuple):
    """Task rates with changes since a state that the scheduler does not have."""


def read_task_rates(
    payload: object, incarnation: str = "", last: ReceivedRates | None = None
) -> ReceivedRates | MissedRates:
    """Check the task rates that a heartbeat carries, and read them.

    Parameters
    ----------
    payload
        What :meth:`TaskRateWriter.heartbeat` returned.
    incarnation
        Of the snapshot with which they came.
    last
        What was read of this worker last, if anything was.

    Raises
    ------
    RefusedPayload
        On a missing or mistyped field, a number that is not finite, or too many names.
    """
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
    name: str, table: Table[str] | None, rows: object, named: object, columns: Sequence[str], at_most: int
) -> Table[str]:
    found = read_table(name, table, rows, named, columns=len(columns), check=shared_texts).table
    # A name takes its place before the one that it replaces leaves another.
    if len(found.names) - found.names.count(None) > at_most or len(found.names) > 2 * at_most:
        raise RefusedPayload(f"{name} has {len(found.names)} names; expected at most {at_most}")
    return found


def _named(
    table: Table[str],
    units: NDArray[np.float64],
    before: tuple[Table[str], tuple[str, ...], NDArray[np.float64]] | None,
) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """The names and sums of a table; what is as before is the same object."""
    if before is not None and before[0] is table:
        return before[1], before[2]
    rows = table.rows
    if None in table.names:
        rows = rows.take([place for place, name in enumerate(table.names) if name is not None], axis=0)
    sums = rows * units
    if before is not None and before[0].names is table.names:
        return before[1], sums
    return tuple([name for name in table.names if name is not None]), sums


def _process(value: object) -> NDArray[np.float64]:
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
