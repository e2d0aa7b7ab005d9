"""Balance: what the accounts of one worker say at an instant, and the names of their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.details import WindowDetails
from dask_efficiency.accounts.worker.activity import ACTIVE_BUCKETS

#: Prefixes beyond the number that a ledger keeps apart are recorded under this name.
OTHER = "(other)"

#: Buckets that a finalized task's time goes to, in the order of a row of the ledger.
TASK_BUCKETS = (*ACTIVE_BUCKETS, Bucket.FAILED, Bucket.CANCELLED, Bucket.RECOMPUTED)

#: Buckets that only a free slot's time goes to. What the worker calls ``idle`` the scheduler splits into ``idle``,
#: ``no-work`` and, of a worker that was paused, ``paused``: only it knows whether work was outstanding, and what it
#: would have sent.
FREE_BUCKETS = (
    Bucket.PAUSED,
    Bucket.RETIRING,
    Bucket.WAITING_ON_DATA,
    Bucket.CONSTRAINED,
    Bucket.IDLE,
)

#: All that a free slot's time goes to.
UNHELD_BUCKETS = (*FREE_BUCKETS, Bucket.SPILL)


class Outcome(StrEnum):
    """What became of a task that held a slot."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    RECOMPUTED = "recomputed"
    #: By the protocol of a P2P shuffle, to run where its data is; where a user raises ``Reschedule``, it is cancelled.
    RESCHEDULED = "rescheduled"


class Availability(StrEnum):
    """Whether a worker takes new tasks; free slots of one that does not are named after it."""

    RUNNING = "running"
    PAUSED = "paused"
    RETIRING = "retiring"


class Used(NamedTuple):
    """What a task's thread used so far, in nanoseconds; the GPU's and libraries' parts are of the time beside the CPU.

    ``spill`` is the time outside the thread in which the event loop spilled or read back.
    """

    cpu: int
    wall: int
    gpu: int = 0
    library: int = 0
    spill: int = 0

    @property
    def split(self) -> tuple[int, int, int, int, int, int]:
        """The same by :data:`~dask_efficiency.accounts.worker.activity.ACTIVE_BUCKETS`, without overhead."""
        return self.cpu, self.gpu, self.library, self.wall - self.cpu - self.gpu - self.library, self.spill, 0


@dataclass(frozen=True, slots=True)
class Balance:
    """A ledger's accounts at one instant: sum(finalized) + running == nthreads * elapsed, in ns."""

    nthreads: int
    elapsed: int
    finalized: Mapping[str, int]
    running: int
    #: Finalized nanoseconds by prefix, a value for each of :data:`TASK_BUCKETS`.
    prefixes: Mapping[str, Sequence[int]]
    #: Number of finalized tasks, by :class:`Outcome`.
    tasks: Mapping[str, int]
    #: What the held slots were doing so far, finalized or not, by :data:`ACTIVE_BUCKETS`, and under ``spill`` the free
    #: ones too; monotone, and with their other buckets it sums to nthreads * elapsed without a running term, in ns.
    active: Mapping[str, int]
    #: Of ``running``, by prefix: nanoseconds, and slots that are held now.
    holding: Mapping[str, Sequence[int]] = field(default_factory=dict)
    #: Of ``recomputed``, by the mark of the worker with which the results were lost: nanoseconds, and tasks.
    recomputed: Mapping[str, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WindowBalance:
    """The accounts of one window: free + rows == nthreads * elapsed, in ns."""

    nthreads: int
    elapsed: int
    #: Nanoseconds of the free slots, by bucket.
    free: Mapping[str, int]
    #: (span, prefix) to a value for each of :data:`TASK_BUCKETS`, then ``running``.
    rows: Mapping[tuple[str, str], Sequence[int]]
    tasks: Mapping[str, int]
    #: What the ledger does not know: why, and on which line.
    details: WindowDetails = field(default_factory=WindowDetails)
