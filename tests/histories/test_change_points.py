import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.histories.change_points import FEWEST, MOST, change_points

RNG = np.random.default_rng


def noisy(values: list[float], seed: int = 0, deviation: float = 0.02) -> list[float]:
    """Values with the noise of a quiet machine."""
    return [
        value * math.exp(off) for value, off in zip(values, RNG(seed).normal(0, deviation, len(values)), strict=True)
    ]


def test_a_step_is_found_at_its_first_run() -> None:
    assert change_points(noisy([60] * 15 + [78] * 5)) == [15]
    assert change_points(noisy([60] * 15 + [45] * 5)) == [15]


def test_a_step_is_told_after_four_runs_and_not_before() -> None:
    assert change_points(noisy([60] * 15 + [90] * FEWEST)) == [15]
    assert change_points(noisy([60] * 15 + [90] * (FEWEST - 1))) == []


def test_what_got_worse_and_was_mended_is_two_changes() -> None:
    assert change_points(noisy([60] * 12 + [90] * 6 + [60] * 12)) == [12, 18]


@pytest.mark.parametrize("odd", [[10], [10, 11], [3, 10, 17]])
def test_odd_runs_are_no_change(odd: list[int]) -> None:
    values = noisy([60] * 24)
    for position in odd:
        values[position] *= 5
    assert change_points(values) == []


def test_odd_runs_do_not_hide_a_change() -> None:
    values = noisy([60] * 12 + [80] * 12)
    values[4] *= 4
    values[18] *= 4
    assert change_points(values) == [12]


def test_a_change_of_less_than_five_per_cent_is_none() -> None:
    assert change_points([60.0] * 20 + [62.0] * 20) == []


def test_only_the_latest_runs_are_looked_at() -> None:
    assert change_points([60.0] * 20 + [90.0] * MOST) == []


@given(st.lists(st.floats(0, 1e12), max_size=40))
def test_any_values_have_stretches_of_four_runs_at_least(values: list[float]) -> None:
    ends = [0, *change_points(values), len(values)]
    assert ends == sorted(ends)
    assert len(ends) == 2 or min(b - a for a, b in pairwise(ends)) >= FEWEST


@given(st.lists(st.floats(1, 1e3), min_size=8, max_size=30), st.floats(1e-3, 1e3))
def test_the_unit_does_not_matter(values: list[float], unit: float) -> None:
    from_one, from_other = change_points(values), change_points([value * unit for value in values])
    assert len(from_one) == len(from_other) or max(map(len, (from_one, from_other))) <= len(values) // FEWEST


@pytest.mark.parametrize("kind", ["normal", "heavy tails", "to one side", "odd ones"])
def test_noise_alone_brings_no_change(kind: str) -> None:
    rng = RNG(61)
    for _ in range(25):
        runs = int(rng.integers(5, 60))
        noise = {
            "normal": rng.normal(0, 0.05, runs),
            "heavy tails": rng.standard_t(3, runs) * 0.04,
            "to one side": rng.exponential(0.06, runs),
            "odd ones": rng.normal(0, 0.04, runs) + (rng.random(runs) < 0.07) * rng.uniform(0.3, 1.5, runs),
        }[kind]
        assert change_points((60 * np.exp(noise)).tolist()) == []
