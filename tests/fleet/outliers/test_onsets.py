from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from dask_efficiency.fleet.outliers.onsets import onset
from tests.straggler.clusters import METRICS, healthy


def _of(values: np.ndarray, *, begin: int, kind: str = "level", step_seconds: float = 1.0) -> float:
    series = replace(MetricSeries.of(values, metrics=METRICS), step_seconds=step_seconds)
    return onset(series, np.median(values, axis=1), 3, begin, [("cpu", kind)])


@pytest.mark.parametrize("ramp", [1, 20, 60])
@pytest.mark.parametrize("guess", [270, 300, 345])
def test_an_onset_is_found_to_a_few_seconds_however_slowly_the_fault_comes(ramp, guess):
    values = healthy(16, seconds=900)
    values[0, 3] -= 8 * np.clip((np.arange(900) - 300) / ramp, 0, 1)
    assert _of(values, begin=guess) == pytest.approx(300, abs=11)


def test_swings_have_an_onset_too():
    values = healthy(16, seconds=900)
    values[0, 3, 300:] += 5 * np.random.default_rng(1).standard_normal(600)
    assert _of(values, begin=270, kind="swings") == pytest.approx(300, abs=21)


def test_samples_that_are_missing_and_a_window_that_ends_soon_do_no_harm():
    values = healthy(16)
    values[0, 3, 500:] -= 8
    values[0, 3, 380:460] = np.nan
    assert _of(values[:, :, :530], begin=480) == pytest.approx(500, abs=11)
    assert _of(np.full((2, 16, 60), np.nan, np.float32), begin=50, step_seconds=15.0) >= 0


def test_what_was_there_from_the_beginning_has_no_other_onset():
    assert _of(healthy(16), begin=0) == 0
