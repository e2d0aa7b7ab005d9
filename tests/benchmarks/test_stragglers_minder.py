"""The paper's score of Minder, with which ours is compared."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed: nothing to train Minder with")
pytestmark = pytest.mark.needs("torch")

from benchmarks.stragglers_minder import pairwise_scores  # noqa: E402
from dask_efficiency.fleet.minder.detector import robust_scores  # noqa: E402
from tests.fleet.minder.test_detector import embeddings  # noqa: E402


def test_the_papers_score_by_hand() -> None:
    # on a line at 0, 1 and 5: sums of distances 6, 5 and 9; mean 20/3, variance 26/9
    scores = pairwise_scores(np.array([0, 1, 5], np.float32).reshape(3, 1, 1))
    np.testing.assert_allclose(scores[:, 0], (np.array([6, 5, 9]) - 20 / 3) / np.sqrt(26 / 9), rtol=1e-4)


@pytest.mark.parametrize("workers", [4, 9])
def test_the_papers_score_is_bounded_by_the_number_of_workers_and_the_robust_one_is_not(workers: int) -> None:
    far = embeddings(workers, off=100.0)
    assert pairwise_scores(far).max() <= np.sqrt(workers - 1) + 1e-3
    assert robust_scores(far)[1].min() > 100
