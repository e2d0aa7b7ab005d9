from __future__ import annotations

from dask_efficiency.accounts.sensors.names import SENSORS
from dask_efficiency.fleet.outliers.metric_series import METRICS
from dask_efficiency.runs.trace.schema import Series


def test_each_sensor_is_a_column_of_a_trace_and_a_metric_of_the_detectors():
    assert tuple(Series.dtypes())[-len(SENSORS) :] == SENSORS
    assert set(SENSORS) <= set(METRICS)
