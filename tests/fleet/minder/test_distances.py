from __future__ import annotations

import numpy as np
import pytest

from dask_efficiency.fleet.minder.distances import pairwise_scores, robust_scores


def _embeddings(workers: int, *, off: float) -> np.ndarray:
    random = np.random.default_rng(0)
    embeddings = 0.05 * random.standard_normal((workers, 6, 8)).astype(np.float32)
    embeddings[1] += np.float32(off)
    return embeddings


def test_the_papers_score_by_hand():
    # on a line at 0, 1 and 5: sums of distances 6, 5 and 9; mean 20/3, variance 26/9
    scores = pairwise_scores(np.array([0, 1, 5], np.float32).reshape(3, 1, 1))
    np.testing.assert_allclose(scores[:, 0], (np.array([6, 5, 9]) - 20 / 3) / np.sqrt(26 / 9), rtol=1e-4)


@pytest.mark.parametrize("workers", [4, 9])
def test_the_papers_score_is_bounded_by_the_number_of_workers_and_the_robust_one_is_not(workers):
    embeddings = _embeddings(workers, off=100.0)
    assert pairwise_scores(embeddings).max() <= np.sqrt(workers - 1) + 1e-3
    assert robust_scores(embeddings)[1].min() > 100


@pytest.mark.parametrize("score", [pairwise_scores, robust_scores])
def test_the_worker_that_is_off_has_the_highest_score(score):
    assert (score(_embeddings(300, off=3.0)).argmax(axis=0) == 1).all()


@pytest.mark.parametrize("score", [pairwise_scores, robust_scores])
def test_an_absent_worker_has_no_score_and_changes_nobody_elses(score):
    embeddings = _embeddings(9, off=2.0)
    absent = np.concatenate([embeddings, np.full((1, 6, 8), np.nan, np.float32)])
    scores = score(absent)
    assert np.isnan(scores[9]).all()
    np.testing.assert_allclose(scores[:9], score(embeddings), rtol=1e-4)


@pytest.mark.parametrize("score", [pairwise_scores, robust_scores])
def test_workers_that_are_all_alike_have_finite_scores(score):
    assert np.isfinite(score(np.ones((5, 2, 8), np.float32))).all()
