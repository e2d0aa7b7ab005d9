from __future__ import annotations

import numpy as np
import pytest

from dask_efficiency.fleet.outliers.block_signals import block_signals
from dask_efficiency.fleet.outliers.departures import departures, past_of
from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from tests.straggler.clusters import METRICS, healthy, with_fault


def _signals(values: np.ndarray):
    return block_signals(MetricSeries.of(values, metrics=METRICS))


def test_a_stretch_counts_from_when_the_worker_departs():
    found = departures(_signals(with_fault(8, worker=5, onset=240)), None, length=16, share=0.9)
    assert found is not None
    worker, stretch = np.unravel_index(found.squares.argmax(), found.squares.shape)
    assert (worker, found.starts[stretch] * 15) == (5, pytest.approx(240, abs=30))
    assert found.squares[np.arange(8) != 5].max() < found.squares.max() / 20


def test_without_a_past_nothing_is_judged():
    signals = _signals(with_fault(8, worker=5)[:, :, :300])
    assert departures(signals, None, length=16, share=0.9) is None
    found = departures(signals, past_of(_signals(healthy(8, seed=1))), length=16, share=0.9)
    assert found is not None
    assert found.starts[0] == 0


def test_a_history_of_less_than_two_minutes_is_none():
    assert np.isnan(past_of(_signals(healthy(4)[:, :, :90])).kept).all()
    assert np.isfinite(past_of(_signals(healthy(4)[:, :, :180])).kept).all()
