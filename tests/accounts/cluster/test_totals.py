from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.cluster.totals import Totals, WorkClock, between
from dask_efficiency.accounts.worker.balance import FREE_BUCKETS
from tests.strategies import standings


def test_what_settled_since_is_taken_out_of_the_held_buckets_pro_rata():
    # 60 ran before; of 100 that settled since, 90 of CPU and 30 of overhead are scaled to 60 together.
    then = Totals(0, {"idle": 10}, 60)
    now = Totals(100, {"idle": 30, "thread-cpu": 90, "overhead": 30}, 0)
    assert between(then, now) == {"idle": 20, "thread-cpu": 45, "overhead": 15}


@given(standings(), standings(), st.integers(0, 10**12), st.integers(0, 10**12))
def test_a_gain_is_never_negative_and_adds_up(before, gain, ran, running):
    finalized = {bucket: before.get(bucket, 0) + gain.get(bucket, 0) for bucket in before | gain}
    then, now = Totals(0, before, ran), Totals(1, finalized, running)
    gained = between(then, now)
    assert min(gained.values(), default=0) >= 0
    assert sum(gained.values()) == max(0, sum(gain.values()) + running - ran)
    held = {bucket for bucket in gain if bucket not in (*FREE_BUCKETS, "no-work")}
    if any(gained.get(bucket) for bucket in held):
        assert all(gained.get(bucket, 0) == ns for bucket, ns in gain.items() if bucket not in held)


def test_the_work_clock_counts_while_nothing_is_outstanding():
    clock = WorkClock(at=10)
    assert clock.without_work(at=15) == 5
    clock.set(True, at=20)
    clock.set(True, at=25)
    assert (clock.outstanding, clock.without_work(at=100)) == (True, 10)
    clock.set(False, at=100)
    clock.set(False, at=105)
    assert clock.without_work(at=107) == 17


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 100))))
def test_the_work_clock_never_runs_backwards(turns):
    clock, before, latest = WorkClock(at=0), 0, 0
    for outstanding, at in turns:
        clock.set(outstanding, at=at)
        latest = max(latest, at)
        now = clock.without_work(at=latest)
        assert before <= now <= latest
        before = now


def test_the_work_clock_knows_instants_of_late():
    clock = WorkClock(at=0)
    clock.set(True, at=10)
    clock.set(False, at=30)
    assert [clock.without_work(at=at) for at in (-5, 5, 10, 20, 30, 40)] == [0, 5, 10, 10, 10, 20]


def test_work_without_any_worker_is_told_from_no_work():
    clock = WorkClock(at=0)
    clock.set(True, at=10)  # work, and nobody there
    clock.set_workers(True, at=16)
    clock.set(False, at=20)
    clock.set_workers(False, at=25)
    clock.set(True, at=30)
    assert (clock.without_work(at=40), clock.without_workers(at=40)) == (20, 16)
    assert [clock.without_workers(at=at) for at in (5, 10, 13, 16, 29, 31)] == [0, 0, 3, 6, 6, 7]


@given(st.lists(st.tuples(st.sampled_from(["set", "set_workers"]), st.booleans(), st.integers(0, 100))))
def test_no_instant_counts_as_both(turns):
    clock, latest = WorkClock(at=0), 0
    for method, value, at in turns:
        getattr(clock, method)(value, at=at)
        latest = max(latest, at)
    for at in range(latest + 2):
        both = clock.without_work(at=at + 1) + clock.without_workers(at=at + 1)
        assert both - clock.without_work(at=at) - clock.without_workers(at=at) in (0, 1)
