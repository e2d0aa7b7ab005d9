from collections import Counter

import pytest
from hypothesis import given

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.buckets import CAUSES, Bucket, cause_name
from dask_efficiency.report.stacks import (
    NoStacksError,
    cause_rows,
    exact_stacks,
    exact_times,
    known_stacks,
    sampled_stacks,
)
from dask_efficiency.report.values import ProfileRow
from tests.report.profile_samples import UPPER, profiled, profiled_reports
from tests.report.samples import SECOND, by_hand, report_of, seconds


def test_time_without_samples_is_unknown_and_running_and_no_work_are_left_out() -> None:
    # spill 3 s by prefix; a is idle for 1 s; 2 s of no-work, 1 s running
    assert exact_times(by_hand()) == {
        ("thread-cpu", "", "load"): 6 * SECOND,
        ("thread-cpu", "", "sum"): 4 * SECOND,
        ("thread-noncpu", "unknown", "sum"): 2 * SECOND,
        ("spill", "", "load"): 3 * SECOND,
        ("failed", "", "sum"): SECOND,
        ("idle", "unknown", ""): SECOND,
    }


def test_waiting_that_no_prefix_has_keeps_the_causes_of_the_whole() -> None:
    report = report_of(seconds(thread_noncpu=5), causes_by_worker={"w0": {"thread-noncpu/lock": 4 * SECOND}})
    assert exact_times(report) == {("thread-noncpu", "lock", ""): 4 * SECOND, ("thread-noncpu", "unknown", ""): SECOND}


@given(profiled_reports())
def test_times_of_a_bucket_and_of_a_cause_add_up_to_it_exactly(report: EfficiencyReport) -> None:
    whole = report.breakdown
    by_bucket: Counter[str] = Counter()
    by_cause: Counter[str] = Counter()
    for (bucket, cause, _), ns in exact_times(report).items():
        assert ns > 0
        by_bucket[bucket] += ns
        by_cause[cause_name(Bucket(bucket), cause)] += ns
    assert by_bucket == {bucket: whole.ns(bucket) for bucket in whole if bucket != "no-work"}
    (causes,) = report.causes_by_worker.values()
    told = {name: ns for name, ns in by_cause.items() if Bucket(name.partition("/")[0]) in CAUSES}
    assert told == {name: ns for name, ns in causes.items() if ns}
    assert sum(cause_rows(report).values()) == whole.total_ns


@given(profiled_reports())
def test_stacks_of_a_bucket_cause_and_prefix_add_up_to_its_time_exactly(report: EfficiencyReport) -> None:
    found: Counter[tuple[str, str, str]] = Counter()
    for row in exact_stacks(report):
        assert row.ns > 0
        found[row.bucket, row.cause, row.prefix] += row.ns
    assert found == exact_times(report)


def test_samples_of_no_time_at_all_and_of_what_the_report_does_not_hold_change_nothing() -> None:
    strange = (
        ProfileRow("thread-noncpu", "core", "clean", UPPER, 0),
        ProfileRow("thread-noncpu", "sleep", "clean", UPPER, 9),
        ProfileRow("thread-cpu", "", "nobody", UPPER, 9),
    )
    assert exact_stacks(profiled(profile=strange)) == exact_stacks(profiled(profile=()))


def test_only_buckets_with_stacks_are_drawn() -> None:
    assert {row.bucket for row in sampled_stacks(profiled())} == {"thread-cpu", "library-threads", "thread-noncpu"}
    assert sampled_stacks(profiled(profile=())) == ()


def test_a_report_without_stacks_says_so() -> None:
    with pytest.raises(NoStacksError, match="'a run' has no stacks; expected"):
        known_stacks(by_hand())
