from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from dask_efficiency.fleet.outliers.outliers import find_outliers
from tests.fleet.outliers.jobs import METRICS, breathing


def of(values: np.ndarray) -> MetricSeries:
    return MetricSeries.of(values, metrics=METRICS)


@pytest.mark.parametrize("machines", [8, 40])
def test_a_machine_far_from_its_peers_from_the_start_is_found_with_a_lower_confidence(machines: int) -> None:
    values = breathing(machines)
    values[:2, 3] *= 0.4
    (finding,) = find_outliers(of(values))
    assert (finding.worker, finding.since) == ("3", 0.0)
    later = breathing(machines)
    later[:2, 3, 400:] *= 0.4
    (sure,) = find_outliers(of(later), history=of(breathing(machines, seed=1)))
    assert finding.confidence < sure.confidence


def test_a_machine_that_never_moves_is_found() -> None:
    values = breathing(16)
    values[:2, 5] = values[:2, 5].mean(axis=1, keepdims=True)
    (finding,) = find_outliers(of(values))
    assert (finding.worker, finding.since) == ("5", 0.0)
    assert {one.signal for one in finding.evidence} >= {"duty movement", "power movement"}


def changed(metrics: slice | int, machines: slice | int, values: Any) -> np.ndarray:
    """Machines of which some do so many times as much, or have so much."""
    made = breathing(16)
    made[metrics, machines] = made[metrics, machines] * values if isinstance(values, float) else values
    return made


def many() -> np.ndarray:
    values = breathing(16)
    values[:2, 2:8] *= np.linspace(0.4, 0.6, 6, dtype=np.float32)[:, None]
    return values


UNLIKE = changed(slice(2), 3, 0.4)

NOBODY: dict[str, tuple[np.ndarray, dict[str, Any]]] = {
    "one metric alone may be other hardware": (changed(0, 3, 0.4), {}),
    "full disks do not follow the work": (changed(slice(1, 3), slice(None), np.eye(16)[3][:, None] * 50 + 50), {}),
    "a difference that others have as well is how machines are": (many(), {}),
    "workers that do unlike work are not compared": (UNLIKE, {"same_work": False}),
    "a difference that was there before is how the machine is": (UNLIKE, {"history": of(UNLIKE)}),
}


@pytest.mark.parametrize("case", NOBODY)
def test_no_machine_is_accused_from_the_start_without_two_metrics_far_from_those_of_equals(case: str) -> None:
    values, options = NOBODY[case]
    assert find_outliers(of(values), **options) == []


def test_a_machine_that_the_history_lacks_is_judged_without() -> None:
    before = breathing(16, seed=1)
    before[:, 3] = np.nan
    assert [found.worker for found in find_outliers(of(UNLIKE), history=of(before))] == ["3"]
