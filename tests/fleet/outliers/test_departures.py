from __future__ import annotations

import numpy as np
import pytest

from dask_efficiency.fleet.outliers.block_signals import block_signals
from dask_efficiency.fleet.outliers.departures import departures, few_blocks, past_of
from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from dask_efficiency.fleet.outliers.outliers import find_outliers
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


@pytest.mark.parametrize(("step", "continuity"), [(5, 270), (15, 270), (30, 270), (60, 270), (30, 60)])
def test_samples_far_apart_bring_no_more_alarms_than_those_close_together(step: int, continuity: int) -> None:
    # All of two blocks are beyond by chance more often than most of eighteen.
    fleets = [np.random.default_rng(seed).normal(50, 2, (7, 8, 3600 // step)) for seed in range(12)]
    series = [MetricSeries.of(values, metrics=tuple("abcdefg"), step_seconds=float(step)) for values in fleets]
    assert [find_outliers(one, continuity_seconds=continuity) for one in series] == [[]] * 12


def test_the_margin_of_few_blocks_is_what_chance_brings() -> None:
    blocks = np.random.default_rng(0).standard_normal((200_000, 19))
    averaged = (blocks[:, 1:] + blocks[:, :-1]) / np.sqrt(2)
    usual = np.quantile(np.partition(averaged, 2, axis=1)[:, 2], 0.9999)
    for length in (1, 2, 3, 6):
        far = np.quantile(averaged[:, :length].min(axis=1), 0.9999)
        assert few_blocks(length) == pytest.approx(far - usual, abs=0.4)
    assert few_blocks(18) == few_blocks(40) == 0


def test_a_history_of_less_than_two_minutes_is_none():
    assert np.isnan(past_of(_signals(healthy(4)[:, :, :90])).kept).all()
    assert np.isfinite(past_of(_signals(healthy(4)[:, :, :180])).kept).all()
