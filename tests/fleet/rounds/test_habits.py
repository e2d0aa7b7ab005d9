"""Habits: a machine that stays at fault keeps the past that it had before."""

from __future__ import annotations

import numpy as np

from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from dask_efficiency.fleet.rounds.habits import Habits

NAMES = ("a", "b", "c", "d")


def past(start: float, level: float, of_a: float) -> MetricSeries:
    """Four machines at a level, of which the first differs; ten samples, 10 s apart."""
    values = np.full((1, 4, 10), level, np.float32)
    values[0, 0] += of_a
    return MetricSeries(("heat",), NAMES, ("",) * 4, ("",) * 4, start, 10.0, values)


def found(since: float) -> SlowWorker:
    return SlowWorker("a", "", Cause.GPU, 1.5, 0.9, since, None)


def test_a_host_that_was_found_stands_for_its_workers() -> None:
    habits = Habits()
    host = SlowWorker("", "h", Cause.GPU, 1.5, 0.9, 60, None, workers=("a", "b"))
    habits.keep([host], past(0, 50, of_a=2))
    assert row(habits.applied(past(5000, 100, of_a=30)))[:6] == [102] * 6


def row(series: MetricSeries | None, worker: int = 0) -> list[float]:
    assert series is not None
    return series.values[0, worker].tolist()


def test_the_past_is_as_it_was_until_the_fault_began() -> None:
    habits = Habits()
    habits.keep([found(since=60)], past(0, 50, of_a=2))
    expected = [102.0] * 6 + [np.nan] * 4
    np.testing.assert_array_equal(row(habits.applied(past(5000, 100, of_a=30))), expected)
    assert row(habits.applied(past(5000, 100, of_a=30)), 1) == [100] * 10


def test_what_is_kept_is_what_was_there_when_it_was_found() -> None:
    habits = Habits()
    habits.keep([found(since=60)], past(0, 50, of_a=2))
    habits.keep([found(since=60)], past(40, 50, of_a=30))
    assert row(habits.applied(past(80, 50, of_a=30)))[:6] == [52] * 6


def test_who_is_no_longer_at_fault_has_the_past_that_there_is() -> None:
    habits = Habits()
    habits.keep([found(since=60)], past(0, 50, of_a=2))
    habits.keep([], past(0, 50, of_a=30))
    again = past(0, 50, of_a=30)
    assert habits.applied(again) is again


def test_without_a_past_there_is_nothing_to_keep() -> None:
    habits = Habits()
    habits.keep([found(since=60)], None)
    habits.keep([found(since=-10)], past(0, 50, of_a=30))
    again = past(100, 50, of_a=30)
    assert habits.applied(again) is again
    assert habits.applied(None) is None


def test_a_machine_is_compared_with_those_of_its_group() -> None:
    values = np.array([[[10.0], [12.0], [14.0], [90.0], [95.0], [99.0]]], np.float32)
    groups, hosts = ("1",) * 3 + ("2",) * 3, ("",) * 6
    before = MetricSeries(("heat",), ("a", "b", "c", "x", "y", "z"), groups, hosts, 0.0, 10.0, values)
    after = MetricSeries(before.metrics, before.workers, groups, hosts, 0.0, 10.0, values + np.float32(5))
    habits = Habits()
    habits.keep([found(since=1000)], before)
    assert row(habits.applied(after)) == [15]
