from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dask_efficiency.straggler.observations import Observations, compare_by, medians
from dask_efficiency.straggler.peers import limit
from dask_efficiency.straggler.score import Usual, score, usual_of


def observations(levels: list[float], *, each: int = 20, noise: float = 0.0, seed: int = 0) -> Observations:
    """Workers with these levels in one kind of work."""
    rng = np.random.default_rng(seed)
    worker = np.repeat(np.arange(len(levels)), each)
    value = np.repeat(np.array(levels), each) + noise * rng.standard_normal(len(worker))
    return compare_by("duration", worker, ["work"] * len(worker), value, np.arange(len(worker), dtype=float))


def test_a_level_is_the_distance_from_the_median_of_the_peers() -> None:
    found = score(observations([0.0, 0.02, 0.04, 0.5]), 4)
    assert found.level[3] == pytest.approx(0.5 - 0.02)


def test_the_scale_never_falls_below_the_floor() -> None:
    assert score(observations([0.0] * 8), 8).scale == pytest.approx(0.03)


def test_stragglers_do_not_widen_the_scale() -> None:
    healthy = [-0.02, -0.01, 0.0, 0.01, 0.02, 0.0]
    assert score(observations([*healthy, 2.0, 3.0]), 8).scale < 0.06


def test_the_spread_of_few_workers_is_widened() -> None:
    spread = math.sqrt(2 * 0.1**2 / 6) * (1 + 3 / 8)
    assert score(observations([-0.1, -0.1, 0, 0, 0, 0, 0.1, 0.1]), 8).scale == pytest.approx(math.hypot(spread, 0.03))


@pytest.mark.parametrize(("gap", "apart"), [(0.09, False), (0.1, True)])
def test_workers_are_of_two_kinds_from_a_gap_of_a_tenth_on(gap: float, apart: bool) -> None:
    assert (score(observations([0.0] * 3 + [gap] * 5), 8).z[3:] > 2).all() == apart


def test_the_tail_is_a_share_of_the_limit_of_five_signals() -> None:
    healthy = observations([0.0] * 7 + [0.3])
    z = 0.3 / math.hypot(0.3 / math.sqrt(8), 0.03)
    # Of four runs, and a prior that is worth four: -0.5 with a standard deviation of 0.25.
    furthest = np.array([math.log(z / limit(8 * 5))] * 4 + [-0.75, -0.75, -0.25, -0.25])
    expected = math.exp(furthest.mean() + 2 * furthest.std() * math.sqrt(1 + 1 / 8))
    assert usual_of([(healthy, 8)] * 4).tail == pytest.approx(expected)


@pytest.mark.parametrize(("spread", "limit"), [(0.01, 3 * 0.2), (0.2, 3 * 1.4826 * 0.2)])
def test_an_observation_counts_for_three_spreads_at_most(spread: float, limit: float) -> None:
    alike = observations([0.0] * 4)
    value = np.tile(np.repeat([-spread, spread], 10), 4)
    value[-1] = 9.0
    assert score(replace(alike, value=value), 4).level[3] == pytest.approx((limit - spread) / 20, rel=1e-4)


def test_few_noisy_observations_count_for_less() -> None:
    noisy = observations([0.0] * 6 + [0.4, 0.4], noise=0.5)
    found = score(noisy.take((noisy.worker != 7) | (np.cumsum(noisy.worker == 7) <= 5)), 8)
    assert found.observations.tolist() == [20] * 7 + [5]
    assert found.z[7] / found.level[7] < 0.8 * found.z[6] / found.level[6]


def test_no_worker_is_judged_if_too_few_do_the_same_work() -> None:
    assert not score(observations([0.0, 1.0]), 2).enough.any()
    assert score(observations([0.0, 1.0]), 2, Usual()).enough.all()


BEFORE = usual_of([(observations([0.0] * 6, noise=0.05, seed=seed), 6) for seed in range(5)])


def test_history_tells_the_healthy_minority() -> None:
    slow = observations([0.0, 0.0, 0.5, 0.5, 0.5, 0.5], noise=0.05)
    assert (score(slow, 6, BEFORE).z > 3).tolist() == [False] * 2 + [True] * 4
    assert (score(slow, 6).z < 3).all()


def test_a_run_that_is_slower_as_a_whole_is_compared_with_itself() -> None:
    assert (score(observations([1.0] * 6, noise=0.05), 6, BEFORE).z < 3).all()


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(-1e6, 1e6)), max_size=40))
def test_medians_are_those_of_numpy(rows: list[tuple[int, float]]) -> None:
    group = np.array([one for one, _ in rows], np.int64)
    values = np.array([value for _, value in rows], np.float64)
    expected = [np.median(values[group == one]) if (group == one).any() else math.nan for one in range(5)]
    assert medians(values, group, 5) == pytest.approx(np.array(expected), nan_ok=True)


@example([0.0, 0.1, 0.2], 0.3)  # rounding puts the middle one above 0
@given(st.lists(st.integers(-99, 99).map(lambda x: x / 100), min_size=3, max_size=20), st.floats(-5, 5))
def test_a_shift_of_everybody_changes_nothing(levels: list[float], shift: float) -> None:
    one, other = score(observations(levels), len(levels)), score(observations([x + shift for x in levels]), len(levels))
    assert other.level == pytest.approx(one.level, abs=1e-6)
    assert other.z == pytest.approx(one.z, abs=1e-3)
