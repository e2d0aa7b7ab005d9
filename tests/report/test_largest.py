from __future__ import annotations

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.report.largest import Largest, largest_loss
from tests.report.samples import SECOND, causes, report_of, seconds


def largest_of(by_cause: dict[str, float], **by_bucket: float) -> str:
    found = largest_loss(report_of(seconds(**by_bucket), causes_by_worker={"w0": causes(**by_cause)}))
    return "" if found is None else found.kind


def test_a_cause_is_named_however_small_its_part_of_its_bucket() -> None:
    by_cause = {"thread-noncpu/gil": 40, "thread-noncpu/sleep": 2}
    assert largest_of(by_cause, thread_cpu=58, thread_noncpu=42) == "thread-noncpu/gil"
    by_cause = {"thread-noncpu/gil": 15, "thread-noncpu/sleep": 10, "thread-noncpu/file": 10, "thread-noncpu/core": 7}
    assert largest_of(by_cause, thread_cpu=58, thread_noncpu=42) == "thread-noncpu/gil"


def test_one_cause_of_another_bucket_may_be_larger_than_any_of_the_largest() -> None:
    by_cause = {"thread-noncpu/gil": 20, "thread-noncpu/sleep": 20, "idle/parallelism": 30}
    assert largest_of(by_cause, thread_cpu=30, thread_noncpu=40, idle=30) == "idle/parallelism"


def test_a_bucket_without_causes_counts_as_one() -> None:
    by_cause = {"thread-noncpu/gil": 14, "thread-noncpu/file": 13, "thread-noncpu/core": 13}
    assert largest_of(by_cause, thread_cpu=40, thread_noncpu=40, spill=25) == "spill"


def test_what_nobody_knows_is_no_cause() -> None:
    assert largest_of({"idle/unknown": 30}, thread_cpu=70, idle=30) == "idle"
    assert largest_of({"idle/unknown": 18, "idle/graph": 12}, thread_cpu=70, idle=30) == "idle"
    assert largest_of({"idle/unknown": 12, "idle/graph": 18}, thread_cpu=70, idle=30) == "idle/graph"


def test_a_cause_that_has_no_row_of_its_own_is_not_named() -> None:
    assert largest_of({"idle/graph": 0.6, "idle/parallelism": 0.4}, thread_cpu=99, idle=1) == "idle"


def test_without_losses_there_is_none() -> None:
    assert largest_of({}, thread_cpu=1) == ""
    assert largest_of({}) == ""


def test_its_size_is_in_nanoseconds() -> None:
    report = report_of(seconds(idle=3), causes_by_worker={"w0": causes(**{"idle/graph": 2})})
    assert largest_loss(report) == Largest(Bucket.IDLE, "graph", 2 * SECOND)
