from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.buckets import (
    BUCKET_DESCRIPTIONS,
    CAUSE_DESCRIPTIONS,
    CAUSE_NAMES,
    CAUSES,
    FINALIZED,
    GOOD,
    HELD,
    UNKNOWN,
    Breakdown,
    Bucket,
    cause_name,
    causes_of,
    combine,
    fit_causes,
    fit_known_causes,
    named_causes,
)
from tests.strategies import breakdowns, nanoseconds


def test_running_is_the_only_bucket_that_is_not_settled():
    assert set(Bucket) - set(FINALIZED) == {Bucket.RUNNING}
    assert set(GOOD) < set(HELD)


def test_every_bucket_is_described():
    assert list(BUCKET_DESCRIPTIONS) == list(Bucket)
    assert all(len(text) <= 78 for text in BUCKET_DESCRIPTIONS.values())


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


rows = st.dictionaries(st.sampled_from(CAUSE_NAMES), nanoseconds)


def test_every_cause_has_a_line_of_description():
    assert {bucket: [*lines] for bucket, lines in CAUSE_DESCRIPTIONS.items()} == {
        b: [*row] for b, row in CAUSES.items()
    }


def test_every_bucket_with_causes_ends_with_the_unknown():
    assert {causes[-1] for causes in CAUSES.values()} == {UNKNOWN}


@given(st.sampled_from(list(CAUSES)), rows)
def test_what_is_taken_from_under_its_names_can_be_put_back(bucket, row):
    bare = causes_of(row, bucket)
    assert named_causes(bare, bucket) == {cause_name(bucket, cause): ns for cause, ns in bare.items()}
    assert causes_of(named_causes(bare, bucket), bucket) == bare


@given(st.sampled_from(list(CAUSES)), rows, nanoseconds)
def test_causes_fit_their_bucket_to_the_nanosecond(bucket, row, ns):
    found = fit_causes(causes_of(row, bucket), bucket, ns)
    assert sum(found.values()) == ns
    assert found.keys() <= {cause_name(bucket, cause) for cause in CAUSES[bucket]}


@given(st.sampled_from(list(CAUSES)), rows, nanoseconds)
def test_what_is_not_known_is_never_given_to_a_cause(bucket, row, ns):
    known = causes_of(row, bucket)
    found = causes_of(fit_causes(known, bucket, ns), bucket)
    assert all(found.get(cause, 0) <= known.get(cause, 0) for cause in CAUSES[bucket] if cause != UNKNOWN)


def test_where_more_is_known_than_the_bucket_holds_each_cause_is_scaled_down():
    assert fit_causes({"gil": 30, "sleep": 10}, Bucket.THREAD_NONCPU, 20) == {
        "thread-noncpu/gil": 15,
        "thread-noncpu/sleep": 5,
    }


@given(rows, st.dictionaries(st.sampled_from([*map(str, CAUSES), "thread-cpu"]), nanoseconds))
def test_the_causes_of_a_bucket_add_up_to_it_or_are_none(weights, buckets):
    found = fit_known_causes(weights, buckets)
    for bucket in CAUSES:
        of_bucket = causes_of(found, bucket)
        assert sum(of_bucket.values()) == buckets.get(bucket, 0) or not of_bucket


def test_a_bucket_of_which_nothing_is_known_has_no_causes_here_unless_it_has_elsewhere():
    buckets = {"thread-noncpu": 7, "idle": 5, "overhead": 3}
    weights = {"idle/graph": 2}
    assert fit_known_causes(weights, buckets) == {"idle/graph": 2, "idle/unknown": 3}
    assert fit_known_causes(weights, buckets, {Bucket.OVERHEAD}) == {
        "overhead/unknown": 3,
        "idle/graph": 2,
        "idle/unknown": 3,
    }


@pytest.mark.parametrize("bucket", [Bucket.THREAD_CPU, Bucket.SPILL])
def test_a_bucket_without_causes_has_none(bucket):
    with pytest.raises(KeyError):
        fit_causes({}, bucket, 1)
