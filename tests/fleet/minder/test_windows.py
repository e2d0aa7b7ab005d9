from __future__ import annotations

import numpy as np

from dask_efficiency.fleet.minder.windows import normalised, windowed


def test_every_metric_is_between_zero_and_one_over_all_workers():
    values = np.array([[[1, 3], [5, np.nan]], [[7, 7], [7, 7]]], np.float32)
    np.testing.assert_array_equal(normalised(values), np.array([[[0, 0.5], [1, np.nan]], [[0, 0], [0, 0]]], np.float32))


def test_windows_overlap_and_stride():
    series = np.arange(12, dtype=np.float32).reshape(2, 6)
    assert windowed(series, length=4).shape == (2, 3, 4)
    assert windowed(series, length=4, stride=2)[1].tolist() == [[6, 7, 8, 9], [8, 9, 10, 11]]


def test_less_than_a_window_gives_none():
    assert windowed(np.zeros((3, 4), np.float32), length=8).shape == (3, 0, 8)
