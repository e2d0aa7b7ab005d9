from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.buckets import FINALIZED
from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.accounts.cluster.account import ACTIVITIES
from dask_efficiency.accounts.cluster.presence import (
    SLACK_NS,
    Presence,
    WorkerStay,
    attendance,
    check_snapshot,
    is_stale,
)
from dask_efficiency.accounts.wire.heartbeats import Received, encode, read
from dask_efficiency.accounts.wire.snapshots import Snapshot
from dask_efficiency.accounts.worker.ledger import Ledger
from tests.payloads import account_of

SPANS = st.tuples(st.integers(0, 20), st.none() | st.integers(1, 20), st.integers(1, 4))
STAYS = st.lists(SPANS.map(lambda s: WorkerStay(s[0], None if s[1] is None else s[0] + s[1], s[2])), max_size=8)


def test_those_that_replace_one_another_are_not_there_at_a_time() -> None:
    stays = [WorkerStay(0, 10, 2), WorkerStay(10, 20, 4), WorkerStay(5, None, 1)]
    assert attendance(stays, start=0, stop=30) == {"workers": 3, "most_workers": 2, "most_threads": 5}


def test_who_left_before_or_joins_after_is_not_counted() -> None:
    stays = [WorkerStay(0, 10, 1), WorkerStay(5, 12, 2), WorkerStay(20, None, 4)]
    assert attendance(stays, start=10, stop=20) == {"workers": 1, "most_workers": 1, "most_threads": 2}
    assert attendance([], start=0, stop=1) == {"workers": 0, "most_workers": 0, "most_threads": 0}


@given(STAYS, st.integers(0, 20), st.integers(1, 20))
def test_the_most_at_a_time_is_that_of_some_instant(stays: list[WorkerStay], start: int, length: int) -> None:
    stop = start + length
    at = [[s for s in stays if s.joined <= i and (s.left is None or s.left > i)] for i in range(start, stop)]
    found = attendance(stays, start=start, stop=stop)
    assert found["workers"] == len({id(stay) for there in at for stay in there})
    assert found["most_workers"] == max(map(len, at))
    assert found["most_threads"] == max(sum(stay.nthreads for stay in there) for there in at)


SECOND = 1_000_000_000


def idle(
    elapsed: int,
    *,
    seq: int = 1,
    incarnation: str = "a",
    nthreads: int = 2,
    tasks: dict[str, int] | None = None,
    last: Received | None = None,
) -> Received:
    """The snapshot of a worker that did nothing for ``elapsed`` nanoseconds, read after another."""
    balance = replace(Ledger(nthreads, at=0).balance(at=elapsed), tasks=tasks or {})
    found = read(encode(Snapshot(incarnation, seq, balance)), last)
    assert isinstance(found, Received)
    return found


def worker(received: Received | None = None, **recorded: int) -> Presence:
    """A worker of two threads that joined at 0."""
    return Presence("tcp://a", "alice", 2, 0, account_of({"finalized": recorded}), received=received)


def test_what_a_slot_can_be_doing_is_a_bucket_that_only_grows() -> None:
    assert set(ACTIVITIES) == set(map(str, FINALIZED)) - {"failed", "cancelled", "recomputed"}


@given(st.integers(0, 5), st.integers(0, 5), st.sampled_from(["a", "b"]))
def test_a_snapshot_is_stale_if_its_ledger_has_sent_a_later_one(seq: int, last: int, incarnation: str) -> None:
    assert is_stale(incarnation, seq, idle(10, seq=last)) is (incarnation == "a" and seq <= last)
    assert not is_stale(incarnation, seq, None)


@given(st.integers(0, 100 * SECOND), st.integers(0, 100 * SECOND))
def test_time_only_grows_within_a_ledger(before: int, now: int) -> None:
    last = idle(before)
    if now >= before:
        check_snapshot(idle(now, seq=2, last=last), worker(last), 200 * SECOND)
    else:
        with pytest.raises(RefusedPayload, match=f"elapsed shrank from {before} to {now} ns"):
            idle(now, seq=2, last=last)


def test_no_worker_can_have_metered_much_more_than_the_time_since_it_joined() -> None:
    age = 100 * SECOND
    most = age + SLACK_NS + age // 100
    check_snapshot(idle(most), worker(), age)
    with pytest.raises(RefusedPayload, match=r"expected at most the 100\.000 s since it joined"):
        check_snapshot(idle(most + 1), worker(), age)
    with pytest.raises(RefusedPayload, match="nthreads is 3; expected 2"):
        check_snapshot(idle(most, nthreads=3), worker(), age)


def test_a_second_ledger_can_only_have_what_the_first_one_left() -> None:
    age = 100 * SECOND
    presence = worker(idle(60 * SECOND), idle=120 * SECOND)
    check_snapshot(idle(40 * SECOND, incarnation="b"), presence, age)
    with pytest.raises(RefusedPayload, match=r"expected 54\.000 s less, for the rest is recorded already"):
        check_snapshot(idle(age, incarnation="b"), presence, age)


def test_tasks_whose_results_came_before_a_snapshot_are_not_reported_yet() -> None:
    presence = worker(idle(10, tasks={"succeeded": 3, "failed": 1}))
    presence.finished = 5
    assert presence.unreported == 2
    presence.finished = 2
    assert presence.unreported == 0
