from __future__ import annotations

import pytest

from dask_efficiency.fleet.minder.detector import Minder
from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from tests.straggler.clusters import METRICS, healthy


@pytest.fixture(scope="session")
def minder() -> Minder:
    """Trained on healthy workers for a few seconds."""
    from dask_efficiency.fleet.minder.train import train_minder

    return train_minder([MetricSeries.of(healthy(8, seed=9, seconds=300), metrics=METRICS)], steps=300)
