from __future__ import annotations

import numpy as np

from dask_efficiency.fleet.outliers.block_signals import block_signals
from dask_efficiency.fleet.outliers.metric_series import MetricSeries


def _steady(*workers: float, seconds: int = 60) -> np.ndarray:
    return np.repeat(np.array(workers, np.float32)[None, :, None], seconds, axis=2)


def test_levels_are_differences_from_the_median_worker_by_quarter_of_a_minute():
    signals = block_signals(MetricSeries.of(_steady(10, 11, 15), metrics=["rate"]))
    assert signals.block_seconds == 15
    assert signals.differences[0].tolist() == [[-1.0] * 3, [0.0] * 3, [4.0] * 3]
    assert signals.levels[0].tolist() == [11.0] * 3


def test_a_block_is_averaged_with_its_neighbour_and_alone_where_that_is_missing():
    values = _steady(0, 0, 0)
    values[0, 2] = np.repeat([0, 4, np.nan, 8], 15)
    assert block_signals(MetricSeries.of(values, metrics=["rate"])).differences[0, 2].tolist() == [2.0, 4.0, 8.0]


def test_a_metric_that_is_not_positive_has_no_level_to_be_a_multiple_of():
    values = np.concatenate([_steady(-1, 0, 1), _steady(1, 2, 3)])
    levels = block_signals(MetricSeries.of(values, metrics=["balance", "rate"])).levels
    assert np.isnan(levels[0]).all()
    assert levels[1].tolist() == [2.0] * 3


def test_noise_far_below_the_least_effect_swings_nowhere():
    values = _steady(50, 50, 50, seconds=150)
    values[0, 1] += np.random.default_rng(0).normal(0, 0.02, 150)
    assert np.abs(block_signals(MetricSeries.of(values, metrics=["rate"])).differences[1]).max() == 0


def test_one_worker_with_errors_gives_a_spread_to_a_median_of_zero():
    values = _steady(0, 0, 0, 0, 0)
    values[0, 3, 30:] = 5
    signals = block_signals(MetricSeries.of(values, metrics=["errors"]))
    assert signals.spread_over_time(signals.usual())[0] > 0
