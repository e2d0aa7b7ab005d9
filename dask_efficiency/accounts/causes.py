"""Causes: why threads did no useful work within a bucket, in rows that add up to the bucket exactly."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dask_efficiency.accounts.buckets import Bucket, scale_down

#: In place of a cause that nobody saw. It is never given to the others.
UNKNOWN = "unknown"

#: The causes of each bucket that has any, in the order in which they are shown.
CAUSES: dict[Bucket, tuple[str, ...]] = {
    Bucket.THREAD_NONCPU: (
        "gil",
        "core",
        "throttled",
        "stopped",
        "lock",
        "sleep",
        "file",
        "network",
        "child-process",
        UNKNOWN,
    ),
    Bucket.OVERHEAD: ("hand-over", "event-loop", "rescheduled", UNKNOWN),
    Bucket.IDLE: ("scheduler", "round-trips", "imbalance", "restricted", "graph", "parallelism", UNKNOWN),
}

#: What each means, in a line.
DESCRIPTIONS: dict[Bucket, dict[str, str]] = {
    Bucket.THREAD_NONCPU: {
        "gil": "waited for Python's global interpreter lock, which another thread of the worker held",
        "core": "ready to run, and every core that the worker may use was busy",
        "throttled": "ready to run, and the container's CPU limit was used up (an estimate)",
        "stopped": "its process stood still: it was stopped or frozen, or its machine was",
        "lock": "waited for a lock that is not the GIL: another thread's work, a queue, an event",
        "sleep": "slept, as time.sleep does",
        "file": "read or wrote files",
        "network": "waited for a socket",
        "child-process": "waited for a process that the task had started",
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


def name_of(bucket: str, cause: str) -> str:
    """The name of a cause in a row: ``"thread-noncpu/gil"``; without a cause, of the bucket as a whole."""
    return f"{bucket}/{cause}" if cause else str(bucket)


#: The names of each bucket's causes, in their order; to put one together takes half a microsecond.
NAMES_OF = {bucket: tuple(name_of(bucket, cause) for cause in causes) for bucket, causes in CAUSES.items()}

#: Every name that a row may have.
NAMES = tuple(name for names in NAMES_OF.values() for name in names)


def of_bucket(row: Mapping[str, int], bucket: Bucket) -> dict[str, int]:
    """Nanoseconds by bare cause of one bucket; those without time are left out."""
    return {cause: ns for cause, name in zip(CAUSES[bucket], NAMES_OF[bucket], strict=True) if (ns := row.get(name, 0))}


def under_names(row: Mapping[str, int], bucket: Bucket) -> dict[str, int]:
    """A row by bare cause, by :func:`name_of`; causes without time are left out."""
    return {name: ns for cause, name in zip(CAUSES[bucket], NAMES_OF[bucket], strict=True) if (ns := row.get(cause, 0))}


def fit(weights: Mapping[str, int], bucket: Bucket, ns: int) -> dict[str, int]:
    """A bucket's nanoseconds by cause.

    Parameters
    ----------
    weights
        Nanoseconds by bare cause, as far as they are known.
    bucket
        One of :data:`CAUSES`.
    ns
        What the bucket holds.

    Returns
    -------
    dict
        By :func:`name_of`; sums to ``ns``. Where more is known than the bucket holds, each is scaled down; where less,
        the rest is :data:`UNKNOWN`.
    """
    known = [max(0, weights.get(cause, 0)) for cause in CAUSES[bucket]]
    whole = sum(known)
    if whole > ns:
        known = scale_down(known, ns)
    else:
        known[-1] += ns - whole
    return {name: n for name, n in zip(NAMES_OF[bucket], known, strict=True) if n}


def fit_known(weights: Mapping[str, int], buckets: Mapping[str, int], known: Collection[Bucket] = ()) -> dict[str, int]:
    """As :func:`fit`, for each bucket of which anything is known.

    Parameters
    ----------
    weights
        Nanoseconds by :func:`name_of`.
    buckets
        Nanoseconds by bucket.
    known
        Buckets of which something is known elsewhere: here, too, all of them is told, be it as :data:`UNKNOWN`.
    """
    found: dict[str, int] = {}
    for bucket in CAUSES:
        causes = of_bucket(weights, bucket)
        if causes or bucket in known:
            found.update(fit(causes, bucket, buckets.get(bucket, 0)))
    return found
