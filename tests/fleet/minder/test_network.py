from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from dask_efficiency.fleet.minder.network import Autoencoder, _shapes, normalised, windowed


def random_autoencoder(channels: int = 1, seed: int = 0) -> Autoencoder:
    random = np.random.default_rng(seed)
    shapes = _shapes(channels, 4, 8)
    return Autoencoder(**{name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()})


@pytest.mark.needs("torch")
@pytest.mark.parametrize("channels", [1, 3])
def test_a_network_reconstructs_windows_as_torch_does(channels):
    import torch

    from dask_efficiency.fleet.minder.train import _network, _weights, decoded

    torch.manual_seed(1)
    network = _network(channels)
    windows = np.random.default_rng(2).random((50, 8, channels)).astype(np.float32)
    with torch.no_grad():
        last = network["encoder"](torch.from_numpy(windows))[1][0][0]
        expected = decoded(network, network["mean"](last), 8).numpy()
    np.testing.assert_allclose(_weights(network).reconstruct(windows), expected, atol=1e-5)


def test_windows_are_independent_of_each_other():
    model = random_autoencoder()
    windows = np.random.default_rng(0).random((20_000, 8, 1)).astype(np.float32)
    windows[5, 3] = np.nan
    result = model.reconstruct(windows)
    assert np.isnan(result[5]).any()
    assert np.isfinite(np.delete(result, 5, axis=0)).all()
    np.testing.assert_allclose(result[-3:], model.reconstruct(windows[-3:]), rtol=1e-5)


@pytest.mark.parametrize("name", [field.name for field in fields(Autoencoder)])
def test_weights_that_do_not_fit_or_are_no_numbers_are_refused(name):
    model = random_autoencoder()
    weights = getattr(model, name)
    with pytest.raises(ValueError, match="is float32 of shape|has shape"):
        replace(model, **{name: np.concatenate([weights, weights[:1]])})
    with pytest.raises(ValueError, match=f"{name} holds nan"):
        replace(model, **{name: np.full_like(weights, np.nan)})


def test_windows_of_another_number_of_metrics_are_refused():
    with pytest.raises(ValueError, match=r"expected \(windows, steps, 1\)"):
        random_autoencoder().reconstruct(np.zeros((4, 8, 2), np.float32))


def test_every_metric_is_between_zero_and_one_over_all_workers():
    values = np.array([[[1, 3], [5, np.nan]], [[7, 7], [7, 7]]], np.float32)
    np.testing.assert_array_equal(normalised(values), np.array([[[0, 0.5], [1, np.nan]], [[0, 0], [0, 0]]], np.float32))


def test_windows_overlap_and_stride_and_less_than_one_gives_none():
    series = np.arange(12, dtype=np.float32).reshape(2, 6)
    assert windowed(series, length=4).shape == (2, 3, 4)
    assert windowed(series, length=4, stride=2)[1].tolist() == [[6, 7, 8, 9], [8, 9, 10, 11]]
    assert windowed(series, length=8).shape == (2, 0, 8)
