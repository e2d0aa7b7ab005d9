"""Buckets and causes: where a thread-second can go and why, in sums that add up exactly."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Self

from dask_efficiency.accounts.rows import add, cap


class Bucket(StrEnum):
    """One place where thread time goes; every thread is in exactly one at any instant."""

    meaning: str

    THREAD_CPU = "thread-cpu", "CPU time of tasks that succeeded for the first time"
    GPU = "gpu", "tasks that stood in a CUDA call while a kernel of their own ran"
    LIBRARY_THREADS = "library-threads", "tasks that waited while threads of a library (Arrow, BLAS, OpenMP) computed"
    THREAD_NONCPU = "thread-noncpu", "inside tasks, but not on the CPU: the GIL, cores, locks, sleep, I/O, GPU waits"
    SPILL = "spill", "waiting for results to be written to disk or read back"
    OVERHEAD = "overhead", "the rest of the time tasks held a thread: event loop, hand-over"
    FAILED = "failed", "held by tasks that erred, earlier tries included"
    CANCELLED = "cancelled", "held by tasks that were cancelled or cut off"
    RECOMPUTED = "recomputed", "held by tasks whose result had been in memory and was lost"
    PAUSED = "paused", "free threads of workers paused for lack of memory, where tasks could run"
    RETIRING = "retiring", "free threads of workers that were closing gracefully"
    WAITING_ON_DATA = "waiting-on-data", "free threads whose next task waited for a transfer"
    CONSTRAINED = "constrained", "free threads whose next task waited for a resource"
    IDLE = "idle", "free threads while there was work elsewhere or yet to be scheduled"
    NO_WORK = "no-work", "free threads while nothing was outstanding: the client was thinking"
    LOST_WORKER = "lost-worker", "from a worker's last report to the moment it was found dead"
    UNMEASURED = "unmeasured", "threads that nobody metered, for a reason that is given"
    RUNNING = "running", "held by tasks that have not ended, so that nothing is known of them yet"

    def __new__(cls, value: str, meaning: str = "") -> Self:  # noqa: D102
        member = str.__new__(cls, value)
        member._value_, member.meaning = value, meaning
        return member


BUCKET_DESCRIPTIONS = {bucket: bucket.meaning for bucket in Bucket}
#: Time that produced a result for the first time.
GOOD = (Bucket.THREAD_CPU, Bucket.GPU, Bucket.LIBRARY_THREADS)
#: Time in which a task held a slot, whatever its outcome. ``running`` is the part that is not finalized.
HELD = (
    *(*GOOD, Bucket.THREAD_NONCPU, Bucket.SPILL, Bucket.OVERHEAD),
    *(Bucket.FAILED, Bucket.CANCELLED, Bucket.RECOMPUTED, Bucket.RUNNING),
)
#: Buckets that only grow; ``running`` is the one gauge.
FINALIZED = tuple(bucket for bucket in Bucket if bucket is not Bucket.RUNNING)


class Breakdown(Mapping[str, float]):
    """Seconds by bucket, kept as integer nanoseconds so that sums are exact.

    Parameters
    ----------
    nanoseconds
        Nanoseconds by bucket name. Zeros are dropped.

    Raises
    ------
    KeyError
        If a name is not a :class:`Bucket`.
    ValueError
        If a value is negative or not an integer.

    Notes
    -----
    ``breakdown["spill"]`` is in seconds and 0.0 for an absent bucket; iteration gives only
    the buckets that hold time, in the order of :class:`Bucket`.

    Examples
    --------
    >>> b = Breakdown({"thread-cpu": 3_000_000_000, "idle": 1_000_000_000})
    >>> b["thread-cpu"], b["spill"], b.total, b.share("idle")
    (3.0, 0.0, 4.0, 0.25)
    """

    __slots__ = ("_nanoseconds",)

    def __init__(self, nanoseconds: Mapping[str, int] | None = None) -> None:
        given = dict(nanoseconds or {})
        for name, value in given.items():
            _known(name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ValueError(f"{name!r} holds {value!r}; expected a whole, non-negative number of nanoseconds")
        self._nanoseconds = {bucket: given[bucket] for bucket in Bucket if given.get(bucket)}

    def __getitem__(self, bucket: str) -> float:
        return self.ns(bucket) / 1e9

    def __iter__(self) -> Iterator[str]:
        return iter(str(bucket) for bucket in self._nanoseconds)

    def __len__(self) -> int:
        return len(self._nanoseconds)

    def __contains__(self, bucket: object) -> bool:
        return bucket in self._nanoseconds

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Breakdown):
            return NotImplemented
        return self._nanoseconds == other._nanoseconds

    def __hash__(self) -> int:
        return hash(tuple(self._nanoseconds.items()))

    def __add__(self, other: Breakdown) -> Breakdown:
        return combine((self, other))

    def __reduce__(self) -> tuple[Any, ...]:
        return Breakdown, (self.to_nanoseconds(),)

    def __repr__(self) -> str:
        inner = ", ".join(f"{bucket}={ns / 1e9:.3f}s" for bucket, ns in self._nanoseconds.items())
        return f"Breakdown({inner or 'empty'})"

    def ns(self, *buckets: str) -> int:
        """Nanoseconds in the named buckets."""
        return sum(self._nanoseconds.get(_known(bucket), 0) for bucket in buckets)

    @property
    def total_ns(self) -> int:
        """Nanoseconds in all buckets, ``running`` included."""
        return sum(self._nanoseconds.values())

    @property
    def total(self) -> float:
        """Seconds in all buckets, ``running`` included."""
        return self.total_ns / 1e9

    def share(self, bucket: str) -> float:
        """Share of the total in one bucket, in [0, 1]; 0.0 where there is no time at all."""
        total = self.total_ns
        return self.ns(bucket) / total if total else 0.0

    def to_nanoseconds(self) -> dict[str, int]:
        """Nanoseconds by bucket name, as plain data."""
        return {str(bucket): ns for bucket, ns in self._nanoseconds.items()}


def combine(breakdowns: Iterable[Breakdown]) -> Breakdown:
    """The sum of several breakdowns."""
    total: dict[str, int] = {}
    for breakdown in breakdowns:
        add(total, breakdown.to_nanoseconds())
    return Breakdown(total)


def _known(bucket: str) -> Bucket:
    try:
        return Bucket(bucket)
    except ValueError:
        raise KeyError(f"unknown bucket {bucket!r}; expected one of {[str(b) for b in Bucket]}") from None


#: Stands for a cause that was not observed; never divided among the others.
UNKNOWN = "unknown"
#: The causes of each bucket that has any, in the order in which they are shown, and their meanings.
CAUSE_DESCRIPTIONS: dict[Bucket, dict[str, str]] = {
    Bucket.THREAD_NONCPU: {
        "gil": "waited for Python's global interpreter lock, which another thread of the worker held",
        "core": "ready to run, and every core that the worker may use was busy",
        "throttled": "ready to run, and the container's CPU limit was used up (an estimate)",
        "stopped": "its process, or its whole machine, was stopped or frozen",
        "lock": "waited for a lock that is not the GIL: another thread's work, a queue, an event",
        "sleep": "slept, as time.sleep does",
        "file": "read or wrote files",
        "network": "waited for a socket",
        "child-process": "waited for a process that the task had started",
        "cluster": "waited for other tasks, or a lock, queue, event, variable or shuffle of Dask",
        UNKNOWN: "no sample showed why",
    },
    Bucket.OVERHEAD: {
        "hand-over": "from the slot's being taken to the task's first instruction in its thread",
        "event-loop": "the task was done, and the worker's event loop had yet to hear of it",
        "rescheduled": "a P2P shuffle stopped the task, to have it run on the worker that has its data",
        UNKNOWN: "no clock tells",
    },
    Bucket.IDLE: {
        "scheduler": "the scheduler was busy and had ready tasks, or a message was on its way",
        "round-trips": "the scheduler held ready tasks back, was not busy, and waited for results",
        "imbalance": "tasks waited at other workers beyond their threads",
        "restricted": "tasks may run on other workers only, or on none that is there",
        "graph": "the scheduler was taking in a graph",
        "parallelism": "nothing was ready anywhere: all waited for the tasks that ran",
        UNKNOWN: "nobody looked",
    },
}

#: The causes of each of these buckets, in that order.
CAUSES = {bucket: tuple(causes) for bucket, causes in CAUSE_DESCRIPTIONS.items()}


def cause_name(bucket: str, cause: str) -> str:
    """Name of a cause in a row, ``"thread-noncpu/gil"``; without a cause, the bucket's name."""
    return f"{bucket}/{cause}" if cause else str(bucket)


#: Name of each cause of each bucket.
_NAMES = {bucket: {cause: cause_name(bucket, cause) for cause in causes} for bucket, causes in CAUSES.items()}
#: All names that a row may have.
CAUSE_NAMES = tuple(name for names in _NAMES.values() for name in names.values())


def causes_of(row: Mapping[str, int], bucket: Bucket) -> dict[str, int]:
    """Nanoseconds of one bucket by bare cause; zeros are left out."""
    return {cause: ns for cause, name in _NAMES[bucket].items() if (ns := row.get(name, 0))}


def named_causes(row: Mapping[str, int], bucket: Bucket) -> dict[str, int]:
    """Convert a row by bare cause to one by :func:`cause_name`; zeros are left out."""
    return {name: ns for cause, name in _NAMES[bucket].items() if (ns := row.get(cause, 0))}


def fit_causes(weights: Mapping[str, int], bucket: Bucket, ns: int) -> dict[str, int]:
    """Divide a bucket's time by :func:`cause_name`: known weights, capped, and the rest :data:`UNKNOWN`."""
    known = cap({name: max(0, weights.get(cause, 0)) for cause, name in _NAMES[bucket].items()}, ns)
    known[_NAMES[bucket][UNKNOWN]] += ns - sum(known.values())
    return {name: n for name, n in known.items() if n}


def fit_known_causes(
    weights: Mapping[str, int], buckets: Mapping[str, int], known: Collection[Bucket] = ()
) -> dict[str, int]:
    """Fit the causes of each bucket that has known ones here, and of those in ``known``, that has them elsewhere."""
    found: dict[str, int] = {}
    for bucket in CAUSES:
        causes = causes_of(weights, bucket)
        if causes or bucket in known:
            found.update(fit_causes(causes, bucket, buckets.get(bucket, 0)))
    return found
