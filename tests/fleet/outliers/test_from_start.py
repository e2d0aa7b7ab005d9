from __future__ import annotations

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


def test_one_metric_alone_may_be_a_machine_of_other_hardware() -> None:
    values = breathing(16)
    values[0, 3] *= 0.4
    assert find_outliers(of(values)) == []


def test_metrics_that_do_not_follow_the_work_accuse_nobody() -> None:
    values = breathing(16)
    values[1:, :] = np.float32(50)
    values[1:, 3] = np.float32(100)  # full disks, say
    assert find_outliers(of(values)) == []


def test_a_difference_that_others_have_as_well_is_how_machines_are() -> None:
    values = breathing(16)
    for machine, share in zip(range(2, 8), np.linspace(0.4, 0.6, 6), strict=True):
        values[:2, machine] *= np.float32(share)
    assert find_outliers(of(values)) == []


def test_workers_that_do_unlike_work_are_not_compared() -> None:
    values = breathing(16)
    values[:2, 3] *= 0.4
    assert find_outliers(of(values), same_work=False) == []


def test_with_a_history_a_difference_that_was_there_is_how_the_machine_is() -> None:
    values = breathing(16)
    values[:2, 3] *= 0.4
    assert find_outliers(of(values), history=of(values)) == []


def test_a_machine_that_the_history_lacks_is_judged_without() -> None:
    values, before = breathing(16), breathing(16, seed=1)
    values[:2, 3] *= 0.4
    before[:, 3] = np.nan
    assert [found.worker for found in find_outliers(of(values), history=of(before))] == ["3"]
