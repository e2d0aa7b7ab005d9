"""Balance: the accounts of one worker at an instant, and the names of their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from dask_efficiency.accounts.buckets import Bucket

#: Activities of a held slot, whatever the outcome of its task.
ACTIVE_BUCKETS = (
    Bucket.THREAD_CPU,
    Bucket.GPU,
    Bucket.LIBRARY_THREADS,
    Bucket.THREAD_NONCPU,
    Bucket.SPILL,
    Bucket.OVERHEAD,
)

#: Buckets of a finalized task's time, in the order of a row of the ledger.
TASK_BUCKETS = (*ACTIVE_BUCKETS, Bucket.FAILED, Bucket.CANCELLED, Bucket.RECOMPUTED)
#: Buckets of free slots only. The scheduler splits the worker's ``idle`` into ``idle``, ``no-work`` and, of a paused
#: worker, ``paused``: only it knows if work was outstanding, and which tasks it would have sent.
FREE_BUCKETS = (Bucket.PAUSED, Bucket.RETIRING, Bucket.WAITING_ON_DATA, Bucket.CONSTRAINED, Bucket.IDLE)
#: All buckets of a free slot's time.
UNHELD_BUCKETS = (*FREE_BUCKETS, Bucket.SPILL)


class Outcome(StrEnum):
    """Outcome of a task that held a slot."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    RECOMPUTED = "recomputed"
    #: By a P2P shuffle, to run where its data is; a user's ``Reschedule`` counts as cancelled.
    RESCHEDULED = "rescheduled"


def results_of(tasks: Mapping[str, int]) -> int:
    """Number of tasks with a result, from tasks by outcome: the scheduler got so many, also of what was lost before."""
    return tasks.get(Outcome.SUCCEEDED, 0) + tasks.get(Outcome.RECOMPUTED, 0)


class Availability(StrEnum):
    """Readiness of a worker for new tasks; free slots of one that takes none are named after it."""

    RUNNING = "running"
    PAUSED = "paused"
    RETIRING = "retiring"


class Used(NamedTuple):
    """Time of a task's thread so far, in ns; GPU and libraries exclude CPU time, ``spill`` is outside of the thread."""

    cpu: int = 0
    wall: int = 0
    gpu: int = 0
    library: int = 0
    spill: int = 0

    @property
    def split(self) -> tuple[int, int, int, int, int, int]:
        """The parts by :data:`ACTIVE_BUCKETS`, without overhead."""
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
    tasks: Mapping[str, int]
    #: Activities of held slots so far, finalized or not, by :data:`ACTIVE_BUCKETS`; ``spill`` includes free slots.
    #: Monotone; with the free slots' other buckets it sums to nthreads * elapsed without a running term, in ns.
    active: Mapping[str, int]
    #: Parts of ``running`` by prefix: nanoseconds, and slots held now.
    holding: Mapping[str, Sequence[int]] = field(default_factory=dict)
    #: Parts of ``recomputed`` by the mark of the worker that lost the results: nanoseconds, and tasks.
    recomputed: Mapping[str, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WindowBalance:
    """The accounts of one window: free + rows == nthreads * elapsed, in ns."""

    nthreads: int
    elapsed: int
    free: Mapping[str, int]
    #: Nanoseconds by (span, prefix): a value for each of :data:`TASK_BUCKETS`, then ``running``.
    rows: Mapping[tuple[str, str], Sequence[int]]
    tasks: Mapping[str, int]
