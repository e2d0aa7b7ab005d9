import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.buckets import GOOD, Breakdown, Bucket
from dask_efficiency.report.values import FACTORS
from tests.report.samples import breakdowns, by_hand, report_of, seconds

several = st.lists(breakdowns, max_size=5)


def test_the_headline_numbers_are_those_worked_out_by_hand() -> None:
    report = by_hand()
    assert (report.thread_seconds, report.useful_seconds, report.mean_threads) == (18.0, 10.0, 4.0)
    assert (report.efficiency, report.occupancy, report.ideal_seconds) == (10 / 17, 17 / 18, 2.5)
    assert (report.headroom, report.load_balance) == (pytest.approx(1.8), pytest.approx(8.5 / 9))
    factors = {"supply": 16 / 17, "transfer": 1.0, "memory": 13 / 16, "goodput": 12 / 13, "in-task": 10 / 12}
    assert report.factors == factors | {"unknown": 1.0}
    # the number of threads shown is whole within 1 %
    shown = [report_of(seconds(thread_cpu=whole), cluster_seconds=10.0).threads for whole in (39.61, 40.39, 39.59)]
    assert shown == pytest.approx([4, 4, 3.959])


def test_the_losses_are_those_worked_out_by_hand_and_the_largest_is_first() -> None:
    losses = by_hand(price_per_worker_hour=3.6).losses
    times = [(str(loss.bucket), loss.thread_seconds) for loss in losses]
    assert times == [("spill", 3.0), ("thread-noncpu", 2.0), ("failed", 1.0), ("idle", 1.0)]
    # 3 of 17 settled thread-seconds, on 4 threads; a thread costs 1.8 an hour
    assert losses[0].wall_seconds == 0.75
    assert losses[0].share == 3 / 17
    assert losses[0].money == pytest.approx(3 * 1.8 / 3600)
    # there is no money without a price or without known threads
    assert by_hand().money(3600) is None
    assert by_hand(price_per_worker_hour=1.0, nthreads={}).money(3600) is None
    assert by_hand(price_per_worker_hour=0.0).money(3600) == 0.0


@given(several)
@example([seconds(idle=4)])
def test_the_product_of_the_factors_is_the_efficiency(workers: list[Breakdown]) -> None:
    report = report_of(*workers)
    assert math.prod(report.factors.values()) == pytest.approx(report.efficiency, nan_ok=True)


def test_every_bucket_is_good_lost_running_or_no_work_and_every_loss_has_one_factor() -> None:
    lost = [bucket for buckets in FACTORS.values() for bucket in buckets]
    assert sorted([*lost, *GOOD, Bucket.RUNNING, Bucket.NO_WORK]) == sorted(Bucket)


@given(several)
def test_useful_time_and_losses_add_up_to_the_finalized_time_and_in_seconds_to_the_run(workers):
    report = report_of(*workers)
    whole = report.breakdown
    lost = sum(whole.ns(loss.bucket) for loss in report.losses)
    assert whole.ns(*GOOD) + lost == whole.total_ns - whole.ns(Bucket.NO_WORK, Bucket.RUNNING)
    if report.losses:
        assert sum(loss.share for loss in report.losses) + report.efficiency == pytest.approx(1)
    if report.thread_seconds:
        running = report.breakdown[Bucket.RUNNING] / report.mean_threads
        lost = sum(loss.wall_seconds for loss in report.losses)
        assert report.ideal_bounds["slots"] + lost + running == pytest.approx(report.cluster_seconds)


@pytest.mark.parametrize("report", [report_of(), report_of(seconds(no_work=3))], ids=["empty", "no work"])
def test_a_report_without_work_has_no_efficiency_and_no_losses(report: EfficiencyReport) -> None:
    unknown = (report.efficiency, report.occupancy, report.headroom, report.load_balance, *report.factors.values())
    assert all(map(math.isnan, unknown))
    assert report.losses == ()
    assert report.thread_seconds == report.mean_threads == report.ideal_seconds == 0.0
