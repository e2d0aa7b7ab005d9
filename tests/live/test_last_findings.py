"""What costs a cluster most in the last minutes, and in which tasks."""

from __future__ import annotations

from collections.abc import Mapping

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.worker.balance import OTHER, TASK_BUCKETS
from dask_efficiency.live.last_findings import last_findings
from dask_efficiency.plugin.scheduler.accounts import Moment

SECOND = 1_000_000_000

Seconds = Mapping[str, float]


class Settled(ClusterLedger):
    """A cluster of which it is said what tasks of each prefix had settled."""

    def __init__(self, prefixes: Mapping[str, Seconds]) -> None:
        super().__init__(at=0)
        self._said = prefixes

    def finalized_by_prefix(self) -> dict[str, tuple[int, ...]]:
        """As it was said."""
        return {prefix: row(seconds) for prefix, seconds in self._said.items()}


def row(seconds: Seconds) -> tuple[int, ...]:
    return tuple(round(seconds.get(bucket, 0) * SECOND) for bucket in TASK_BUCKETS)


def found(
    did: Seconds,
    causes: Seconds | None = None,
    *,
    prefixes: Mapping[str, Seconds] | None = None,
    before: Mapping[str, Seconds] | None = None,
) -> dict[str, tuple[float, str]]:
    """By kind, what could be saved and the prefix, where two threads did this in the last hundred seconds."""
    then = {prefix: row(seconds) for prefix, seconds in (before or {}).items()}
    now = {bucket: round(1e9 * seconds) for bucket, seconds in did.items()}
    why = {name: round(1e9 * seconds) for name, seconds in (causes or {}).items()}
    polls = [Moment(0, dict.fromkeys(now, 0), 2, {}, then), Moment(100 * SECOND, now, 2, why)]
    told = last_findings(Settled(prefixes or {}), polls)
    return {one.kind: (one.saves_seconds or 0.0, prefix) for one, prefix in told}


def test_what_may_be_saved_is_the_time_of_all_threads() -> None:
    assert found({Bucket.THREAD_CPU: 150, Bucket.SPILL: 40, Bucket.IDLE: 10}) == {
        "spill": (20.0, ""),
        "idle": (5.0, ""),
    }


def test_time_without_work_costs_nobody_anything_and_is_no_part_of_the_wall_clock() -> None:
    """Two seconds are less than 3 % of the hundred, and more of the fifty in which there was work."""
    assert found({Bucket.THREAD_CPU: 96, Bucket.IDLE: 4, Bucket.NO_WORK: 100}) == {"idle": (2.0, "")}
    assert found({Bucket.NO_WORK: 200}) == {}


def test_a_cause_whose_saving_is_not_known_is_left_out() -> None:
    assert found({Bucket.THREAD_CPU: 100, Bucket.THREAD_NONCPU: 100}) == {}
    known = found({Bucket.THREAD_CPU: 100, Bucket.THREAD_NONCPU: 100}, {"thread-noncpu/gil": 100})
    assert known == {"thread-noncpu/gil": (50.0, "")}


def test_the_prefix_is_named_that_lost_more_than_half_since_the_window_began() -> None:
    did = {Bucket.THREAD_CPU: 140, Bucket.SPILL: 60}
    long_ago = {"load": {Bucket.SPILL: 900}, "sum": {}}
    now = {"load": {Bucket.SPILL: 929}, "sum": {Bucket.SPILL: 31}}
    assert found(did, prefixes=now, before=long_ago) == {"spill": (30.0, "sum")}
    even = {"load": {Bucket.SPILL: 930}, "sum": {Bucket.SPILL: 30}}
    assert found(did, prefixes=even, before=long_ago) == {"spill": (30.0, "")}
    assert found(did, prefixes={OTHER: {Bucket.SPILL: 60}}) == {"spill": (30.0, "")}


def test_of_a_cause_the_prefix_is_named_only_where_the_rest_of_its_bucket_is_too_little() -> None:
    did = {Bucket.THREAD_CPU: 100, Bucket.THREAD_NONCPU: 100}
    causes = {"thread-noncpu/gil": 60, "thread-noncpu/sleep": 40}
    both = {"load": {Bucket.THREAD_NONCPU: 75}, "sum": {Bucket.THREAD_NONCPU: 25}}
    assert found(did, causes, prefixes=both) == {
        "thread-noncpu/gil": (30.0, "load"),  # at least 35 of its 60 s
        "thread-noncpu/sleep": (20.0, ""),  # all 25 s of the other may be of these 40
    }


def test_of_one_poll_nothing_is_said() -> None:
    assert last_findings(ClusterLedger(at=0), [Moment(0, {}, 2)]) == []
    assert last_findings(ClusterLedger(at=0), []) == []
