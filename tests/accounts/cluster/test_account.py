import sys
import threading

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from dask_efficiency.accounts.cluster.account import MAX_PENDING, NamedSums, Totals, between
from dask_efficiency.accounts.rows import OTHER
from dask_efficiency.accounts.worker.balance import FREE_BUCKETS, TASK_BUCKETS
from tests.strategies import standings

WIDTH = len(TASK_BUCKETS)
MAX_PREFIXES = 3


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["a", "b", "c", "d", "e", OTHER]),
            st.lists(st.sampled_from([0, 1, 1 << 40, 1 << 59, 1 << 62]), min_size=WIDTH, max_size=WIDTH),
            max_size=4,
        ),
        max_size=8,
    )
)
@example([dict.fromkeys([OTHER, "a", "b"], [1] * WIDTH), dict.fromkeys("cd", [1] * WIDTH)])
def test_sums_are_exact_however_large_and_later_prefixes_share_one(added):
    totals = NamedSums(MAX_PREFIXES, WIDTH)
    expected: dict[str, list[int]] = {}
    for rows in added:
        places = totals.places(list(rows))
        most = max((sum(row[i] for row in rows.values()) for i in range(WIDTH)), default=0)
        totals.add(places, np.array(list(rows.values()), np.int64).reshape(len(rows), WIDTH), most=most)
        for prefix, row in rows.items():
            name = prefix if prefix in expected or len(expected) < MAX_PREFIXES else OTHER
            expected[name] = [a + b for a, b in zip(expected.get(name, [0] * WIDTH), row, strict=True)]
    assert totals.by_name() == {prefix: tuple(row) for prefix, row in expected.items()}
    assert len(totals.by_name()) <= MAX_PREFIXES + 1


def test_sums_may_be_beyond_64_bits():
    totals = NamedSums(MAX_PREFIXES, WIDTH)
    for _ in range(10):
        totals.add(totals.places(["a"]), np.full((1, WIDTH), MAX_PENDING - 1), most=MAX_PENDING - 1)
    assert totals.by_name() == {"a": (10 * (MAX_PENDING - 1),) * WIDTH}


def test_an_exporters_thread_reads_sums_while_they_grow():
    totals, over, faults = NamedSums(1_000, WIDTH), threading.Event(), []

    def read() -> None:
        while not over.is_set():
            try:
                totals.by_name()
            except Exception as fault:
                faults.append(fault)

    interval, reader = sys.getswitchinterval(), threading.Thread(target=read)
    sys.setswitchinterval(1e-6)
    reader.start()
    try:
        for i in range(3_000):
            totals.add(totals.places(["a", f"b{i % 50}"]), np.ones((2, WIDTH), np.int64), most=1)
    finally:
        over.set()
        reader.join()
        sys.setswitchinterval(interval)
    assert totals.by_name() == {"a": (3_000,) * WIDTH, **{f"b{i}": (60,) * WIDTH for i in range(50)}}
    assert faults == []


def test_time_of_before_is_taken_out_of_the_held_buckets_pro_rata():
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
