from __future__ import annotations

import pytest

from dask_efficiency.stragglers.minder.detector import Minder
from dask_efficiency.stragglers.samples import Samples
from tests.stragglers.clusters import METRICS, healthy


@pytest.fixture(scope="session")
def minder() -> Minder:
    """Trained on healthy workers for a few seconds."""
    pytest.importorskip("torch", reason="torch is not installed: nothing to train with")
    from dask_efficiency.stragglers.minder.train import train_minder

    return train_minder([Samples.of(healthy(8, seed=9, seconds=300), metrics=METRICS)], steps=300)
