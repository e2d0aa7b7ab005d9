from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_efficiency.straggler.finding import Cause
from dask_efficiency.straggler.metric_series import MetricSeries
from dask_efficiency.straggler.outliers import find_outliers
from tests.straggler.clusters import METRICS, healthy, with_fault


def _series(values: np.ndarray, metrics: tuple[str, ...] = METRICS) -> MetricSeries:
    return MetricSeries.of(values, metrics=metrics)


@pytest.mark.parametrize("workers", [4, 64, 300])
def test_a_worker_that_stays_lower_is_found_with_few_and_with_many(workers):
    (finding,) = find_outliers(_series(with_fault(workers, worker=2)))
    assert finding.worker == "2"
    assert finding.evidence[0].signal == "cpu"
    assert finding.evidence[0].value < finding.evidence[0].low
    assert 150 <= finding.since <= 250


@pytest.mark.parametrize("workers", [4, 64])
def test_healthy_workers_are_left_alone(workers):
    assert [find_outliers(_series(healthy(workers, seed=seed))) for seed in range(10)] == [[]] * 10


def test_two_workers_get_no_blame():
    assert find_outliers(_series(with_fault(2, worker=1))) == []


def test_a_burst_of_three_minutes_is_no_fault():
    values = healthy(16)
    values[0, 3, 200:380] -= 10
    assert find_outliers(_series(values)) == []


def test_a_worker_that_swings_is_found_though_its_mean_is_usual():
    values = healthy(16)
    values[1, 5, 200:] += 5 * np.random.default_rng(1).standard_normal(400).astype(np.float32)
    (finding,) = find_outliers(_series(values))
    assert (finding.worker, finding.evidence[0].signal) == ("5", "rate swings")


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_fault_that_lasts_the_whole_run_is_found(sign):
    assert [f.worker for f in find_outliers(_series(sign * with_fault(16, worker=7, onset=0)))] == ["7"]


def test_a_metric_whose_worse_direction_is_known_accuses_nobody_who_does_better():
    better = with_fault(16, worker=3)
    metrics = ("spill", "rate")
    assert find_outliers(_series(better, metrics)) == []
    (finding,) = find_outliers(_series(-better, metrics))
    assert (finding.worker, finding.cause) == ("3", Cause.DISK)


def test_only_workers_of_a_group_are_compared():
    values = healthy(12)
    values[0, 6:] -= 8
    frame = pd.concat(
        pd.DataFrame({"at": np.arange(600.0), "worker": f"w{i}", "group": i // 6, "cpu": values[0, i]})
        for i in range(12)
    )
    assert find_outliers(frame) == []


def test_a_fault_in_any_group_is_found():
    values = np.concatenate([healthy(5), with_fault(5, worker=2, seed=1)], axis=1)
    frame = pd.concat(
        pd.DataFrame({"at": np.arange(600.0), "worker": f"w{i}", "group": i // 5, "cpu": values[0, i]})
        for i in range(10)
    )
    assert [f.worker for f in find_outliers(frame)] == ["w7"]


def test_a_worker_whose_samples_are_often_missing_is_not_accused_for_that():
    values = healthy(8)
    values[:, 2, 150:][:, np.random.default_rng(0).random(450) < 0.4] = np.nan
    assert find_outliers(_series(values)) == []


def test_missing_samples_accuse_nobody():
    values = healthy(8)
    values[:, 4, 100:] = np.nan
    values[:, :, 250:300] = np.nan
    assert find_outliers(_series(values)) == []


@pytest.mark.parametrize(("onset", "found"), [(200, {"3", "9"}), (270, {"3"}), (420, {"3", "9"})])
def test_faults_that_begin_together_or_long_apart_are_two_and_what_follows_shortly_is_a_victim(onset, found):
    values = np.concatenate([with_fault(32, worker=3), with_fault(32, worker=3)[:, :, 420:]], axis=2)
    values[1, 9, onset:] += 8
    assert {f.worker for f in find_outliers(_series(values))} == found


@pytest.mark.parametrize(("height", "found"), [(3, {"3"}), (8, {"3", "9"})])
def test_what_follows_at_once_is_a_victim_if_it_is_weaker(height, found):
    values = with_fault(32, worker=3)
    values[:, 9, 225:] += height
    assert {f.worker for f in find_outliers(_series(values))} == found


def test_a_fault_that_goes_on_and_off_within_a_minute_is_found():
    values = healthy(32)
    values[1, 5, 200:] += 3 * (np.arange(400) % 60 < 40)
    assert [f.worker for f in find_outliers(_series(values))] == ["5"]


@given(scale=st.floats(1e-3, 1e6), shift=st.floats(-1e3, 1e3), seed=st.integers(0, 50))
@settings(max_examples=15, deadline=None)
def test_units_and_the_order_of_the_workers_do_not_matter(scale, shift, seed):
    values = with_fault(9, worker=4, seed=seed).astype(np.float64)
    order = np.random.default_rng(seed).permutation(9)
    before = find_outliers(_series(values))
    after = find_outliers(_series((values * scale + shift * scale)[:, order]))
    assert [(order[int(f.worker)], f.cause) for f in after] == [(int(f.worker), f.cause) for f in before]
    assert [f.score for f in after] == pytest.approx([f.score for f in before], rel=0.02)


def test_a_short_run_says_nothing():
    values = with_fault(8, worker=1)
    assert [find_outliers(_series(values[:, :, 200 : 200 + seconds])) for seconds in (200, 270, 284)] == [[], [], []]


def test_an_option_out_of_range_is_refused():
    with pytest.raises(ValueError, match="share 0"):
        find_outliers(_series(healthy(4)), share=0)
