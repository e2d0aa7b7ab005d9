from __future__ import annotations

from dask_efficiency.causes import CAUSES
from dask_efficiency.report.largest import Largest, largest_loss
from tests.report.samples import SECOND, causes, report_of, seconds


def largest_of(by_cause: dict[str, float], **by_bucket: float) -> tuple[str, str] | None:
    found = largest_loss(report_of(seconds(**by_bucket), causes_by_worker={"w0": causes(**by_cause)}))
    return None if found is None else (str(found.bucket), found.cause)


def test_a_cause_that_is_most_of_the_largest_bucket_is_the_largest_loss() -> None:
    by_cause = {"thread-noncpu/gil": 40, "thread-noncpu/sleep": 2}
    assert largest_of(by_cause, thread_cpu=58, thread_noncpu=42) == ("thread-noncpu", "gil")


def test_of_ten_causes_of_four_percent_the_bucket_is() -> None:
    by_cause = {f"thread-noncpu/{cause}": 4.0 for cause in CAUSES["thread-noncpu"]}
    assert largest_of(by_cause, thread_cpu=60, thread_noncpu=36, spill=5) == ("thread-noncpu", "")


def test_one_cause_of_another_bucket_may_be_larger_than_any_of_the_largest() -> None:
    by_cause = {"thread-noncpu/gil": 20, "thread-noncpu/sleep": 20, "idle/parallelism": 30}
    assert largest_of(by_cause, thread_cpu=30, thread_noncpu=40, idle=30) == ("idle", "parallelism")


def test_a_bucket_without_causes_counts_as_one() -> None:
    by_cause = {"thread-noncpu/gil": 14, "thread-noncpu/file": 13, "thread-noncpu/core": 13}
    assert largest_of(by_cause, thread_cpu=40, thread_noncpu=40, spill=25) == ("spill", "")
    assert largest_of(by_cause, thread_cpu=40, thread_noncpu=40, spill=15) == ("thread-noncpu", "")


def test_what_nobody_knows_is_no_cause() -> None:
    assert largest_of({"idle/unknown": 30}, thread_cpu=70, idle=30) == ("idle", "")
    assert largest_of({"idle/unknown": 18, "idle/graph": 12}, thread_cpu=70, idle=30) == ("idle", "")


def test_a_cause_that_has_no_row_of_its_own_is_not_named() -> None:
    assert largest_of({"idle/graph": 0.6, "idle/parallelism": 0.4}, thread_cpu=99, idle=1) == ("idle", "")


def test_without_losses_there_is_none() -> None:
    assert largest_of({}, thread_cpu=1) is None
    assert largest_of({}) is None


def test_its_size_is_in_nanoseconds() -> None:
    report = report_of(seconds(idle=3), causes_by_worker={"w0": causes(**{"idle/graph": 2})})
    assert largest_loss(report) == Largest("idle", "graph", 2 * SECOND)
