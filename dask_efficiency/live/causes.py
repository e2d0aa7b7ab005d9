"""Why threads did nothing useful in the last seconds: causes as shares of their time, and the largest as a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dask_efficiency.accounts.buckets import Breakdown, Bucket
from dask_efficiency.accounts.causes import CAUSES, UNKNOWN, fit_known, of_bucket
from dask_efficiency.show.figures import format_share, harmless, shorten

#: A smaller share of the threads' time is noise, or no loss worth a sentence.
MIN_SHARE = 0.05

#: A smaller share has no place in a list.
MIN_LISTED_SHARE = 0.005

#: What threads do for each cause that is known.
SENTENCES: dict[Bucket, dict[str, str]] = {
    Bucket.THREAD_NONCPU: {
        "gil": "Threads wait for the GIL",
        "core": "Threads wait for a core",
        "throttled": "Threads wait for the CPU limit of their container",
        "stopped": "Processes of workers stand still",
        "lock": "Threads wait for locks",
        "sleep": "Threads sleep within tasks",
        "file": "Threads wait for files",
        "network": "Threads wait for the network",
        "child-process": "Threads wait for processes that tasks started",
    },
    Bucket.OVERHEAD: {
        "hand-over": "Tasks wait to begin in their threads",
        "event-loop": "Tasks that are done wait for their worker's event loop",
        "rescheduled": "Tasks of a shuffle begin on other workers than their data",
    },
    Bucket.IDLE: {
        "scheduler": "Threads wait for the scheduler",
        "round-trips": "Threads wait for round trips: the scheduler holds ready tasks back",
        "imbalance": "Threads are idle while tasks wait at other workers",
        "restricted": "Threads are idle while tasks may run on other workers only",
        "graph": "Threads wait while the scheduler takes in a graph",
        "parallelism": "Threads find no task that is ready",
    },
}


@dataclass(frozen=True, slots=True)
class CauseShare:
    """One cause, and its share of the thread time while there was work, in [0, 1]."""

    bucket: Bucket
    cause: str
    share: float


def causes_since(then: Mapping[str, int], now: Mapping[str, int], did: Breakdown) -> dict[str, int]:
    """Why threads did nothing useful from one instant to a later one, from their causes at both.

    Parameters
    ----------
    then, now
        Nanoseconds by :data:`~dask_efficiency.accounts.causes.NAMES`; they only grow.
    did
        What the threads did meanwhile.

    Returns
    -------
    dict
        Nanoseconds by :data:`~dask_efficiency.accounts.causes.NAMES`. Those of a bucket add up to it, or are none
        where nobody looked.
    """
    gained = {name: ns - then.get(name, 0) for name, ns in now.items()}
    return fit_known({name: ns for name, ns in gained.items() if ns > 0}, did.to_nanoseconds())


def cause_shares(did: Breakdown, causes: Mapping[str, int]) -> dict[Bucket, tuple[CauseShare, ...]]:
    """The causes of each bucket of which any is known, the largest first and what is not known last."""
    with_work = did.total_ns - did.ns(Bucket.NO_WORK)
    found = {}
    for bucket in CAUSES:
        row = of_bucket(causes, bucket)
        ranked = sorted(row, key=lambda cause: (cause == UNKNOWN, -row[cause]))
        if row.keys() - {UNKNOWN}:
            found[bucket] = tuple(CauseShare(bucket, cause, row[cause] / with_work) for cause in ranked)
    return found


def largest_cause(did: Breakdown, causes: Mapping[str, int]) -> CauseShare | None:
    """The known cause that took most time; None where none took :data:`MIN_SHARE` of it."""
    shares = [one for row in cause_shares(did, causes).values() for one in row if one.cause != UNKNOWN]
    largest = max(shares, key=lambda one: one.share, default=None)
    return largest if largest is not None and largest.share >= MIN_SHARE else None


def listed(row: tuple[CauseShare, ...]) -> str:
    """Causes and their shares in a line: ``"gil 30 %, core 5 %"``; empty where all are small."""
    return ", ".join(f"{one.cause} {format_share(one.share)}" for one in row if one.share >= MIN_LISTED_SHARE)


def not_sampled(workers: Mapping[str, str]) -> str:
    """Of how many workers nobody knows what their threads wait for, and why; empty where all are sampled."""
    if not workers:
        return ""
    reasons = set(workers.values())
    why = f": {shorten(harmless(reasons.pop()), 80)}" if len(reasons) == 1 else ""
    which = "1 worker" if len(workers) == 1 else f"{len(workers)} workers"
    return f"What threads of {which} wait for is not known{why}"
