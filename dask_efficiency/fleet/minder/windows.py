"""Windows of a metric, min-max normalised, as an autoencoder takes them."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from dask_efficiency.fleet.outliers.metric_series import Values


def normalised(values: Values) -> Values:
    """Scale each metric to lie between 0 and 1 over all workers.

    Parameters
    ----------
    values
        Shape (metrics, workers, samples). A metric that never changes becomes 0.

    Notes
    -----
    After this, neither the unit of a metric nor its zero matters.
    """
    known = np.isfinite(values)
    low = np.where(known, values, np.inf).min(axis=(1, 2), keepdims=True, initial=np.inf)
    high = np.where(known, values, -np.inf).max(axis=(1, 2), keepdims=True, initial=-np.inf)
    span = high - low
    with np.errstate(invalid="ignore"):
        scaled = (values - low) / np.where(span > 0, span, 1)
    return np.asarray(np.where(known, scaled, np.nan), np.float32)


def windowed(series: Values, *, length: int, stride: int = 1) -> NDArray[np.float32]:
    """Windows of consecutive samples.

    Parameters
    ----------
    series
        Shape (workers, samples).

    Returns
    -------
    array, shape (workers, windows, length)
        A view; there are no windows where there are too few samples for one.
    """
    if series.shape[1] < length:
        return np.empty((len(series), 0, length), np.float32)
    return sliding_window_view(series, length, axis=1)[:, ::stride]
