"""What a heartbeat and a window's answer carry between worker and scheduler, checked on arrival."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dask_efficiency.ledger import ACTIVE_BUCKETS, FREE_BUCKETS, TASK_BUCKETS, Balance, Outcome, WindowBalance

#: Raised when what travels changes; the scheduler refuses every other number.
SCHEMA = 1

#: No honest worker comes near these: a payload over them is refused whole.
MAX_NAMES = 10_000
MAX_NAME_LENGTH = 1_000
#: 146 years of nanoseconds, and still far from the end of msgpack's integers.
MAX_NANOSECONDS = 1 << 62

#: Among the activities outside the slots: CPU time of the worker's half itself.
OWN_WORK = "dask-efficiency itself"

_BUCKETS = frozenset(map(str, (*TASK_BUCKETS, *FREE_BUCKETS)))
_ACTIVE = frozenset(map(str, ACTIVE_BUCKETS))
_OUTCOMES = frozenset(map(str, Outcome))


class RefusedSnapshot(ValueError):
    """A payload that must not be booked; says which field, what it held and what was expected."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A worker's accounts as its heartbeat carries them: totals, so that a lost one costs nothing."""

    #: Which ledger these accounts are of; a new process or a fresh registration has a new one.
    incarnation: str
    #: Grows with each snapshot of an incarnation; repeated and late ones are told by it.
    seq: int
    balance: Balance
    #: Nanoseconds outside the slots, by activity; shown beside, never added.
    outside: Mapping[str, int] = field(default_factory=dict)
    #: Nanoseconds within a bucket that are known more finely; shown beside, never added.
    details: Mapping[str, int] = field(default_factory=dict)
    #: The last one of its incarnation: the worker is closing.
    final: bool = False


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
    }


def encode_not_measured(reason: str) -> dict[str, Any]:
    """The payload of a worker without a working meter."""
    return {"schema": SCHEMA, "off": reason[:MAX_NAME_LENGTH]}


def decode(payload: object) -> Snapshot | NotMeasured:
    """Check a payload and read it.

    Raises
    ------
    RefusedSnapshot
        On another schema, a missing or mistyped field, a negative, fractional (so NaN too) or
        absurdly large number, an unknown bucket, too many or too long names, buckets that do not
        add up to nthreads x elapsed, or prefixes that do not add up to the buckets.
    """
    fields = _mapping("snapshot", payload)
    _schema(fields.get("schema"))
    if "off" in fields:
        return NotMeasured(_text("off", fields["off"]))
    nthreads = _whole("nthreads", fields.get("nthreads"))
    balance = Balance(
        nthreads=nthreads,
        elapsed=_whole("elapsed", fields.get("elapsed")),
        settled=_counts("settled", fields.get("settled"), _BUCKETS),
        running=_whole("running", fields.get("running")),
        prefixes=_rows(fields.get("prefixes")),
        tasks=_counts("tasks", fields.get("tasks"), _OUTCOMES),
        active=_counts("active", fields.get("active"), _ACTIVE),
    )
    whole = sum(balance.settled.values()) + balance.running
    if whole != nthreads * balance.elapsed:
        raise RefusedSnapshot(
            f"the buckets hold {whole} ns; expected nthreads x elapsed = {nthreads} x {balance.elapsed} ns"
        )
    held = sum(balance.settled.get(bucket, 0) for bucket in TASK_BUCKETS) + balance.running
    active = sum(balance.active.values())
    if active != held:
        raise RefusedSnapshot(f"active holds {active} ns; expected {held}, as settled and running")
    columns = zip(*balance.prefixes.values(), strict=True) if balance.prefixes else [()] * len(TASK_BUCKETS)
    for bucket, column in zip(TASK_BUCKETS, columns, strict=True):
        by_prefix = sum(column)
        settled = balance.settled.get(bucket, 0)
        if by_prefix != settled:
            raise RefusedSnapshot(f"prefixes hold {by_prefix} ns of {str(bucket)!r}; expected {settled}, as settled")
    return Snapshot(
        incarnation=_text("incarnation", fields.get("incarnation")),
        seq=_whole("seq", fields.get("seq")),
        balance=balance,
        outside=_counts("outside", fields.get("outside")),
        details=_counts("details", fields.get("details")),
        final=_flag("final", fields.get("final")),
    )


def encode_window(window: WindowBalance) -> dict[str, Any]:
    """A window's accounts as plain data for msgpack."""
    return {
        "schema": SCHEMA,
        "nthreads": window.nthreads,
        "elapsed": window.elapsed,
        "free": dict(window.free),
        "rows": [[span, prefix, list(row)] for (span, prefix), row in window.rows.items()],
        "tasks": dict(window.tasks),
    }


def decode_window(payload: object) -> WindowBalance:
    """Check a window's accounts and read them; raises :class:`RefusedSnapshot` as :func:`decode`."""
    fields = _mapping("window", payload)
    _schema(fields.get("schema"))
    listed = fields.get("rows")
    if not isinstance(listed, (list, tuple)) or len(listed) > MAX_NAMES:
        raise RefusedSnapshot(f"rows is {_short(listed)}; expected a list of at most {MAX_NAMES}")
    rows: dict[tuple[str, str], tuple[int, ...]] = {}
    for entry in listed:
        if not isinstance(entry, (list, tuple)) or len(entry) != 3:
            raise RefusedSnapshot(f"a row is {_short(entry)}; expected span, prefix and nanoseconds")
        span, prefix, values = entry
        rows[_text("span", span), _text("prefix", prefix)] = _row("rows", values, len(TASK_BUCKETS) + 1)
    window = WindowBalance(
        nthreads=_whole("nthreads", fields.get("nthreads")),
        elapsed=_whole("elapsed", fields.get("elapsed")),
        free=_counts("free", fields.get("free"), frozenset(map(str, FREE_BUCKETS))),
        rows=rows,
        tasks=_counts("tasks", fields.get("tasks"), _OUTCOMES),
    )
    whole = sum(window.free.values()) + sum(sum(row) for row in rows.values())
    if whole != window.nthreads * window.elapsed:
        raise RefusedSnapshot(
            f"the window holds {whole} ns; expected nthreads x elapsed = {window.nthreads} x {window.elapsed} ns"
        )
    return window


def _encode_balance(balance: Balance) -> dict[str, Any]:
    return {
        "nthreads": balance.nthreads,
        "elapsed": balance.elapsed,
        "settled": dict(balance.settled),
        "running": balance.running,
        "prefixes": {prefix: list(row) for prefix, row in balance.prefixes.items()},
        "tasks": dict(balance.tasks),
        "active": dict(balance.active),
    }


def _short(value: object) -> str:
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deeply, or a number of too many digits
        return f"a {type(value).__name__} too large to show"
    return text if len(text) <= 80 else text[:77] + "..."


def _schema(value: object) -> None:
    if type(value) is not int or value != SCHEMA:
        raise RefusedSnapshot(f"schema is {_short(value)}; expected {SCHEMA}")


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise RefusedSnapshot(f"{name} is {_short(value)}; expected True or False")
    return value


def _whole(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_NANOSECONDS:
        raise RefusedSnapshot(f"{name} is {_short(value)}; expected a whole number from 0 to 2**62")
    return value


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or len(value) > MAX_NAME_LENGTH:
        raise RefusedSnapshot(f"{name} is {_short(value)}; expected at most {MAX_NAME_LENGTH} characters")
    return value


def _mapping(name: str, value: object) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise RefusedSnapshot(f"{name} is {_short(value)}; expected a mapping")
    if len(value) > MAX_NAMES:
        raise RefusedSnapshot(f"{name} has {len(value)} entries; expected at most {MAX_NAMES}")
    return value


def _counts(name: str, value: object, known: frozenset[str] | None = None) -> dict[str, int]:
    counts = {}
    for key, n in _mapping(name, value).items():
        if type(n) is not int or not 0 <= n <= MAX_NANOSECONDS:
            _whole(f"{name}[{_short(key)}]", n)
        counts[_text(name, key)] = n
    if known is not None and not counts.keys() <= known:
        raise RefusedSnapshot(f"{name} has {_short(sorted(counts.keys() - known))}; expected only {sorted(known)}")
    return counts


def _row(name: str, values: object, length: int) -> tuple[int, ...]:
    if not isinstance(values, (list, tuple)) or len(values) != length:
        raise RefusedSnapshot(f"a row of {name} is {_short(values)}; expected {length} numbers")
    # All at once, for a scheduler reads thousands of these a second; then one by one, to say which is wrong.
    if {*map(type, values)} == {int} and min(values) >= 0 and max(values) <= MAX_NANOSECONDS:
        return tuple(values)
    return tuple(_whole(name, value) for value in values)


def _rows(value: object) -> dict[str, tuple[int, ...]]:
    rows = _mapping("prefixes", value).items()
    return {_text("prefixes", prefix): _row("prefixes", row, len(TASK_BUCKETS)) for prefix, row in rows}
