import sys

import numpy as np
import pytest

from dask_efficiency.fleet.minder.train import prioritised, stump_gain
from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from tests.straggler.clusters import METRICS, healthy, with_fault


@pytest.mark.parametrize("tree", [pytest.param(True, marks=pytest.mark.needs("sklearn")), False])
def test_the_metric_that_shows_the_faults_comes_first(tree, monkeypatch):
    if not tree:
        monkeypatch.setitem(sys.modules, "sklearn.tree", None)
    for metric in (0, 1):
        runs = [healthy(8, seed=seed) for seed in range(3)]
        runs += [with_fault(8, worker=2, seed=seed, metric=metric, onset=0) for seed in range(3, 6)]
        series = [MetricSeries.of(run, metrics=METRICS) for run in runs]
        order = prioritised(series, faulty=[()] * 3 + [("2",)] * 3, metrics=METRICS)
        assert order == (METRICS[metric], METRICS[1 - metric])
        assert prioritised(series, faulty=[()] * 6, metrics=METRICS[::-1]) == METRICS[::-1]  # without any fault


def test_a_stump_gains_most_where_one_threshold_separates_the_labels():
    labels = np.array([False, False, True, True])
    assert stump_gain(np.array([1.0, 2.0, 3.0, 4.0]), labels) == pytest.approx(0.5)
    assert stump_gain(np.array([1.0, 3.0, 2.0, 4.0]), labels) == pytest.approx(0.5 - 1 / 3)
    assert stump_gain(np.ones(4), labels) == 0
