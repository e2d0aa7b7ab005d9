"""Batch: what a worker recorded since its last one, as it travels to the scheduler."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from dask_efficiency.trace.run_trace import BLOCKED_BY
from dask_efficiency.trace.tables import MISSING, Int64

SCHEMA = 1

#: What a worker knows of a run: instants and durations in nanoseconds by its monotonic clock, as in
#: :class:`~dask_efficiency.trace.run_trace.Runs`; ``after`` is the number of a run.
RUN = (
    "run_id",
    "received",
    "ready",
    "executing",
    "submitted",
    "start",
    "stop",
    "ended",
    "seceded",
    "thread",
    "slot",
    "after",
    "cpu_ns",
    "unspill_ns",
    "spill_ns",
)

#: Of a transfer; ``sender`` is a position in the batch's senders, the key stands in the batch's keys.
TRANSFER = ("sender", "nbytes", "queued", "start", "stop", "arrived")

#: Of a time in which the event loop did not turn, as in :class:`~dask_efficiency.trace.run_trace.Blocked`.
BLOCKED = ("start", "stop", "moving_ns", "cause")

_TABLES = {"runs": RUN, "transfers": TRANSFER, "blocked": BLOCKED}


class RefusedBatch(ValueError):
    """A batch that cannot be booked; says why."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of a worker, integers by its monotonic clock.

    Parameters
    ----------
    recording
        Which recording it is of.
    worker
        The worker's address.
    seq
        The worker's batches are numbered from 1.
    wall
        Nanoseconds that its clock of the day is ahead of its monotonic clock.
    runs, transfers, blocked
        Shape (rows, columns), with the columns :data:`RUN`, :data:`TRANSFER` and :data:`BLOCKED`.
    keys
        By transfer, whose result it was.
    senders
        Addresses.
    """

    recording: str
    worker: str
    seq: int
    wall: int
    runs: Int64
    transfers: Int64
    blocked: Int64
    keys: tuple[Any, ...] = ()
    senders: tuple[str, ...] = ()


def encode(
    *,
    recording: str,
    worker: str,
    seq: int,
    wall: int,
    runs: Collection[Sequence[int]],
    transfers: Collection[Sequence[int]] = (),
    blocked: Collection[Sequence[int]] = (),
    keys: Sequence[Any] = (),
    senders: Sequence[str] = (),
) -> dict[str, Any]:
    """Rows as a message of bytes, texts and keys."""
    return {
        "schema": SCHEMA,
        "recording": recording,
        "worker": worker,
        "seq": seq,
        "wall": wall,
        "runs": _pack(runs),
        "transfers": _pack(transfers),
        "blocked": _pack(blocked),
        "keys": list(keys),
        "senders": list(senders),
    }


def decode(message: Any) -> Batch:
    """The batch of a message.

    Raises
    ------
    RefusedBatch
        If it is of another schema, or its parts do not fit together; names the part.
    """
    if not isinstance(message, Mapping) or message.get("schema") != SCHEMA:
        raise RefusedBatch(f"expected a batch of schema {SCHEMA}, got {str(message)[:100]}")
    tables = {name: _unpack(name, message.get(name), len(columns)) for name, columns in _TABLES.items()}
    keys, senders = message.get("keys"), message.get("senders")
    if not isinstance(keys, (list, tuple)) or len(keys) != len(tables["transfers"]):
        raise RefusedBatch(f"expected a key for each of {len(tables['transfers'])} transfers, got {str(keys)[:100]}")
    if not isinstance(senders, (list, tuple)):
        raise RefusedBatch(f"expected a list of senders, got {str(senders)[:100]}")
    known = tables["transfers"][:, 0]
    if known.size and not (known.min() >= -1 and known.max() < len(senders)):
        raise RefusedBatch(f"a transfer's sender is none of the {len(senders)} given")
    causes = tables["blocked"][:, BLOCKED.index("cause")]
    if causes.size and not (causes.min() >= MISSING and causes.max() < len(BLOCKED_BY)):
        raise RefusedBatch(f"an event loop was blocked by none of {BLOCKED_BY}")
    try:
        return Batch(
            recording=str(message["recording"]),
            worker=str(message["worker"]),
            seq=int(message["seq"]),
            wall=int(message["wall"]),
            keys=tuple(keys),
            senders=tuple(str(sender) for sender in senders),
            **tables,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RefusedBatch(f"{type(error).__name__}: {error}") from error


def _pack(rows: Collection[Sequence[int]]) -> bytes:
    values = array("q", chain.from_iterable(rows))
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def _unpack(name: str, packed: Any, columns: int) -> Int64:
    if not isinstance(packed, bytes | bytearray | memoryview) or len(packed) % (8 * columns):
        size = len(packed) if isinstance(packed, bytes | bytearray | memoryview) else type(packed).__name__
        raise RefusedBatch(f"{name} is {size}; expected bytes in rows of {8 * columns}")
    return np.frombuffer(packed, "<i8").astype(np.int64, copy=False).reshape(-1, columns)
