from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.ledger import FREE_BUCKETS
from dask_efficiency.totals import Totals, between
from tests.strategies import standings


def test_what_settled_since_is_taken_out_of_the_held_buckets_pro_rata():
    # 60 ran before; of 100 that settled since, 90 of CPU and 30 of overhead are scaled to 60 together.
    then = Totals(0, {"idle": 10}, 60)
    now = Totals(100, {"idle": 30, "thread-cpu": 90, "overhead": 30}, 0)
    assert between(then, now) == {"idle": 20, "thread-cpu": 45, "overhead": 15}


@given(standings(), standings(), st.integers(0, 10**12), st.integers(0, 10**12))
def test_a_gain_is_never_negative_and_adds_up(before, gain, ran, running):
    settled = {bucket: before.get(bucket, 0) + gain.get(bucket, 0) for bucket in before | gain}
    then, now = Totals(0, before, ran), Totals(1, settled, running)
    gained = between(then, now)
    assert min(gained.values(), default=0) >= 0
    assert sum(gained.values()) == max(0, sum(gain.values()) + running - ran)
    held = {bucket for bucket in gain if bucket not in (*FREE_BUCKETS, "no-work")}
    if any(gained.get(bucket) for bucket in held):
        assert all(gained.get(bucket, 0) == ns for bucket, ns in gain.items() if bucket not in held)
