"""What a file says of its metrics counts: direction, least effect, cause; and models must be of its metrics."""

from __future__ import annotations

import numpy as np
import pytest

from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.fleet.minder.detector import Minder
from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from dask_efficiency.fleet.rounds.gathered import Gathered
from dask_efficiency.fleet.rounds.judging import Outliers, check_model, unjudged
from dask_efficiency.fleet.rounds.metrics_file import parse_metrics_file
from dask_efficiency.fleet.rounds.past import parted
from tests.fleet.minder.test_network import random_autoencoder

FILE = parse_metrics_file(
    """metrics:
  heat: {query: heat, worse: more, cause: gpu, least: 5}
  memory: {query: rate, worse: less, least: 10%}
  load: {query: load, cause: contention}
""",
    "m.yaml",
)


def judged(metric: str, change: float, *, level: float = 60.0) -> list[SlowWorker]:
    """Of eight machines that have been alike for half an hour, one changes in a metric."""
    gathered = Gathered(FILE, start=0, samples=540)
    number = [one.name for one in FILE.metrics].index(metric)
    random, at = np.random.default_rng(1), np.arange(540) * FILE.step_seconds
    for machine in range(8):
        values = level + random.normal(0, 0.5, 540) + change * ((at >= 7600) & (machine == 3))
        gathered.add(number, {"instance": f"m{machine}"}, at, values.astype(np.float32))
    past, window = parted(gathered.series(), window_start=7200)
    return Outliers()(window, past)


@pytest.mark.parametrize(
    ("metric", "change", "counts"),
    [
        ("heat", 12, True),
        ("heat", 3, False),
        ("heat", -12, False),
        ("memory", -15, True),
        ("memory", -3, False),
        ("memory", 15, False),
        ("load", 12, True),
        ("load", -12, True),
    ],
)
def test_what_is_better_or_too_little_is_nobodys_fault(metric: str, change: float, counts: bool) -> None:
    """A file's metric means what the file says, whatever a metric of that name means elsewhere."""
    assert [finding.worker for finding in judged(metric, change)] == ["m3"] * counts


@pytest.mark.parametrize(("metric", "cause"), [("heat", Cause.GPU), ("load", Cause.CONTENTION)])
def test_the_cause_is_that_of_the_file(metric: str, cause: Cause) -> None:
    (found,) = judged(metric, 12)
    assert found.cause is cause


def test_a_model_of_other_metrics_is_refused() -> None:
    minder = Minder({"heat": random_autoencoder(), "lead": random_autoencoder()})
    check_model(minder, "x.npz", ["heat", "lead", "rate"], "m.yaml")
    with pytest.raises(
        ValueError, match=r"x.npz was trained on 'lead', which m.yaml does not have; there is: .*'heat'"
    ):
        check_model(minder, "x.npz", ["heat", "load"], "m.yaml")


def test_outliers_are_judged_with_the_continuity_that_is_asked_for() -> None:
    random = np.random.default_rng(1)
    values = random.normal(10, 1, (1, 8, 120)).astype(np.float32)
    values[0, 3, 84:] += 30
    series = MetricSeries.of(values, metrics=("load",), step_seconds=5.0)
    assert [found.worker for found in Outliers(120.0)(series, None)] == ["3"]
    assert Outliers(400.0)(series, None) == []


@pytest.mark.parametrize(
    ("machines", "samples", "past", "why"),
    [
        (0, 100, False, "nobody reported anything"),
        (2, 100, False, "2 reported, of which 2 can be compared; expected 3 at least"),
        (3, 30, False, "what was reported covers 150 s; expected 390 s at least"),
        (3, 30, True, "what was reported covers 150 s; expected 270 s at least"),
        (3, 60, True, ""),
        (3, 80, False, ""),
    ],
)
def test_too_little_to_judge_is_told(machines: int, samples: int, past: bool, why: str) -> None:
    series = MetricSeries.of(np.ones((1, machines, samples), np.float32), metrics=("load",), step_seconds=5.0)
    assert unjudged(series, series if past else None) == why
