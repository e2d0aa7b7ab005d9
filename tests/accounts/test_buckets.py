import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.buckets import (
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


def test_each_bucket_has_a_short_meaning_and_all_but_running_are_finalized():
    assert set(Bucket) - set(FINALIZED) == {Bucket.RUNNING}
    assert set(GOOD) < set(HELD)
    assert all(0 < len(bucket.meaning) <= 78 for bucket in Bucket)
    assert {causes[-1] for causes in CAUSES.values()} == {UNKNOWN}


def test_a_breakdown_is_in_seconds_in_the_order_of_the_buckets_with_zero_for_absent_ones():
    breakdown = Breakdown({"idle": 1_000_000_000, "thread-cpu": 3_000_000_000, "spill": 0})
    assert (breakdown["thread-cpu"], breakdown["spill"], breakdown.share("idle")) == (3.0, 0.0, 0.25)
    assert (list(breakdown), len(breakdown)) == (["thread-cpu", "idle"], 2)
    assert ("idle" in breakdown, "spill" in breakdown) == (True, False)
    assert breakdown.ns("thread-cpu", "idle", "spill") == 4_000_000_000 == breakdown.total_ns
    assert Breakdown().share("idle") == Breakdown().total == 0.0
    assert Breakdown() == Breakdown({"idle": 0})


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


@given(st.lists(breakdowns(), max_size=5), breakdowns(), breakdowns())
def test_a_sum_keeps_every_nanosecond_of_every_bucket(parts, left, right):
    whole = combine(parts)
    assert whole.total_ns == sum(part.total_ns for part in parts)
    for bucket in Bucket:
        assert whole.ns(bucket) == sum(part.ns(bucket) for part in parts)
    assert left + right == combine((left, right)) == right + left
    assert left + Breakdown() == left
    assert (left == right) is (left.to_nanoseconds() == right.to_nanoseconds())
    assert left != left.to_nanoseconds()


@given(breakdowns())
def test_a_breakdown_survives_plain_data_and_pickle_and_its_shares_add_up_to_one(breakdown):
    for copy in (Breakdown(breakdown.to_nanoseconds()), pickle.loads(pickle.dumps(breakdown))):
        assert copy == breakdown
        assert hash(copy) == hash(breakdown)
    shares = [breakdown.share(bucket) for bucket in breakdown]
    assert all(0 < share <= 1 for share in shares)
    assert sum(shares) == (pytest.approx(1) if breakdown.total_ns else 0)


rows = st.dictionaries(st.sampled_from(CAUSE_NAMES), nanoseconds)


@given(st.sampled_from(list(CAUSES)), rows, nanoseconds)
def test_causes_fit_their_bucket_to_the_nanosecond_and_none_has_more_than_is_known(bucket, row, ns):
    known = causes_of(row, bucket)
    assert named_causes(known, bucket) == {cause_name(bucket, cause): n for cause, n in known.items()}
    assert causes_of(named_causes(known, bucket), bucket) == known
    found = fit_causes(known, bucket, ns)
    assert sum(found.values()) == ns
    assert found.keys() <= {cause_name(bucket, cause) for cause in CAUSES[bucket]}
    fitted = causes_of(found, bucket)
    assert all(fitted.get(cause, 0) <= known.get(cause, 0) for cause in CAUSES[bucket] if cause != UNKNOWN)


def test_where_more_is_known_than_the_bucket_holds_each_cause_is_scaled_down():
    found = fit_causes({"gil": 30, "sleep": 10}, Bucket.THREAD_NONCPU, 20)
    assert found == {"thread-noncpu/gil": 15, "thread-noncpu/sleep": 5}


@given(rows, st.dictionaries(st.sampled_from([*map(str, CAUSES), "thread-cpu"]), nanoseconds))
def test_the_causes_of_a_bucket_add_up_to_it_or_are_none(weights, buckets):
    found = fit_known_causes(weights, buckets)
    for bucket in CAUSES:
        of_bucket = causes_of(found, bucket)
        assert sum(of_bucket.values()) == buckets.get(bucket, 0) or not of_bucket


def test_a_bucket_without_known_causes_has_none_unless_they_are_known_elsewhere():
    buckets = {"thread-noncpu": 7, "idle": 5, "overhead": 3}
    idle = {"idle/graph": 2, "idle/unknown": 3}
    assert fit_known_causes({"idle/graph": 2}, buckets) == idle
    assert fit_known_causes({"idle/graph": 2}, buckets, {Bucket.OVERHEAD}) == {**idle, "overhead/unknown": 3}


@pytest.mark.parametrize("bucket", [Bucket.THREAD_CPU, Bucket.SPILL])
def test_a_bucket_without_causes_has_none(bucket):
    with pytest.raises(KeyError):
        fit_causes({}, bucket, 1)
