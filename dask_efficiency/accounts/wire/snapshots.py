"""Snapshots of a worker's accounts, and the order of their numbers on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dask_efficiency.accounts.buckets import CAUSES, Bucket, cause_name
from dask_efficiency.accounts.checks import RefusedPayload, short
from dask_efficiency.accounts.gpu import GpuTotals
from dask_efficiency.accounts.intake import fitting
from dask_efficiency.accounts.worker.balance import (
    ACTIVE_BUCKETS,
    FREE_BUCKETS,
    TASK_BUCKETS,
    Balance,
    Outcome,
)

CAUSED_BUCKETS = (Bucket.THREAD_NONCPU, Bucket.OVERHEAD)
_CAUSES = tuple(cause_name(bucket, cause) for bucket in CAUSED_BUCKETS for cause in CAUSES[bucket])

#: Numbers of each heartbeat by group, in their order on the wire; groups are called as the parts of an account.
GROUPS: dict[str, tuple[str, ...]] = {
    "": ("nthreads", "elapsed", "running"),
    # Nanoseconds that add up to nthreads x elapsed - running.
    "finalized": (*map(str, FREE_BUCKETS), *map(str, TASK_BUCKETS)),
    "tasks": tuple(map(str, Outcome)),
    # Nanoseconds that add up to the finalized time of tasks + running.
    "activity": tuple(map(str, ACTIVE_BUCKETS)),
    # Where any is known, those of a bucket add up to its finalized time, or its activity.
    "causes": _CAUSES,
    "cause_activity": _CAUSES,
}
#: Groups of numbers outside the accounts, with names that travel too; fields of a snapshot.
EXTRAS = ("outside", "details", "amounts")
#: Group and name of each number, and its name in error messages.
FIELDS = tuple((group, name) for group, names in GROUPS.items() for name in names)
NUMBERS = tuple(f"{group}[{name!r}]" if group else name for group, name in FIELDS)

#: Version of all messages; raised with each change. The scheduler refuses any other.
SCHEMA = 7
#: Activity outside the slots: CPU time of the plugin on the worker.
OWN_WORK = "dask-efficiency itself"
#: Activity outside the slots: CPU time of threads that are neither a task's nor the event loop's.
OTHER_CPU = "CPU of other threads"
#: Activity outside the slots: time in which these were ready to run and waited for a core.
OTHER_CORE_WAIT = "other threads waiting for a core"
#: Detail: time in which tasks' threads were ready to run and waited for a core.
CORE_WAIT = "thread-noncpu: waiting for a core"


@dataclass(frozen=True, slots=True)
class SnapshotCauses:
    """Causes of ``thread-noncpu``, if it is sampled, and ``overhead``, by cause names; they add up to the accounts."""

    finalized: Mapping[str, int] = field(default_factory=dict)
    active: Mapping[str, int] = field(default_factory=dict)
    not_sampled: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A worker's accounts as a heartbeat carries them: totals, so that a lost heartbeat costs nothing."""

    #: Id of the ledger; a new process or registration has a new one.
    incarnation: str
    #: Number of the snapshot in its incarnation, to recognize repeated and late ones.
    seq: int
    balance: Balance
    #: Nanoseconds outside the slots, by activity; shown separately, never added.
    outside: Mapping[str, int] = field(default_factory=dict)
    #: Nanoseconds of parts of buckets; shown separately, never added.
    details: Mapping[str, int] = field(default_factory=dict)
    #: True for the last one of its incarnation: the worker is closing.
    final: bool = False
    gpu: GpuTotals | None = None
    causes: SnapshotCauses = field(default_factory=SnapshotCauses)
    #: Bytes and counts of each of :data:`~dask_efficiency.accounts.metered.WAYS`, by ``way/unit``.
    amounts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """Message of a worker without a working meter, in place of a snapshot."""

    reason: str


def encode_not_measured(reason: str) -> dict[str, Any]:
    """The payload of a worker without a working meter."""
    return {"schema": SCHEMA, "off": fitting(reason)}


def check_schema(value: object) -> None:
    """Refuse messages of another version of this package."""
    if type(value) is not int or value != SCHEMA:
        raise RefusedPayload(f"schema is {short(value)}; expected {SCHEMA}")
