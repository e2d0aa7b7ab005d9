"""Predictions for the tests of their documents."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import patch

from dask_efficiency import ClusterSpec, RunTrace, simulate, sweep
from dask_efficiency.simulation import Prediction
from dask_efficiency.simulation import calls as predictions
from dask_efficiency.simulation.model.placements import Placement, Placements, ranked
from dask_efficiency.simulation.model.sweeps import Sweep
from tests.report.samples import HOSTILE_NAMES
from tests.simulation.fake_engine import FakeEngine, recorded


@contextmanager
def simulated_by(engine: Any) -> Iterator[Any]:
    with patch.object(predictions, "engine", engine):
        yield engine


@cache
def elsewhere(workers: int = 16) -> Prediction:
    return predicted(recorded(), workers, factor=1.02)


def predicted(trace: RunTrace, workers: int, *, factor: float = 1.0) -> Prediction:
    """Predict a run with an engine whose runs are too long by a factor."""
    with simulated_by(FakeEngine(factor)):
        return simulate(trace, ClusterSpec.from_trace(trace).with_workers(workers), seeds=4)


@cache
def swept(workers: tuple[int, ...] = (2, 4, 8, 16), seeds: int = 4, price: float | None = None) -> Sweep:
    with simulated_by(FakeEngine(1.02)):
        return sweep(recorded(), workers, seeds=seeds, price_per_worker_hour=price)


def placed(names: Sequence[str] = ("near.hosts", "far.hosts"), sizes: Sequence[int] = (8, 2)) -> Placements:
    return Placements(ranked([Placement(name, elsewhere(n)) for name, n in zip(names, sizes, strict=True)]).ranked)


def hostile_trace() -> RunTrace:
    """A run in which every name that a user chooses is hostile."""
    trace = recorded()
    workers = tuple(replace(w, name=n, host=n) for w, n in zip(trace.workers, HOSTILE_NAMES[3:], strict=False))
    return replace(trace, name=HOSTILE_NAMES[0], workers=workers, dropped={HOSTILE_NAMES[1]: 3})
