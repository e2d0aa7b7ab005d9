"""Metrics of clusters that do the same thing, with a worker at fault or none."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

METRICS = ("cpu", "rate")


def healthy(workers: int, *, seed: int = 0, seconds: int = 600) -> NDArray[np.float32]:
    """A common rhythm and each worker's noise; shape (2 metrics, workers, seconds)."""
    random = np.random.default_rng(seed)
    rhythm = np.sin(np.arange(seconds) / 4)
    noise = random.standard_normal((2, workers, seconds))
    return (np.array([50.0, 8.0])[:, None, None] + 5 * rhythm + noise).astype(np.float32)


def with_fault(workers: int, *, worker: int, seed: int = 0, metric: int = 0, onset: int = 200) -> NDArray[np.float32]:
    """The same, and one worker's metric is 8 deviations lower from an instant on."""
    values = healthy(workers, seed=seed)
    values[metric, worker, onset:] -= 8
    return values
