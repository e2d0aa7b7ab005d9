from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.buckets import Breakdown, Bucket
from dask_efficiency.accounts.causes import CAUSES, NAMES, UNKNOWN
from dask_efficiency.live.causes import (
    MIN_SHARE,
    SENTENCES,
    CauseShare,
    cause_shares,
    causes_since,
    largest_cause,
    listed,
    not_sampled,
)

WAITING, IDLE = Bucket.THREAD_NONCPU, Bucket.IDLE


def test_there_is_a_sentence_for_every_cause_that_is_known() -> None:
    assert {bucket: set(rows) for bucket, rows in SENTENCES.items()} == {
        bucket: set(causes) - {UNKNOWN} for bucket, causes in CAUSES.items()
    }


amounts = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 10**15))


@given(amounts, amounts, st.dictionaries(st.sampled_from([*map(str, CAUSES), "thread-cpu"]), st.integers(0, 10**15)))
def test_the_causes_of_a_bucket_add_up_to_it_or_are_none(
    then: dict[str, int], more: dict[str, int], buckets: dict[str, int]
) -> None:
    now = {name: then.get(name, 0) + more.get(name, 0) for name in NAMES}
    found = causes_since(then, now, Breakdown(buckets))
    for bucket in CAUSES:
        of_bucket = [ns for name, ns in found.items() if name.startswith(f"{bucket}/")]
        assert sum(of_bucket) == buckets.get(bucket, 0) or not of_bucket


def test_shares_are_of_the_time_with_work_the_largest_first_and_what_is_not_known_last() -> None:
    did = Breakdown({"thread-noncpu": 60, "idle": 40, "no-work": 900})
    causes = {"thread-noncpu/unknown": 40, "thread-noncpu/lock": 5, "thread-noncpu/gil": 15, "idle/unknown": 40}
    shares = cause_shares(did, causes)
    assert shares == {
        WAITING: (
            CauseShare(WAITING, "gil", 0.15),
            CauseShare(WAITING, "lock", 0.05),
            CauseShare(WAITING, UNKNOWN, 0.4),
        )
    }
    assert listed(shares[WAITING]) == "gil 15 %, lock 5.0 %, unknown 40 %"
    assert largest_cause(did, causes) == CauseShare(WAITING, "gil", 0.15)


@pytest.mark.parametrize(("ns", "found"), [(100 * MIN_SHARE, True), (100 * MIN_SHARE - 1, False)])
def test_a_small_cause_is_not_called_the_largest(ns: float, found: bool) -> None:
    did = Breakdown({"thread-cpu": 50, "idle": 50})
    assert (largest_cause(did, {"idle/graph": round(ns)}) is not None) is found


def test_without_work_there_is_no_cause() -> None:
    did = Breakdown({"no-work": 100})
    assert cause_shares(did, causes_since({}, {"idle/graph": 5}, did)) == {}


def test_it_is_said_of_how_many_workers_nothing_is_known_and_why() -> None:
    assert not_sampled({}) == ""
    assert not_sampled({"a": "no\n/proc"}) == "What threads of 1 worker wait for is not known: no\\n/proc"
    assert not_sampled({"a": "x", "b": "y"}) == "What threads of 2 workers wait for is not known"
