"""Standings: a ledger's totals at one instant, and what was booked between two of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dask_efficiency.buckets import Bucket
from dask_efficiency.ledger import FREE_BUCKETS, apportion

_NOT_HELD = frozenset((*FREE_BUCKETS, Bucket.NO_WORK))


@dataclass(frozen=True, slots=True)
class Standing:
    """Totals at one instant: settled nanoseconds by bucket, and what is running."""

    at: int
    settled: Mapping[str, int]
    running: int
    #: Nanoseconds without outstanding work since the accounts began.
    without_work: int = 0
    #: The same with outstanding work and without any worker.
    without_workers: int = 0


def between(then: Standing, now: Standing) -> dict[str, int]:
    """What was booked between two standings: non-negative, with ``running``, and nothing lost.

    Where tasks that ran before ``then`` have settled since, their time of before is taken out of
    the held buckets, pro rata: an estimate, for where no window was open on the worker.
    """
    gained = {b: ns - then.settled.get(b, 0) for b, ns in now.settled.items() if ns != then.settled.get(b, 0)}
    running = now.running - then.running
    if running >= 0:
        return {**gained, str(Bucket.RUNNING): running}
    # What a departed worker seemed to run may turn out to have been free, when its last words come.
    for group in (gained.keys() - _NOT_HELD, gained.keys() & _NOT_HELD):
        buckets = sorted(group)
        whole = sum(gained[bucket] for bucket in buckets)
        scaled = apportion([gained[bucket] for bucket in buckets], max(0, whole + running))
        gained.update(zip(buckets, scaled, strict=True))
        running = min(0, whole + running)
    return gained
