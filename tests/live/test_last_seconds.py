from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dask_efficiency.accounts.buckets import UNKNOWN, Bucket
from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.facts import Facts
from dask_efficiency.accounts.rows import OTHER
from dask_efficiency.accounts.worker.balance import TASK_BUCKETS
from dask_efficiency.live.last_seconds import (
    CauseShare,
    Details,
    LastSeconds,
    causes_text,
    last_findings,
    moved_text,
    not_sampled_text,
)
from dask_efficiency.plugin.names import ALL_WORKERS
from dask_efficiency.plugin.scheduler.accounts import Moment
from dask_efficiency.report.findings import in_a_line
from tests.live.bokeh.meter import SECOND


def last_seconds(did: Mapping[str, int], causes: Mapping[str, int] | None = None) -> LastSeconds:
    nobody = Details(0)
    facts = Facts.of_views({ALL_WORKERS: did}, causes={ALL_WORKERS: causes or {}})
    return LastSeconds(seconds=9.0, nthreads=4, facts=facts, then=nobody, now=nobody)


def test_a_line_has_the_useful_share_and_the_largest_loss() -> None:
    last = last_seconds({"thread-cpu": 6 * SECOND, "idle": 3 * SECOND, "spill": SECOND, "no-work": 50 * SECOND})
    assert in_a_line(last.report) == "60 % efficient; Threads idle: 3.0 s of thread time"


WAITING, IDLE = Bucket.THREAD_NONCPU, Bucket.IDLE


def test_shares_are_of_the_time_with_work_the_largest_first_and_the_unknown_last() -> None:
    causes = {"thread-noncpu/unknown": 40, "thread-noncpu/lock": 5, "thread-noncpu/gil": 15, "idle/unknown": 40}
    last = last_seconds({"thread-noncpu": 60, "idle": 40, "no-work": 900}, causes)
    expected = {"gil": 0.15, "lock": 0.05, UNKNOWN: 0.4}
    assert last.cause_shares == {WAITING: tuple(CauseShare(WAITING, *one) for one in expected.items())}
    assert causes_text(last.cause_shares[WAITING]) == "gil 15 %, lock 5.0 %, unknown 40 %"
    assert last_seconds({"no-work": 100}).cause_shares == {}


def test_the_number_of_workers_without_samples_is_given_with_the_reason() -> None:
    assert not_sampled_text({}) == ""
    assert not_sampled_text({"a": "no\n/proc"}) == "Threads of 1 worker are not sampled: no\\n/proc"
    assert not_sampled_text({"a": "x", "b": "y"}) == "Threads of 2 workers are not sampled"


def test_data_that_moved_is_given_by_way_in_between_and_in_all() -> None:
    nothing = last_seconds({})
    assert moved_text(nothing) == ""
    amounts = {"sent/bytes": 17, "sent/count": 1, "made/bytes": 5 * 2**20, "made/count": 3, "shuffled/count": 2}
    first = replace(nothing, now=Details(0, amounts=amounts | {"spilled-uncompressed/bytes": 7}))
    assert moved_text(first) == "Data moved: made 5.0 MiB, sent 17 B"
    then = Details(0, amounts={"sent/bytes": 17, "made/bytes": 2**20})
    assert moved_text(replace(first, then=then)) == "Data moved (in all): made 4.0 MiB (5.0 MiB), sent 0 B (17 B)"


Seconds = Mapping[str, float]


class Settled(ClusterLedger):
    """A cluster whose tasks of each prefix had settled this."""

    def __init__(self, prefixes: Mapping[str, Seconds]) -> None:
        super().__init__(at=0)
        self._settled = prefixes

    def finalized_by_prefix(self) -> dict[str, tuple[int, ...]]:
        return {prefix: row(seconds) for prefix, seconds in self._settled.items()}


def row(seconds: Seconds) -> tuple[int, ...]:
    return tuple(round(seconds.get(bucket, 0) * SECOND) for bucket in TASK_BUCKETS)


NOTHING: Mapping[str, Any] = {}


def found(
    did: Seconds, causes: Seconds = NOTHING, *, prefixes: Mapping[str, Seconds] = NOTHING, before: Any = NOTHING
) -> dict[str, tuple[float, str]]:
    """By kind, what could be saved and the prefix, where two threads did this in the last hundred seconds."""
    then = {prefix: row(seconds) for prefix, seconds in before.items()}
    now, why = ({name: round(1e9 * seconds) for name, seconds in of.items()} for of in (did, causes))
    polls = [Moment(0, dict.fromkeys(now, 0), 2, {}, then), Moment(100 * SECOND, now, 2, why)]
    findings = last_findings(Settled(prefixes), polls)
    return {one.kind: (one.saves_seconds or 0.0, prefix) for one, prefix in findings}


def test_the_time_of_all_threads_with_work_may_be_saved() -> None:
    all_with_work = {Bucket.THREAD_CPU: 150, Bucket.SPILL: 40, Bucket.IDLE: 10}
    assert found(all_with_work) == {"spill": (20.0, ""), "idle": (5.0, "")}
    # Two seconds are less than 3 % of the hundred, and more of the fifty in which there was work.
    assert found({Bucket.THREAD_CPU: 96, Bucket.IDLE: 4, Bucket.NO_WORK: 100}) == {"idle": (2.0, "")}
    assert found({Bucket.NO_WORK: 200}) == {}
    assert last_findings(ClusterLedger(at=0), [Moment(0, {}, 2)]) == []
    assert last_findings(ClusterLedger(at=0), []) == []


def test_a_cause_whose_saving_is_not_known_is_left_out() -> None:
    did = {Bucket.THREAD_CPU: 100, Bucket.THREAD_NONCPU: 100}
    assert found(did) == {}
    assert found(did, {"thread-noncpu/gil": 100}) == {"thread-noncpu/gil": (50.0, "")}


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
