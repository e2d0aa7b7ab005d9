"""What a heartbeat and a window's answer carry between worker and scheduler, checked on arrival."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dask_efficiency.activity import ACTIVE_BUCKETS
from dask_efficiency.buckets import Bucket
from dask_efficiency.causes import NAMES, of_bucket
from dask_efficiency.checks import (
    MAX_NAME_LENGTH,
    RefusedPayload,
    counts,
    flag,
    listed,
    mapping,
    row,
    short,
    text,
    whole,
)
from dask_efficiency.details import decode_details, encode_details
from dask_efficiency.gpu.plain import decode_gpu, encode_gpu
from dask_efficiency.gpu.totals import GpuTotals
from dask_efficiency.ledger import TASK_BUCKETS, UNHELD_BUCKETS, Balance, Outcome, WindowBalance

#: Raised when what travels changes; the scheduler refuses every other number.
SCHEMA = 3

#: Among the activities outside the slots: CPU time of the worker's half itself.
OWN_WORK = "dask-efficiency itself"

#: Among them, too: CPU time of threads that are neither a task's nor the event loop's.
OTHER_CPU = "CPU of other threads"

#: Among them, too: how long these were ready to run and waited for a core.
OTHER_CORE_WAIT = "other threads waiting for a core"

#: Among the details: how long tasks' threads were ready to run and waited for a core.
CORE_WAIT = "thread-noncpu: waiting for a core"

_UNHELD = frozenset(map(str, UNHELD_BUCKETS))
_BUCKETS = _UNHELD | frozenset(map(str, TASK_BUCKETS))
_ACTIVE = frozenset(map(str, ACTIVE_BUCKETS))
_OUTCOMES = frozenset(map(str, Outcome))
_CAUSES = frozenset(NAMES)


@dataclass(frozen=True, slots=True)
class SnapshotCauses:
    """Why the threads of a worker did no useful work: nanoseconds that add up to its accounts.

    By :data:`~dask_efficiency.causes.NAMES`, of ``thread-noncpu`` and ``overhead``; of the former there is nothing
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


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """What a worker without a working meter sends instead of a snapshot."""

    reason: str


def encode(snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot as plain data for msgpack, a fresh object each time."""
    return {
        "schema": SCHEMA,
        "incarnation": snapshot.incarnation,
        "seq": snapshot.seq,
        **_encode_balance(snapshot.balance),
        "outside": dict(snapshot.outside),
        "details": dict(snapshot.details),
        "final": snapshot.final,
        **({} if snapshot.gpu is None else {"gpu": encode_gpu(snapshot.gpu)}),
        "causes": {
            "settled": dict(snapshot.causes.finalized),
            "active": dict(snapshot.causes.active),
            "not_sampled": snapshot.causes.not_sampled,
        },
    }


def encode_not_measured(reason: str) -> dict[str, Any]:
    """The payload of a worker without a working meter."""
    return {"schema": SCHEMA, "off": reason[:MAX_NAME_LENGTH]}


def decode(payload: object) -> Snapshot | NotMeasured:
    """Check a payload and read it.

    Raises
    ------
    RefusedPayload
        On another schema, a missing or mistyped field, a negative, fractional (so NaN too) or
        absurdly large number, an unknown bucket, too many or too long names, buckets that do not
        add up to nthreads x elapsed, prefixes that do not add up to the buckets (to at most ``spill``), or GPU
        accounts out of order.
    """
    fields = mapping("snapshot", payload)
    _schema(fields.get("schema"))
    if "off" in fields:
        return NotMeasured(text("off", fields["off"]))
    nthreads = whole("nthreads", fields.get("nthreads"))
    balance = Balance(
        nthreads=nthreads,
        elapsed=whole("elapsed", fields.get("elapsed")),
        finalized=counts("settled", fields.get("settled"), _BUCKETS),
        running=whole("running", fields.get("running")),
        prefixes=_rows(fields.get("prefixes")),
        tasks=counts("tasks", fields.get("tasks"), _OUTCOMES),
        active=counts("active", fields.get("active"), _ACTIVE),
    )
    recorded = sum(balance.finalized.values()) + balance.running
    if recorded != nthreads * balance.elapsed:
        raise RefusedPayload(
            f"the buckets hold {recorded} ns; expected nthreads x elapsed = {nthreads} x {balance.elapsed} ns"
        )
    held = sum(balance.finalized.get(bucket, 0) for bucket in TASK_BUCKETS) + balance.running
    active = sum(balance.active.values())
    if active != held:
        raise RefusedPayload(f"active holds {active} ns; expected {held}, as settled and running")
    columns = zip(*balance.prefixes.values(), strict=True) if balance.prefixes else [()] * len(TASK_BUCKETS)
    for bucket, column in zip(TASK_BUCKETS, columns, strict=True):
        by_prefix = sum(column)
        finalized = balance.finalized.get(bucket, 0)
        # A free slot, which is no prefix's, may wait for spilling too.
        if by_prefix > finalized or (by_prefix < finalized and bucket not in UNHELD_BUCKETS):
            raise RefusedPayload(f"prefixes hold {by_prefix} ns of {str(bucket)!r}; expected {finalized}, as settled")
    return Snapshot(
        incarnation=text("incarnation", fields.get("incarnation")),
        seq=whole("seq", fields.get("seq")),
        balance=balance,
        outside=counts("outside", fields.get("outside")),
        details=counts("details", fields.get("details")),
        final=flag("final", fields.get("final")),
        gpu=decode_gpu(fields["gpu"]) if "gpu" in fields else None,
        causes=_decode_causes(fields.get("causes"), balance),
    )


def _decode_causes(payload: object, balance: Balance) -> SnapshotCauses:
    """The causes of a snapshot; where there are any, they add up to its accounts."""
    fields = mapping("causes", payload)
    found = {}
    for name, whole_of in (("settled", balance.finalized), ("active", balance.active)):
        row = found[name] = counts(f"causes.{name}", fields.get(name), _CAUSES)
        for bucket in (Bucket.THREAD_NONCPU, Bucket.OVERHEAD):
            told, held = sum(of_bucket(row, bucket).values()), whole_of.get(bucket, 0)
            if told and told != held:
                raise RefusedPayload(
                    f"causes.{name} holds {told} ns of {str(bucket)!r}; expected {held}, as in the accounts"
                )
    return SnapshotCauses(found["settled"], found["active"], text("causes.not_sampled", fields.get("not_sampled")))


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
    _schema(fields.get("schema"))
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


def _encode_balance(balance: Balance) -> dict[str, Any]:
    return {
        "nthreads": balance.nthreads,
        "elapsed": balance.elapsed,
        "settled": dict(balance.finalized),
        "running": balance.running,
        "prefixes": {prefix: list(row) for prefix, row in balance.prefixes.items()},
        "tasks": dict(balance.tasks),
        "active": dict(balance.active),
    }


def _schema(value: object) -> None:
    if type(value) is not int or value != SCHEMA:
        raise RefusedPayload(f"schema is {short(value)}; expected {SCHEMA}")


def _rows(value: object) -> dict[str, tuple[int, ...]]:
    rows = mapping("prefixes", value).items()
    return {text("prefixes", prefix): row("prefixes", values, len(TASK_BUCKETS)) for prefix, values in rows}
