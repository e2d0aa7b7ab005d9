import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.causes import (
    CAUSES,
    DESCRIPTIONS,
    NAMES,
    UNKNOWN,
    fit,
    fit_known,
    name_of,
    of_bucket,
    under_names,
)
from tests.strategies import nanoseconds

rows = st.dictionaries(st.sampled_from(NAMES), nanoseconds)


def test_every_cause_has_a_line_that_says_what_it_means():
    assert {bucket: [*lines] for bucket, lines in DESCRIPTIONS.items()} == {b: [*row] for b, row in CAUSES.items()}


def test_every_bucket_with_causes_ends_with_the_unknown():
    assert {causes[-1] for causes in CAUSES.values()} == {UNKNOWN}


@given(st.sampled_from(list(CAUSES)), rows)
def test_what_is_taken_from_under_its_names_can_be_put_back(bucket, row):
    bare = of_bucket(row, bucket)
    assert under_names(bare, bucket) == {name_of(bucket, cause): ns for cause, ns in bare.items()}
    assert of_bucket(under_names(bare, bucket), bucket) == bare


@given(st.sampled_from(list(CAUSES)), rows, nanoseconds)
def test_causes_fit_their_bucket_to_the_nanosecond(bucket, row, ns):
    found = fit(of_bucket(row, bucket), bucket, ns)
    assert sum(found.values()) == ns
    assert found.keys() <= {name_of(bucket, cause) for cause in CAUSES[bucket]}


@given(st.sampled_from(list(CAUSES)), rows, nanoseconds)
def test_what_is_not_known_is_never_given_to_a_cause(bucket, row, ns):
    known = of_bucket(row, bucket)
    found = of_bucket(fit(known, bucket, ns), bucket)
    assert all(found.get(cause, 0) <= known.get(cause, 0) for cause in CAUSES[bucket] if cause != UNKNOWN)


def test_where_more_is_known_than_the_bucket_holds_each_cause_is_scaled_down():
    assert fit({"gil": 30, "sleep": 10}, Bucket.THREAD_NONCPU, 20) == {
        "thread-noncpu/gil": 15,
        "thread-noncpu/sleep": 5,
    }


def test_a_bucket_of_which_nothing_is_known_has_no_causes_here_unless_it_has_elsewhere():
    buckets = {"thread-noncpu": 7, "idle": 5, "overhead": 3}
    weights = {"idle/graph": 2}
    assert fit_known(weights, buckets) == {"idle/graph": 2, "idle/unknown": 3}
    assert fit_known(weights, buckets, {Bucket.OVERHEAD}) == {
        "overhead/unknown": 3,
        "idle/graph": 2,
        "idle/unknown": 3,
    }


@pytest.mark.parametrize("bucket", [Bucket.THREAD_CPU, Bucket.SPILL])
def test_a_bucket_without_causes_has_none(bucket):
    with pytest.raises(KeyError):
        fit({}, bucket, 1)
