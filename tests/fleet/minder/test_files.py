from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dask_efficiency.fleet.minder.detector import Minder, load_minder
from dask_efficiency.fleet.minder.files import MinderFileError
from tests.fleet.minder.test_network import random_autoencoder

MINDER = Minder(
    {"räte": random_autoencoder(seed=1), "cpu": random_autoencoder(seed=2)}, threshold=5.5, continuity_seconds=61.7
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    MINDER.save(tmp_path / "m.npz")
    return tmp_path / "m.npz"


def _forge(path: Path, **changes: Any) -> None:
    """The same file with other arrays; None takes one out."""
    with np.load(path) as archive:
        arrays = dict(archive)
    arrays = {name: array for name, array in (arrays | changes).items() if array is not None}
    np.savez(path, **arrays)


def test_a_detector_comes_back_exactly(path):
    loaded = load_minder(path)
    assert (loaded.metrics, loaded.threshold, loaded.continuity_seconds, loaded.share) == (
        ("räte", "cpu"),
        5.5,
        61.7,
        0.9,
    )
    windows = np.random.default_rng(0).random((9, 8, 1)).astype(np.float32)
    for name in MINDER.metrics:
        assert np.array_equal(loaded.models[name].reconstruct(windows), MINDER.models[name].reconstruct(windows))


def test_it_goes_where_fsspec_goes():
    MINDER.save("memory://minder.npz")
    assert load_minder("memory://minder.npz").metrics == MINDER.metrics


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": np.array(["other"])}, "found format 'other'"),
        ({"format": None}, "'format' is nothing"),
        ({"version": np.array([9])}, "found version 9"),
        ({"settings": np.array([1.0])}, "'settings' is float64"),
        ({"settings": np.array([-1.0, 1.0, 1.0])}, "threshold is -1.0"),
        ({"metrics": np.array(["cpu", "cpu"])}, "for metrics"),
        ({"metrics": np.array(["cpu"])}, "missing or too many"),
        ({"0.latent": None}, "0.latent"),
        ({"0.latent": np.zeros((4, 7), np.float32)}, "expected float32 of"),
        ({"0.latent": np.full((4, 8), np.nan, np.float32)}, "latent holds nan"),
        ({"0.latent": np.zeros(3, np.float32)}, "expected two dimensions"),
        ({"extra": np.zeros(3)}, "'extra'"),
    ],
)
def test_a_forged_file_is_refused_and_says_why(path, changes, message):
    _forge(path, **changes)
    with pytest.raises(MinderFileError, match=message):
        load_minder(path)


def test_nothing_in_a_file_is_ever_run(path):
    _forge(path, **{"0.latent": np.array([Path()], object)})
    with pytest.raises(MinderFileError, match="allow_pickle"):
        load_minder(path)


@pytest.mark.parametrize("size", [0, 1, 100, 1000])
def test_a_truncated_file_is_refused(path, size):
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(MinderFileError, match="m.npz"):
        load_minder(path)


def test_damage_is_noticed(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))
    with pytest.raises(MinderFileError):
        load_minder(path)


def test_a_missing_file_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_minder(tmp_path / "none.npz")
