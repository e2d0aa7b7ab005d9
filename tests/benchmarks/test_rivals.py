"""The paper's score of Minder, with which ours is compared."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is not installed: nothing to train Minder with")
pytestmark = pytest.mark.needs("torch")

from benchmarks.studies.rivals import lasting, pairwise_scores, prioritised, stump_gain  # noqa: E402
from dask_efficiency.fleet.outliers.metric_series import MetricSeries  # noqa: E402
from tests.straggler.clusters import METRICS, healthy, with_fault  # noqa: E402


def test_the_papers_score_by_hand() -> None:
    # on a line at 0, 1 and 5: sums of distances 6, 5 and 9; mean 20/3, variance 26/9
    scores = pairwise_scores(np.array([0, 1, 5], np.float32).reshape(3, 1, 1))
    np.testing.assert_allclose(scores[:, 0], (np.array([6, 5, 9]) - 20 / 3) / np.sqrt(26 / 9), rtol=1e-4)


@pytest.mark.parametrize("workers", [4, 9])
def test_the_papers_score_is_bounded_by_the_number_of_workers(workers: int) -> None:
    far = 0.05 * np.random.default_rng(0).standard_normal((workers, 6, 8)).astype(np.float32)
    far[1] += np.float32(100.0)
    assert pairwise_scores(far).max() <= np.sqrt(workers - 1) + 1e-3


def test_a_stray_instant_is_not_where_a_condition_begins_to_last():
    holds = "...x......" + 90 * "x"
    assert lasting(np.array([[mark == "x" for mark in holds]]), length=40, share=0.8).tolist() == [10]


@given(
    st.lists(st.lists(st.booleans(), min_size=12, max_size=12), min_size=1, max_size=4),
    st.integers(1, 12),
    st.floats(0.1, 1.0),
)
def test_lasting_agrees_with_a_count_stretch_by_stretch(rows, length, share):
    expected = []
    for row in rows:
        needed = np.ceil(share * length - 1e-9)
        starts = [i for i in range(len(row) - length + 1) if sum(row[i : i + length]) >= needed]
        expected.append(starts[0] + row[starts[0] :].index(True) if starts else -1)
    assert lasting(np.array(rows), length=length, share=share).tolist() == expected


def test_nothing_lasts_in_fewer_instants_than_a_stretch():
    assert lasting(np.ones((2, 3), bool), length=4, share=0.5).tolist() == [-1, -1]


def test_the_metric_that_shows_the_faults_comes_first():
    for metric in (0, 1):
        runs = [healthy(8, seed=seed) for seed in range(3)]
        runs += [with_fault(8, worker=2, seed=seed, metric=metric, onset=0) for seed in range(3, 6)]
        series = [MetricSeries.of(run, metrics=METRICS) for run in runs]
        order = prioritised(series, faulty=[()] * 3 + [("2",)] * 3, metrics=METRICS)
        assert order == (METRICS[metric], METRICS[1 - metric])
        assert prioritised(series, faulty=[()] * 6, metrics=METRICS[::-1]) == METRICS[::-1]  # without any fault


def test_a_stump_gains_most_where_one_threshold_separates_the_labels():
    labels = np.array([False, False, True, True])
    assert stump_gain(np.array([1.0, 2.0, 3.0, 4.0]), labels) == pytest.approx(0.5)
    assert stump_gain(np.array([1.0, 3.0, 2.0, 4.0]), labels) == pytest.approx(0.5 - 1 / 3)
    assert stump_gain(np.ones(4), labels) == 0
