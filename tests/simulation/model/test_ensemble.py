import math
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.simulation.model import ensemble as module
from dask_efficiency.simulation.model.ensemble import Ensemble, SeededJob, Wanted, check_seeds
from dask_efficiency.simulation.model.result import own_job
from tests.simulation.fake_engine import recorded


def of(*seconds: float) -> Ensemble:
    return Ensemble(dict(enumerate(seconds)))


def test_the_run_in_the_middle_is_the_one_nearest_to_the_median() -> None:
    assert of(1.0, 9.0, 5.0, 4.0).median == 4.5
    assert of(1.0, 9.0, 5.0, 4.2, 4.1).nearest == 3
    assert of(2.0, 2.0).nearest == 0


@pytest.mark.parametrize(("seeds", "of_seeds", "noise"), [(2, 0.1, 0.0), (16, 0.1, 0.0), (16, 0.02, 0.1)])
def test_one_more_run_falls_into_the_spread_in_90_of_100_cases(seeds: int, of_seeds: float, noise: float) -> None:
    rng = np.random.default_rng(1)
    inside = []
    for _ in range(1000):
        low, high = of(*np.exp(rng.normal(1.0, of_seeds, seeds)).tolist()).spread_with(noise)
        inside.append(low <= np.exp(rng.normal(1.0, np.hypot(of_seeds, noise))) <= high)
    assert fmean(inside) == pytest.approx(0.9, abs=0.03)


@given(st.lists(st.floats(0.001, 1e6), min_size=2, max_size=50))
def test_the_median_is_within_the_spread_which_is_above_0(seconds: list[float]) -> None:
    found = of(*seconds)
    low, high = found.spread
    assert 0 < low <= found.median <= high
    assert all(map(math.isnan, of(seconds[0]).spread))


def test_a_median_run_whose_trace_is_wanted_is_simulated_once_more_if_runs_are_long(monkeypatch: Any) -> None:
    trace = recorded()
    jobs = [SeededJob(own_job(trace), range(5), wanted) for wanted in Wanted]
    assert [seeded.runs(trace) for seeded in jobs] == [5, 5, 5]
    monkeypatch.setattr(module, "MAX_TRACED", 100)
    assert [seeded.runs(trace) for seeded in jobs] == [5, 5, 6]


@pytest.mark.parametrize(("given", "seeds"), [(3, (0, 1, 2)), ([5, 2], (5, 2)), (range(2), (0, 1))])
def test_seeds_are_a_number_or_a_list(given: Any, seeds: tuple[int, ...]) -> None:
    assert check_seeds(given) == seeds


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (0, ValueError, "seeds is 0; expected how many"),
        (-2, ValueError, "seeds is -2"),
        ([1, -1], ValueError, "seeds holds -1; expected numbers from 0"),
        ([], ValueError, r"seeds is \[\]; expected at least one"),
        ([1, 1], ValueError, "each of them once"),
        *((given, TypeError, "seeds") for given in (True, 2.0, "3", [1.5], [True], None)),
    ],
)
def test_wrong_seeds_are_refused(given: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        check_seeds(given)
