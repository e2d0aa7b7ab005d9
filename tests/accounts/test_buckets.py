from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.buckets import DESCRIPTIONS, FINALIZED, GOOD, HELD, Breakdown, Bucket, combine
from tests.strategies import breakdowns


def test_running_is_the_only_bucket_that_is_not_settled():
    assert set(Bucket) - set(FINALIZED) == {Bucket.RUNNING}
    assert set(GOOD) < set(HELD)


def test_every_bucket_is_described():
    assert list(DESCRIPTIONS) == list(Bucket)
    assert all(len(text) <= 78 for text in DESCRIPTIONS.values())


def test_a_breakdown_reads_in_seconds_and_knows_absent_buckets():
    breakdown = Breakdown({"thread-cpu": 3_000_000_000, "idle": 1_000_000_000, "spill": 0})
    assert breakdown["thread-cpu"] == 3.0
    assert breakdown["spill"] == 0.0
    assert list(breakdown) == ["thread-cpu", "idle"]
    assert len(breakdown) == 2
    assert "spill" not in breakdown
    assert "idle" in breakdown
    assert breakdown.share("idle") == 0.25
    assert breakdown.ns("thread-cpu", "idle", "spill") == 4_000_000_000 == breakdown.total_ns


def test_an_empty_breakdown_has_no_shares():
    assert Breakdown().share("idle") == 0.0
    assert Breakdown().total == 0.0
    assert Breakdown() == Breakdown({"idle": 0})


def test_iteration_follows_the_order_of_the_buckets_not_of_the_arguments():
    assert list(Breakdown({"running": 1, "idle": 1, "thread-cpu": 1})) == ["thread-cpu", "idle", "running"]


@pytest.mark.parametrize("value", [-1, 1.0, True, float("nan"), "1", None])
def test_a_value_that_is_no_whole_number_of_nanoseconds_is_refused(value):
    with pytest.raises(ValueError, match="'idle' holds"):
        Breakdown({"idle": value})


def test_an_unknown_bucket_is_refused_by_name():
    with pytest.raises(KeyError, match="coffee"):
        Breakdown({"coffee": 1})
    with pytest.raises(KeyError, match="coffee"):
        Breakdown()["coffee"]
    assert Breakdown().get("coffee") is None


@given(st.lists(breakdowns(), max_size=5))
def test_combining_keeps_every_nanosecond_of_every_bucket(parts):
    whole = combine(parts)
    assert whole.total_ns == sum(part.total_ns for part in parts)
    for bucket in Bucket:
        assert whole.ns(bucket) == sum(part.ns(bucket) for part in parts)


@given(breakdowns(), breakdowns())
def test_addition_is_combining(left, right):
    assert left + right == combine((left, right)) == right + left
    assert left + Breakdown() == left


@given(breakdowns())
def test_a_breakdown_survives_plain_data_and_pickle(breakdown):
    for copy in (Breakdown(breakdown.to_nanoseconds()), pickle.loads(pickle.dumps(breakdown))):
        assert copy == breakdown
        assert hash(copy) == hash(breakdown)


@given(breakdowns())
def test_shares_add_up_to_one(breakdown):
    shares = [breakdown.share(bucket) for bucket in breakdown]
    assert all(0 < share <= 1 for share in shares)
    assert sum(shares) == (pytest.approx(1) if breakdown.total_ns else 0)


@given(breakdowns(), breakdowns())
def test_equality_is_of_every_bucket(left, right):
    assert (left == right) is (left.to_nanoseconds() == right.to_nanoseconds())
    assert left != left.to_nanoseconds()
