"""A fleet of machines in Prometheus: finds outliers round by round, with Dask or without."""

from typing import TYPE_CHECKING

from dask_efficiency.plugin.wings import public

if TYPE_CHECKING:
    from dask_efficiency.fleet.dask_source import worker_series
    from dask_efficiency.fleet.minder.detector import load_minder
    from dask_efficiency.fleet.minder.train import train_minder
    from dask_efficiency.fleet.outliers.metric_series import MetricSeries
    from dask_efficiency.fleet.outliers.outliers import find_outliers

__all__ = ["MetricSeries", "find_outliers", "load_minder", "train_minder", "worker_series"]

__getattr__, __dir__ = public(
    __name__,
    {
        "MetricSeries": "outliers.metric_series",
        "find_outliers": "outliers.outliers",
        "load_minder": "minder.detector",
        "train_minder": "minder.train",
        "worker_series": "dask_source",
    },
)
