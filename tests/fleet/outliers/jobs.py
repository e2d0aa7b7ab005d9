"""Metrics of machines that follow the step of one job."""

from __future__ import annotations

import numpy as np

METRICS = ("duty", "power", "load")


def breathing(machines: int, *, seconds: int = 900, seed: int = 0) -> np.ndarray:
    """Three metrics of level 50 that rise and fall by 20 within 24 seconds on all machines, with noise of 1.

    Shape (metrics, machines, samples), a sample a second.
    """
    random = np.random.default_rng(seed)
    step = 20 * np.sign(np.sin(2 * np.pi * np.arange(seconds) / 24))
    lasting = 1 + 0.01 * random.standard_normal((len(METRICS), machines, 1))
    return ((50 + step) * lasting + random.standard_normal((len(METRICS), machines, seconds))).astype(np.float32)
