from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from dask_efficiency import RunTrace
from dask_efficiency.accounts.sensors import SENSORS
from dask_efficiency.accounts.slow_worker import Cause
from dask_efficiency.accounts.tables import Texts
from dask_efficiency.fleet.outliers.metric_series import METRICS, MetricSeries, cause_of, filled, metric_series_of
from dask_efficiency.runs.trace.run_trace import WorkerSpec
from dask_efficiency.runs.trace.schema import Runs, Series, Tasks
from dask_efficiency.straggler.causes import BY_METRIC


def _trace(**columns: list[float]) -> RunTrace:
    """Two workers with 2 and 4 threads that report each second."""
    seconds = len(next(iter(columns.values()))) // 2
    at = np.repeat(np.arange(seconds, dtype=np.int64) * 1_000_000_000, 2)
    series = Series.from_columns({"at": at, "worker": np.tile([0, 1], seconds).astype(np.int32)} | columns)
    workers = tuple(WorkerSpec(f"w{i}", f"tcp://{i}", "host", nthreads=2 + 2 * i, memory_limit=0) for i in range(2))
    empty = np.empty(0, np.int64)
    stop, tasks, runs = seconds * 1_000_000_000, Tasks.empty(), Runs.empty()
    run = RunTrace("run", 0, stop, Texts.of([]), tasks, np.zeros(1, np.int64), empty, runs)
    return replace(run, workers=workers, series=series)


def test_shares_are_of_the_busy_time_and_idling_changes_none():
    busy = {"thread_cpu": [0.6, 0.3, 0.3, 0.3], "thread_noncpu": [0.2, 0.1, 0.3, 0.1]}
    idle = metric_series_of(_trace(**busy, idle=[0.0, 0.4, 0.0, 0.4]))
    assert idle.metrics == ("thread_cpu", "thread_noncpu")
    assert idle.values[0].round(6).tolist() == [[0.75, 0.5], [0.75, 0.75]]


def test_a_heartbeat_with_hardly_any_work_has_no_shares():
    columns = {"thread_cpu": [0.5, 0.5, 0.001, 0.5], "spill": [0.5, 0.1, 0.0, 0.5], "idle": [0.0, 0.0, 1.0, 0.0]}
    series = metric_series_of(_trace(**columns))
    spill = series.values[series.metrics.index("spill")]
    assert spill[0].tolist() == [0.5, 0.5]  # the nearest one that says something


def test_workers_of_different_sizes_are_not_comparable():
    series = metric_series_of(_trace(memory=[1.0, 2.0, 3.0, 4.0]))
    assert [part.workers for part in series.comparable()] == [("w0",), ("w1",)]


def test_a_table_is_put_on_even_steps_by_the_nearest_sample():
    table = pd.DataFrame({"at": [10.1, 11.0, 12.2, 9.0, 12.0], "worker": list("aaabb"), "rate": [1, 2, 3, 4, 5]})
    series = metric_series_of(table)
    assert (series.start, series.workers, series.metrics) == (9.0, ("a", "b"), ("rate",))
    assert series.step_seconds == pytest.approx(1.2)
    assert series.values[0].tolist() == [[1, 1, 2], [4, 4, 5]]


def test_a_worker_that_left_is_absent_and_not_frozen():
    at = np.arange(100.0)
    table = pd.DataFrame({"at": [*at, *at[:20]], "worker": ["a"] * 100 + ["b"] * 20, "rate": [*at, *at[:20]]})
    values = metric_series_of(table).values[0]
    assert np.isnan(values[1, 60:]).all()
    assert not np.isnan(values[0]).any()


def test_samples_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="no series"):
        metric_series_of(replace(_trace(memory=[1.0, 2.0]), series=Series.empty()))
    with pytest.raises(ValueError, match="column 'worker' is missing"):
        metric_series_of(pd.DataFrame({"at": [1.0], "rate": [1.0]}))
    with pytest.raises(ValueError, match=r"values have shape \(1, 2, 3\)"):
        MetricSeries.of(np.zeros((1, 2, 3)), metrics=["a", "b"])


def test_gaps_are_filled_from_the_nearer_side_within_reach():
    values = np.array([[1, np.nan, np.nan, np.nan, 5, np.nan, np.nan, np.nan, np.nan]], np.float32)
    result = filled(values, reach=2)[0]
    assert result[:7].tolist() == [1, 1, 1, 5, 5, 5, 5]
    assert np.isnan(result[7:]).all()


def test_less_cpu_is_a_wait_for_a_core_unless_another_metric_explains_it():
    assert cause_of(["thread_cpu", "paused"]) == Cause.MEMORY
    assert cause_of(["thread_cpu", "memory"]) == Cause.CONTENTION
    assert cause_of(["rate"]) == Cause.UNKNOWN


def test_each_sensor_is_a_column_of_a_trace_and_a_metric_of_the_detectors():
    assert tuple(Series.dtypes())[-len(SENSORS) :] == SENSORS
    assert set(SENSORS) <= set(METRICS)


def test_all_metrics_in_the_table_of_causes_are_known() -> None:
    assert {name: metric.cause for name, metric in METRICS.items() if metric.cause} == BY_METRIC
