"""WorkerBatch: rows that a worker recorded since its last batch, as they travel to the scheduler."""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from dask_efficiency.accounts.checks import RefusedPayload, counts, listed, mapping, row, short, text, whole
from dask_efficiency.accounts.tables import MISSING, Int64
from dask_efficiency.runs.trace.run_trace import MAX_PROFILE_BYTES, TaskProfile
from dask_efficiency.runs.trace.schema import BLOCKED_BY, Blocked, Runs, Transfers, from_worker

#: Version of a batch on the wire.
SCHEMA = 1
#: Columns of a worker's rows, as in :mod:`~dask_efficiency.runs.trace.schema`. Instants are by its monotonic clock,
#: ``after`` is the number of a run, ``sender`` a position in the batch's senders; keys of transfers are in the batch.
RUN, TRANSFER, BLOCKED = map(from_worker, (Runs, Transfers, Blocked))
_TABLES = {"runs": RUN, "transfers": TRANSFER, "blocked": BLOCKED}


@dataclass(frozen=True, slots=True)
class WorkerBatch:
    """Rows of a worker in integers; instants by its monotonic clock, ``wall`` is what to add for its wall clock."""

    #: Id of the recording, and the worker's address.
    recording: str
    worker: str
    #: Number of the worker's batch, from 1.
    seq: int
    wall: int
    #: Shape (rows, columns), with the columns :data:`RUN`, :data:`TRANSFER` and :data:`BLOCKED`.
    runs: Int64
    transfers: Int64
    blocked: Int64
    #: By transfer: key of the result.
    keys: tuple[Any, ...] = ()
    #: Addresses.
    senders: tuple[str, ...] = ()
    #: Profiles of runs, whose rows may be in another batch; number of runs that were to be and were not, by reason.
    profiles: tuple[TaskProfile, ...] = ()
    not_profiled: Mapping[str, int] = field(default_factory=dict)


def encode(
    *,
    runs: Collection[Sequence[int]],
    transfers: Collection[Sequence[int]] = (),
    blocked: Collection[Sequence[int]] = (),
    keys: Sequence[Any] = (),
    senders: Sequence[str] = (),
    profiles: Sequence[TaskProfile] = (),
    not_profiled: Mapping[str, int] | None = None,
    **about: str | int,
) -> dict[str, Any]:
    """Encode rows as a message of bytes, texts and keys; ``about`` is the recording, worker, seq and wall."""
    tables = {}
    for name, rows in zip(_TABLES, (runs, transfers, blocked), strict=True):
        values = list(chain.from_iterable(rows))
        tables[name] = struct.pack(f"<{len(values)}q", *values)  # an array takes twice as long to make
    message: dict[str, Any] = {"schema": SCHEMA, **about, **tables, "keys": list(keys), "senders": list(senders)}
    if profiles:
        message["profiles"] = [astuple(profile) for profile in profiles]
    if not_profiled:
        message["not_profiled"] = dict(not_profiled)
    return message


def decode(message: object) -> WorkerBatch:
    """Decode and check a message; RefusedPayload names the part that does not fit."""
    given = mapping("batch", message)
    if given.get("schema") != SCHEMA:
        raise RefusedPayload(f"batch has schema {short(given.get('schema'))}; expected {SCHEMA}")
    tables = {name: _unpack(name, given.get(name), len(columns)) for name, columns in _TABLES.items()}
    senders = tuple(text("senders", sender) for sender in listed("senders", given.get("senders")))
    keys = given.get("keys")
    if not isinstance(keys, (list, tuple)) or len(keys) != len(tables["transfers"]):
        raise RefusedPayload(f"keys is {short(keys)}; expected one for each of {len(tables['transfers'])} transfers")
    _check_positions("senders", tables["transfers"][:, TRANSFER.index("sender")], senders)
    _check_positions("causes", tables["blocked"][:, BLOCKED.index("cause")], BLOCKED_BY)
    return WorkerBatch(
        recording=text("recording", given.get("recording")),
        worker=text("worker", given.get("worker")),
        seq=whole("seq", given.get("seq")),
        wall=whole("wall", given.get("wall")),
        keys=tuple(keys),
        senders=senders,
        profiles=tuple(_profile(values) for values in listed("profiles", given.get("profiles", ()))),
        not_profiled=counts("not_profiled", given.get("not_profiled", {})),
        **tables,
    )


def _profile(values: object) -> TaskProfile:
    *numbers, content = values if isinstance(values, list | tuple) and values else (None,)
    size = _nbytes(content)
    if not isinstance(size, int) or size > MAX_PROFILE_BYTES:
        raise RefusedPayload(f"a profile is {size}; expected at most {MAX_PROFILE_BYTES} bytes")
    run, thread, start, stop, started = row("profiles", numbers, 5)
    return TaskProfile(run, thread, start, stop, started, bytes(content))


def _check_positions(name: str, column: Int64, known: Sequence[str]) -> None:
    if column.size and not (column.min() >= MISSING and column.max() < len(known)):
        raise RefusedPayload(f"{name} are {column.min()} to {column.max()}; expected {MISSING} to {len(known) - 1}")


def _nbytes(value: Any) -> int | str:
    """Length of bytes; the type's name of anything else."""
    return len(value) if isinstance(value, bytes | bytearray | memoryview) else type(value).__name__


def _unpack(name: str, packed: Any, columns: int) -> Int64:
    size = _nbytes(packed)
    if not isinstance(size, int) or size % (8 * columns):
        raise RefusedPayload(f"{name} is {size}; expected bytes in rows of {8 * columns}")
    return np.frombuffer(packed, "<i8").astype(np.int64, copy=False).reshape(-1, columns)
