import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given

from dask_efficiency import EfficiencyReport, compare
from dask_efficiency.accounts.buckets import Breakdown, Bucket
from dask_efficiency.accounts.cluster.memory_timeline import MemoryLine, MemoryTimeline
from dask_efficiency.accounts.metered import BYTE_SECONDS, BYTES, IN_MEMORY, MEMORY, ON_DISK, PROCESS
from dask_efficiency.report.difference import Difference
from dask_efficiency.report.values import MeteredRow
from tests.report.comparison_samples import sides
from tests.report.samples import by_hand, report_of, seconds


def spilling(spill: float, **fields: Any) -> EfficiencyReport:
    return report_of(seconds(thread_cpu=10, spill=spill), **fields)


def test_the_comparison_worked_out_by_hand() -> None:
    # before: 3 spill + 1 idle + 2 thread-noncpu + 1 failed lost, 10 useful; after 4.5 more spill and 1 less idle
    spilled, same = seconds(thread_cpu=6, spill=7.5), by_hand()
    after = by_hand(
        by_worker={"a": spilled, "b": same.by_worker["b"]},
        by_prefix={"load": spilled, "sum": same.by_prefix["sum"]},
        cluster_seconds=5.0,
    )
    found = compare(by_hand(), after)
    assert (found.lost.before, found.lost.after) == (7_000_000_000, 10_500_000_000)
    assert found.lost.rise == 0.5
    assert found.useful.change == 0
    changes = [(str(cause.bucket), cause.time.change / 1e9) for cause in found.causes]
    assert changes == [("spill", 4.5), ("idle", -1.0), ("thread-noncpu", 0.0), ("failed", 0.0)]
    assert {name: time.change / 1e9 for name, time in found.causes[0].by_prefix.items()} == {"load": 4.5}
    assert found.causes[1].by_prefix == {}
    assert {name: change.lost.change / 1e9 for name, change in found.by_prefix.items()} == {"load": 4.5, "sum": 0.0}
    assert found.cluster_seconds == Difference((4.5,), (5.0,))
    assert found.efficiency.after == after.efficiency


@given(sides, sides)
def test_the_causes_add_up_to_lost_time_on_both_sides(before, after):
    found = compare(before, after)
    rest = found.not_by_cause
    assert sum(cause.time.before for cause in found.causes) + rest[0] == found.lost.before
    assert sum(cause.time.change for cause in found.causes) + rest[1] - rest[0] == found.lost.change
    if len(before) == len(after) == 1:
        assert rest == (0, 0)
        for side, report in (("before", before[0]), ("after", after[0])):
            total = sum(getattr(time, side) for time in (found.useful, found.lost, found.running))
            assert total == report.breakdown.total_ns - report.breakdown.ns(Bucket.NO_WORK)


@given(sides, sides)
def test_swapping_the_sides_turns_every_change_around(before, after):
    there, back = compare(before, after), compare(after, before)
    assert there.lost.change == -back.lost.change
    assert {c.bucket: c.time.change for c in there.causes} == {c.bucket: -c.time.change for c in back.causes}
    assert there.is_same == back.is_same


def test_medians_that_do_not_add_up_leave_the_rest_in_sight() -> None:
    # every run loses 10 thread-seconds, each to another cause: the medians of the causes are 0
    before = [report_of(seconds(thread_cpu=1, **{cause: 10})) for cause in ("spill", "idle", "failed")]
    found = compare(before, before[0])
    assert found.lost.before == 10_000_000_000
    assert found.not_by_cause == (10_000_000_000, 0)
    # a prefix that one of the runs before has is not new
    has, lacks = (report_of(seconds(thread_cpu=3), by_prefix=by) for by in ({"x": seconds(thread_cpu=1)}, {}))
    assert not compare([lacks, has, lacks], has).by_prefix["x"].is_new


def test_the_allowed_rise_is_exact() -> None:
    at_limit = compare(spilling(100), spilling(105))
    assert not at_limit.loses_more(Fraction(5, 100))
    over = compare(report_of(Breakdown({"spill": 100_000_000_000})), report_of(Breakdown({"spill": 105_000_000_001})))
    assert over.loses_more(Fraction(5, 100))
    # one outlier does not count
    assert not compare(spilling(3), [spilling(3), spilling(50), spilling(2)]).loses_more(0)


def test_a_rise_within_the_spread_of_the_runs_is_no_loss() -> None:
    # medians of 3 and 5, of runs that differ by 2 without any change
    noisy = compare([spilling(2), spilling(4)], [spilling(4), spilling(6)])
    assert (noisy.lost.rise > 0.6, noisy.loses_more(0)) == (True, False)
    assert compare([spilling(2), spilling(4)], [spilling(15), spilling(16)]).loses_more(0)


def test_one_odd_run_before_does_not_hide_a_rise() -> None:
    before = [spilling(spill) for spill in (3, 3.1, 2.9, 3, 50)]
    assert compare(before, [spilling(spill) for spill in (4, 4.1, 3.9, 4, 4)]).loses_more(Fraction(5, 100))
    assert not compare(before, [spilling(spill) for spill in (3.1, 3, 3.2, 2.9, 3.1)]).loses_more(0)


def test_money_needs_a_price_in_every_run() -> None:
    priced = spilling(1, price_per_worker_hour=2.0, nthreads={"w0": 4})
    assert compare(priced, priced).price_per_thread_hour == (0.5, 0.5)
    # 11 thread-seconds of a worker with four
    assert compare(priced, priced).cost.before == pytest.approx(11 / 4 / 3600 * 2.0)
    half = compare(priced, [priced, spilling(1)])
    assert (half.price_per_thread_hour, math.isnan(half.cost.before)) == (None, True)


def test_the_environment_has_only_differences() -> None:
    old = spilling(1, environment={"dask": "1", "python": "3.11", "gone": "x"})
    new = spilling(1, environment={"dask": "2", "python": "3.11"})
    assert compare([old, old], new).environment == {"dask": (("1",), ("2",)), "gone": (("x",), ("",))}
    assert compare([old, new], [old, new]).environment["dask"] == (("1", "2"), ("1", "2"))


def test_unknown_runtimes_are_unknown_and_no_error() -> None:
    unknown = spilling(1, cluster_seconds=math.nan)
    found = compare(unknown, spilling(1, cluster_seconds=0.0))
    assert math.isnan(found.cluster_seconds.before)
    assert math.isnan(found.cluster_seconds.after)
    assert found.is_same
    assert compare([unknown, spilling(1, cluster_seconds=2.0)], by_hand()).cluster_seconds.before == 2


def test_the_parts_of_a_comparison_are_computed_once() -> None:
    found = compare(by_hand(), by_hand())
    for name in ("tasks", "moved", "causes", "by_prefix"):
        assert getattr(found, name) is getattr(found, name)


GIB = float(2**30)


def of_memory(peaks: dict[str, float], cluster: int = 0, held: float = 0.0, spilled: float = 0.0) -> EfficiencyReport:
    """Workers' peaks, and that of all, in GiB; results in memory and on disk in GiB x s."""
    rows = [MeteredRow(name, MEMORY, "", "", PROCESS, BYTES, peak * GIB) for name, peak in peaks.items()]
    of_results = ((IN_MEMORY, held), (ON_DISK, spilled))
    rows += [MeteredRow("a", MEMORY, "", "load", label, BYTE_SECONDS, n * GIB) for label, n in of_results]
    line = MemoryLine(0, (round(cluster * GIB),), (0,), (0,))
    timeline = MemoryTimeline(10**9, 10**9, line) if cluster else None
    return by_hand(metered=tuple(rows) if peaks else (), memory_timeline=timeline)


def test_peaks_are_of_the_worker_with_most_and_byte_seconds_of_all_results() -> None:
    found = compare(of_memory({"a": 2, "b": 3}, 4, held=10, spilled=1), of_memory({"a": 4, "b": 1}, 5, held=5))
    assert found.peaks == {"worker": Difference((3 * GIB,), (4 * GIB,)), "cluster": Difference((4 * GIB,), (5 * GIB,))}
    assert found.byte_seconds == {
        "memory": Difference((10 * GIB,), (5 * GIB,)),
        "disk": Difference((1 * GIB,), (0.0,)),
    }
    data = found.to_dict()
    assert data["peak_bytes"]["worker"]["change"] == GIB
    assert data["byte_seconds"]["memory"]["after"] == 5 * GIB


def test_the_allowed_rise_of_the_peak_is_exact_and_one_that_is_not_known_is_not_higher() -> None:
    found = compare(of_memory({"a": 2}), of_memory({"a": 2.2}))
    assert found.peaks_higher(Fraction(9, 100))
    assert not found.peaks_higher(Fraction(11, 100))
    unknown = compare(of_memory({}), of_memory({"a": 2}))
    assert math.isnan(unknown.peaks["worker"].before)
    assert math.isnan(unknown.byte_seconds["memory"].before)
    assert not unknown.peaks_higher(0)
