"""Tables of every shape are judged, or refused by a ValueError."""

from __future__ import annotations

import warnings
from pathlib import Path

import pandas as pd
from hypothesis import HealthCheck, given, settings

from dask_efficiency.fleet import find_outliers
from tests.fleet.outliers.shapes import windows

MACHINES = Path(__file__).parents[2] / "data" / "machines"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(windows())
def test_no_table_ends_the_search_or_makes_numpy_warn(tables: tuple[pd.DataFrame, pd.DataFrame | None]) -> None:
    window, history = tables
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            found = find_outliers(window, history=history)
        except ValueError as error:
            assert "expected one of each at least" in str(error)
        else:
            assert {finding.worker for finding in found} <= set(window["worker"])
            assert all(0 < finding.confidence <= 1 for finding in found)


def test_a_machine_without_a_history_is_judged_with_samples_of_30_s() -> None:
    window, history = (pd.read_csv(MACHINES / f"15-{name}-30s.csv") for name in ("window", "history"))
    assert set(window["worker"]) - set(history["worker"]) == {"w3"}
    assert find_outliers(window, history=history) == []  # w3 is like this from the start


def test_a_metric_without_a_history_is_judged_with_samples_of_30_s() -> None:
    window, history = (pd.read_csv(MACHINES / f"15-{name}-30s.csv") for name in ("window", "history"))
    window["load"] = 1.0 + window["at"] % 7
    assert find_outliers(window, history=history[history["worker"] != "w1"]) == []


def test_a_metric_that_is_mostly_0_overflows_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find_outliers(pd.read_csv(MACHINES / "16-rarely-not-zero.csv")) == []
