from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from dask_efficiency.accounts.slow_worker import Cause
from dask_efficiency.fleet.minder.detector import Minder
from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from tests.fleet.minder.test_network import random_autoencoder
from tests.straggler.clusters import METRICS, healthy, with_fault


def _series(values: np.ndarray, metrics: tuple[str, ...] = METRICS) -> MetricSeries:
    return MetricSeries.of(values, metrics=metrics)


@pytest.mark.parametrize("workers", [4, 64])
def test_a_worker_that_stays_lower_is_found_with_few_and_with_many(minder, workers):
    (finding,) = minder.find(_series(with_fault(workers, worker=2)))
    assert (finding.worker, finding.evidence[0].signal) == ("2", "cpu")
    assert finding.evidence[0].value < finding.evidence[0].low
    assert 190 <= finding.since <= 230
    assert finding.score > 1


def test_healthy_workers_are_left_alone(minder):
    assert [minder.find(_series(healthy(8, seed=seed))) for seed in range(5)] == [[]] * 5


def test_a_burst_of_three_minutes_is_no_fault(minder):
    values = healthy(16)
    values[0, 3, 200:380] -= 10
    assert minder.find(_series(values)) == []
    assert [f.worker for f in replace(minder, continuity_seconds=120).find(_series(values))] == ["3"]


def test_two_workers_get_no_blame(minder):
    assert minder.find(_series(with_fault(2, worker=1))) == []


def test_units_and_the_order_of_the_workers_do_not_matter(minder):
    values = with_fault(7, worker=4)
    before, after = minder.find(_series(values)), minder.find(_series(values[:, ::-1] * 1024 + 512))
    assert [(f.worker, f.since) for f in before] == [("4", after[0].since)]
    assert [f.worker for f in after] == ["2"]


def test_a_known_direction_accuses_nobody_who_does_better(minder):
    as_spill = Minder({"spill": minder.models["cpu"]})
    values = with_fault(16, worker=3)[:1]
    assert as_spill.find(_series(values, ("spill",))) == []
    (finding,) = as_spill.find(_series(-values, ("spill",)))
    assert (finding.worker, finding.cause) == ("3", Cause.DISK)


def test_a_table_is_as_good_as_an_array(minder):
    values = with_fault(5, worker=3)
    frame = pd.concat(
        pd.DataFrame({"at": np.arange(600.0) + 1000, "worker": f"w{i}", "host": "h", "cpu": values[0, i]})
        for i in range(5)
    )
    (finding,) = minder.find(frame.sample(frac=1, random_state=0))
    assert (finding.worker, finding.host) == ("w3", "h")
    assert 1190 <= finding.since <= 1230


def test_a_worker_that_left_accuses_nobody(minder):
    values = healthy(6)
    values[:, 2, 100:] = np.nan
    assert minder.find(_series(values)) == []


def test_metrics_that_it_was_not_trained_on_are_refused(minder):
    with pytest.raises(ValueError, match=r"none of the metrics \('other',\) was trained on"):
        minder.find(_series(healthy(4)[:1], ("other",)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"models": {}}, "models is empty"),
        ({"models": {"all": random_autoencoder(3)}}, "'all' takes 3 metrics"),
        ({"threshold": 0.0}, "threshold is 0.0"),
        ({"share": 1.1}, "share is 1.1"),
        ({"continuity_seconds": float("nan")}, "continuity_seconds is nan"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Minder(**({"models": {"cpu": random_autoencoder()}} | settings))
