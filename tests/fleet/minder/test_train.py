from __future__ import annotations

import numpy as np
import pytest

from dask_efficiency.fleet.minder.network import normalised, windowed
from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from tests.straggler.clusters import METRICS, healthy

torch = pytest.importorskip("torch", reason="torch is not installed: nothing to train with")
pytestmark = pytest.mark.needs("torch")

from dask_efficiency.fleet.minder.train import fit, train_minder  # noqa: E402


def test_training_learns_a_toy_rhythm():
    windows = windowed(normalised(healthy(4, seconds=300)[:1])[0], length=8).reshape(-1, 8, 1)
    untrained, trained = fit(windows, steps=0, seed=0), fit(windows, steps=300, seed=0)

    def error(model):
        return float(np.mean((model.reconstruct(windows) - windows) ** 2))

    assert error(trained) < 0.5 * windows.var() < error(untrained)


def test_training_is_the_same_for_the_same_seed_and_leaves_torchs_own_alone():
    windows = np.random.default_rng(0).random((300, 8, 1)).astype(np.float32)
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first, second = fit(windows, steps=1, seed=3), fit(windows, steps=1, seed=3)
    assert torch.rand(1) == expected
    assert np.array_equal(first.encoder_state, second.encoder_state)
    assert not np.array_equal(first.encoder_state, fit(windows, steps=1, seed=4).encoder_state)


def test_runs_that_are_too_short_are_refused():
    with pytest.raises(ValueError, match="1 runs have no 8 samples"):
        train_minder([MetricSeries.of(healthy(4)[:, :, :5], metrics=METRICS)])
