from __future__ import annotations

import math
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.simulation.model import ensemble as module
from dask_efficiency.simulation.model.accuracy import own_job
from dask_efficiency.simulation.model.ensemble import Ensemble, check_seeds, ensemble
from dask_efficiency.simulation.model.run_figures import makespan_seconds
from tests.runs.trace.equal import assert_same
from tests.simulation.fake_engine import FakeEngine, recorded


def of(*seconds: float) -> Ensemble:
    return Ensemble(dict(enumerate(seconds)))


def test_the_run_in_the_middle_is_the_one_nearest_to_the_median() -> None:
    assert of(1.0, 9.0, 5.0, 4.0).median == 4.5
    assert of(1.0, 9.0, 5.0, 4.2, 4.1).nearest == 3
    assert of(2.0, 2.0).nearest == 0


def test_one_more_run_falls_into_the_spread_in_90_of_100_cases() -> None:
    rng = np.random.default_rng(1)
    for number in (2, 16):
        inside = []
        for _ in range(1000):
            *drawn, one_more = np.exp(rng.normal(1.0, 0.1, number + 1)).tolist()
            low, high = of(*drawn).spread
            inside.append(low <= one_more <= high)
        assert fmean(inside) == pytest.approx(0.9, abs=0.03)


def test_real_runs_that_differ_by_more_than_seeds_fall_into_a_wider_spread() -> None:
    rng = np.random.default_rng(2)
    inside = []
    for _ in range(1000):
        drawn = np.exp(rng.normal(1.0, 0.02, 16)).tolist()
        low, high = of(*drawn).spread_with(0.1)
        inside.append(low <= np.exp(rng.normal(1.0, np.hypot(0.02, 0.1))) <= high)
    assert fmean(inside) == pytest.approx(0.9, abs=0.03)


@given(st.lists(st.floats(0.001, 1e6), min_size=2, max_size=50))
def test_the_median_is_within_the_spread_which_is_above_0(seconds: list[float]) -> None:
    found = of(*seconds)
    low, high = found.spread
    assert 0 < low <= found.median <= high


def test_a_single_run_says_nothing_about_how_runs_differ() -> None:
    assert all(map(math.isnan, of(3.0).spread))


def test_the_trace_is_that_of_the_run_in_the_middle() -> None:
    engine, trace = FakeEngine(), recorded()
    found = ensemble(engine, trace, own_job(trace), range(5))
    assert engine.traced == [(0, 1, 2, 3, 4)]
    (alone,) = engine(trace, own_job(trace), [found.nearest], traces=[found.nearest])
    assert_same(found.trace, alone.trace)  # type: ignore[arg-type]


def test_of_a_long_run_only_the_one_in_the_middle_is_made_again(monkeypatch: Any) -> None:
    engine, trace = FakeEngine(), recorded()
    usual = ensemble(engine, trace, own_job(trace), range(5))
    monkeypatch.setattr(module, "MAX_TRACED", 100)
    engine.traced.clear()
    found = ensemble(engine, trace, own_job(trace), range(5))
    assert engine.traced == [(), (usual.nearest,)]
    assert found.makespans == usual.makespans
    assert makespan_seconds(found.trace) == makespan_seconds(usual.trace)  # type: ignore[arg-type]
    assert ensemble(engine, trace, own_job(trace), [3], traced=False).trace is None


@pytest.mark.parametrize(("given", "seeds"), [(3, (0, 1, 2)), ([5, 2], (5, 2)), (range(2), (0, 1))])
def test_seeds_are_a_number_or_a_list(given: Any, seeds: tuple[int, ...]) -> None:
    assert check_seeds(given) == seeds


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (0, "seeds is 0; expected how many"),
        (-2, "seeds is -2"),
        ([1, -1], "seeds holds -1; expected numbers from 0"),
        ([], r"seeds is \[\]; expected at least one"),
        ([1, 1], "each of them once"),
    ],
)
def test_seeds_that_are_none_are_refused(given: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_seeds(given)


@pytest.mark.parametrize("given", [True, 2.0, "3", [1.5], [True], None])
def test_what_is_no_number_of_seeds_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match="seeds"):
        check_seeds(given)
