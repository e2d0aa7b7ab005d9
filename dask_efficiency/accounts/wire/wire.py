"""What travels between worker and scheduler: snapshots as values, and the answers about a window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dask_efficiency.accounts.checks import (
    MAX_NAME_LENGTH,
    RefusedPayload,
    counts,
    listed,
    mapping,
    row,
    short,
    text,
    whole,
)
from dask_efficiency.accounts.details import decode_details, encode_details
from dask_efficiency.accounts.gpu.totals import GpuTotals
from dask_efficiency.accounts.worker.balance import TASK_BUCKETS, UNHELD_BUCKETS, Balance, Outcome, WindowBalance

#: Raised when what travels changes; the scheduler refuses every other number.
SCHEMA = 5

#: Among the activities outside the slots: CPU time of the worker's half itself.
OWN_WORK = "dask-efficiency itself"

#: Among them, too: CPU time of threads that are neither a task's nor the event loop's.
OTHER_CPU = "CPU of other threads"

#: Among them, too: how long these were ready to run and waited for a core.
OTHER_CORE_WAIT = "other threads waiting for a core"

#: Among the details: how long tasks' threads were ready to run and waited for a core.
CORE_WAIT = "thread-noncpu: waiting for a core"

_UNHELD = frozenset(map(str, UNHELD_BUCKETS))
_OUTCOMES = frozenset(map(str, Outcome))


@dataclass(frozen=True, slots=True)
class SnapshotCauses:
    """Why the threads of a worker did no useful work: nanoseconds that add up to its accounts.

    By :data:`~dask_efficiency.accounts.causes.NAMES`, of ``thread-noncpu`` and ``overhead``; of the former there is
    nothing
    where nobody samples what the threads wait for. Causes by prefix travel with windows only: heartbeats are many.
    """

    finalized: Mapping[str, int] = field(default_factory=dict)
    #: The same of the activity view.
    active: Mapping[str, int] = field(default_factory=dict)
    #: Why nobody samples; empty where somebody does.
    not_sampled: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A worker's accounts as its heartbeat carries them: totals, so that a lost one costs nothing."""

    #: Which ledger these accounts are of; a new process or a fresh registration has a new one.
    incarnation: str
    #: Grows with each snapshot of an incarnation; so repeated and late ones are known.
    seq: int
    balance: Balance
    #: Nanoseconds outside the slots, by activity; shown beside, never added.
    outside: Mapping[str, int] = field(default_factory=dict)
    #: Nanoseconds within a bucket that are known more finely; shown beside, never added.
    details: Mapping[str, int] = field(default_factory=dict)
    #: The last one of its incarnation: the worker is closing.
    final: bool = False
    #: The GPU accounts; None where nothing has asked for a GPU yet.
    gpu: GpuTotals | None = None
    causes: SnapshotCauses = field(default_factory=SnapshotCauses)
    #: Bytes and counts of what went each of the :data:`~dask_efficiency.accounts.metered.WAYS`, by ``way/unit``.
    amounts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """What a worker without a working meter sends instead of a snapshot."""

    reason: str


def encode_not_measured(reason: str) -> dict[str, Any]:
    """The payload of a worker without a working meter."""
    return {"schema": SCHEMA, "off": reason[:MAX_NAME_LENGTH]}


def encode_window(window: WindowBalance, *, limit: int = 300) -> dict[str, Any]:
    """A window's accounts as plain data for msgpack, with so many rows of each of its profiles."""
    return {
        "schema": SCHEMA,
        "nthreads": window.nthreads,
        "elapsed": window.elapsed,
        "free": dict(window.free),
        "rows": [[span, prefix, list(row)] for (span, prefix), row in window.rows.items()],
        "tasks": dict(window.tasks),
        "details": encode_details(window.details, limit=limit),
    }


def decode_window(payload: object) -> WindowBalance:
    """Check a window's accounts and read them; raises :class:`RefusedPayload` as :func:`decode`."""
    fields = mapping("window", payload)
    check_schema(fields.get("schema"))
    rows: dict[tuple[str, str], tuple[int, ...]] = {}
    for entry in listed("rows", fields.get("rows")):
        if not isinstance(entry, (list, tuple)) or len(entry) != 3:
            raise RefusedPayload(f"a row is {short(entry)}; expected span, prefix and nanoseconds")
        span, prefix, values = entry
        rows[text("span", span), text("prefix", prefix)] = row("rows", values, len(TASK_BUCKETS) + 1)
    window = WindowBalance(
        nthreads=whole("nthreads", fields.get("nthreads")),
        elapsed=whole("elapsed", fields.get("elapsed")),
        free=counts("free", fields.get("free"), _UNHELD),
        rows=rows,
        tasks=counts("tasks", fields.get("tasks"), _OUTCOMES),
        details=decode_details(fields.get("details")),
    )
    recorded = sum(window.free.values()) + sum(map(sum, rows.values()))
    if recorded != window.nthreads * window.elapsed:
        raise RefusedPayload(
            f"the window holds {recorded} ns; expected nthreads x elapsed = {window.nthreads} x {window.elapsed} ns"
        )
    return window


def check_schema(value: object) -> None:
    """Refuse what another version of this package sent."""
    if type(value) is not int or value != SCHEMA:
        raise RefusedPayload(f"schema is {short(value)}; expected {SCHEMA}")
