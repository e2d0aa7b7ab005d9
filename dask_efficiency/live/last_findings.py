"""Findings of the last minutes: what costs a cluster most now, and in which tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.worker.balance import OTHER, TASK_BUCKETS
from dask_efficiency.live.bins import ThreadTotals, window_of
from dask_efficiency.live.last_seconds import LastSeconds
from dask_efficiency.report.findings import find
from dask_efficiency.show.finding import Finding

Rows = Mapping[str, Sequence[int]]


def last_findings(cluster: ClusterLedger, polls: Iterable[ThreadTotals]) -> list[tuple[Finding, str]]:
    """What fixing would save most of the last minutes, as far as that is known, each with the prefix of its tasks.

    The prefix is empty unless more than half of what was lost is in tasks of one. Of a cause only its bucket is known
    by prefix, so that takes a larger part of the bucket: all but half of the cause.
    """
    window = window_of(polls, width=1)
    if len(window) < 2:
        return []
    last = LastSeconds.of(cluster, window, then=None)
    then = next((poll.prefixes for poll in window if poll.prefixes is not None), None)
    now = {} if then is None else cluster.finalized_by_prefix()
    found = []
    for one in find(last.report):
        bucket, prefix = one.kind.partition("/")[0], ""
        if bucket in TASK_BUCKETS:
            rest = 1 - one.lost_seconds / last.did[bucket] / 2
            prefix = _prefix(then or {}, now, bucket, more_than=rest)
        if one.saves_seconds is not None:
            found.append((one, prefix))
    return found


def _prefix(then: Rows, now: Rows, bucket: str, *, more_than: float) -> str:
    """The prefix whose tasks have more than a share of what a bucket gained; empty where none has."""
    at, nothing = TASK_BUCKETS.index(bucket), (0,) * len(TASK_BUCKETS)
    gained = {prefix: row[at] - then.get(prefix, nothing)[at] for prefix, row in now.items()}
    most = max(gained, key=gained.__getitem__, default=OTHER)
    return most if most != OTHER and gained[most] > more_than * sum(gained.values()) else ""
