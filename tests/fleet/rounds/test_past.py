from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from dask_efficiency.fleet.rounds.past import Habits, extended, missing_samples, parted

NAN = float("nan")


def series(start: float, rows: dict[str, list[float]], metrics: tuple[str, ...] = ("cpu",)) -> MetricSeries:
    names, values = tuple(rows), np.array([list(rows.values())] * len(metrics), np.float32)
    groups = tuple(f"group of {name}" for name in names)
    return MetricSeries(metrics, names, groups, ("",) * len(names), start, 10.0, values)


def rows_of(found: MetricSeries) -> dict[str, list[float | None]]:
    return {
        name: [None if np.isnan(value) else value for value in row.tolist()]
        for name, row in zip(found.workers, found.values[0], strict=True)
    }


@pytest.mark.parametrize(
    ("known", "at", "latest", "start", "rows"),
    [  # the latest samples win, and gaps keep the old ones
        ({"a": [1, 2, 3, 4], "b": [5, 6, 7, 8]}, 20, {"a": [30, 40, 50], "b": [NAN, 80, 90]}, 10,
         {"a": [2, 30, 40, 50], "b": [6, 7, 80, 90]}),
        ({"gone": [1, 2, 3, NAN], "b": [5, 6, 7, 8]}, 40, {"b": [9], "new": [1]}, 30, {"b": [8, 9], "new": [None, 1]}),
        ({"a": [1, 2]}, 40, {"a": [5]}, 0, {"a": [1, 2, None, None, 5]}),
    ],
)  # fmt: skip
def test_new_samples_are_added_to_old_ones(known: Any, at: float, latest: Any, start: float, rows: Any) -> None:
    found = extended(series(0, known), series(at, latest), start=start)
    assert found.start == start
    assert rows_of(found) == rows
    assert found.groups == tuple(f"group of {name}" for name in rows)


def test_metrics_come_and_go() -> None:
    found = extended(series(0, {"a": [1, 2]}, ("cpu",)), series(10, {"a": [3]}, ("net",)), start=0)
    assert found.metrics == ("net", "cpu")
    np.testing.assert_array_equal(found.values[:, 0], np.array([[NAN, 3], [1, 2]], "f4"))


def test_a_clock_that_jumps_back_begins_anew() -> None:
    latest = series(0, {"a": [1]})
    assert extended(series(100, {"a": [1, 2]}), latest, start=0) is latest


def test_past_and_window_are_of_the_machines_in_the_window() -> None:
    past, window = parted(series(0, {"gone": [1, 2, NAN], "b": [3, NAN, 5]}), window_start=20)
    assert past is not None
    assert rows_of(past) == {"b": [3, None]}
    assert rows_of(window) == {"b": [5]}
    assert window.start == 20


def test_a_metric_that_nobody_has_in_the_window_is_left_out_and_without_samples_before_there_is_no_past() -> None:
    known = extended(series(0, {"a": [1, 2]}, ("cpu",)), series(20, {"a": [3]}, ("net",)), start=0)
    past, window = parted(known, window_start=20)
    assert window.metrics == ("net",)
    assert past is None
    assert parted(known, window_start=10)[1].metrics == ("net", "cpu")


def test_samples_are_missing_only_of_metrics_that_a_machine_has() -> None:
    assert missing_samples(series(0, {"a": [1, NAN, 3], "never": [NAN] * 3})) == 1


NAMES = ("a", "b", "c", "d")


def past(start: float, level: float, of_a: float) -> MetricSeries:
    """Four machines at a level, of which the first differs; ten samples, 10 s apart."""
    values = np.full((1, 4, 10), level, np.float32)
    values[0, 0] += of_a
    return MetricSeries(("heat",), NAMES, ("",) * 4, ("",) * 4, start, 10.0, values)


def found(since: float) -> SlowWorker:
    return SlowWorker("a", "", Cause.GPU, 1.5, 0.9, since, None)


def row(series: MetricSeries | None, worker: int = 0) -> list[float]:
    assert series is not None
    return series.values[0, worker].tolist()


def test_a_host_that_was_found_stands_for_its_workers() -> None:
    habits = Habits()
    host = SlowWorker("", "h", Cause.GPU, 1.5, 0.9, 60, None, workers=("a", "b"))
    habits.keep([host], past(0, 50, of_a=2))
    assert row(habits.applied(past(5000, 100, of_a=30)))[:6] == [102] * 6


def test_the_past_is_as_it_was_until_the_fault_began() -> None:
    habits = Habits()
    habits.keep([found(since=60)], past(0, 50, of_a=2))
    expected = [102.0] * 6 + [np.nan] * 4
    np.testing.assert_array_equal(row(habits.applied(past(5000, 100, of_a=30))), expected)
    assert row(habits.applied(past(5000, 100, of_a=30)), 1) == [100] * 10
    habits.keep([found(since=60)], past(40, 50, of_a=30))  # what was there when it was found stays
    assert row(habits.applied(past(80, 50, of_a=30)))[:6] == [52] * 6


def test_a_machine_that_is_no_longer_at_fault_has_the_past_that_there_is() -> None:
    habits = Habits()
    habits.keep([found(since=60)], past(0, 50, of_a=2))
    habits.keep([], past(0, 50, of_a=30))
    again = past(0, 50, of_a=30)
    assert habits.applied(again) is again


def test_a_machine_at_fault_since_before_the_past_has_none() -> None:
    habits = Habits()
    habits.keep([found(since=-10)], past(0, 50, of_a=30))
    applied = habits.applied(past(100, 50, of_a=30))
    assert applied is not None
    assert np.isnan(row(applied)).all()
    assert (applied.values[0, 1:] == 50).all()
    assert habits.applied(None) is None


def test_a_machine_is_compared_with_those_of_its_group() -> None:
    values = np.array([[[10.0], [12.0], [14.0], [90.0], [95.0], [99.0]]], np.float32)
    groups, hosts = ("1",) * 3 + ("2",) * 3, ("",) * 6
    before = MetricSeries(("heat",), ("a", "b", "c", "x", "y", "z"), groups, hosts, 0.0, 10.0, values)
    after = MetricSeries(before.metrics, before.workers, groups, hosts, 0.0, 10.0, values + np.float32(5))
    habits = Habits()
    habits.keep([found(since=1000)], before)
    assert row(habits.applied(after)) == [15]
