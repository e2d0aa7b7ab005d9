from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.fleet import assembly
from dask_efficiency.fleet.assembly import outlier_detector
from dask_efficiency.fleet.dask_source import SchedulerSource
from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from dask_efficiency.fleet.prometheus.prometheus_query import Answered, PrometheusClient
from dask_efficiency.fleet.prometheus.prometheus_source import Gathered, PrometheusSource
from dask_efficiency.fleet.rounds.metrics_file import parse_metrics_file
from dask_efficiency.fleet.rounds.past import parted
from dask_efficiency.fleet.settings import WatchSettings

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
        gathered.add(number, Answered({"instance": f"m{machine}"}, at, values.astype(np.float32)))
    past, window = parted(gathered.series(), window_start=7200)
    return outlier_detector()(window, past)


@pytest.mark.parametrize(
    ("metric", "change", "cause"),
    [
        *(("heat", 12, Cause.GPU), ("heat", 3, None), ("heat", -12, None)),
        *(("memory", -15, Cause.UNKNOWN), ("memory", -3, None), ("memory", 15, None)),
        *(("load", 12, Cause.CONTENTION), ("load", -12, Cause.CONTENTION)),
    ],
)
def test_a_change_that_is_better_or_too_small_is_nobodys_fault(metric: str, change: float, cause: Cause | None) -> None:
    """A file's metric means what the file says, whatever a metric of that name means elsewhere."""
    found = [(finding.worker, finding.cause) for finding in judged(metric, change)]
    assert found == ([("m3", cause)] if cause else [])


def test_outliers_are_judged_with_the_continuity_of_the_settings() -> None:
    random = np.random.default_rng(1)
    values = random.normal(10, 1, (1, 8, 120)).astype(np.float32)
    values[0, 3, 84:] += 30
    series = MetricSeries.of(values, metrics=("load",), step_seconds=5.0)
    assert [found.worker for found in outlier_detector(120.0)(series, None)] == ["3"]
    assert outlier_detector(400.0)(series, None) == []


class RecordingMinder:
    """A model that finds nobody, and keeps what it is asked."""

    def __init__(self, *metrics: str) -> None:
        self.metrics = metrics
        self.asked: list[tuple[MetricSeries, dict[str, Any]]] = []

    def find(self, run: MetricSeries, **options: Any) -> list[SlowWorker]:
        self.asked.append((run, options))
        return []


SCHEDULER = SchedulerSource("tcp://s:8786", lambda question: question)
PROMETHEUS = PrometheusSource(PrometheusClient("http://p:9090", None, 30.0), FILE)


@pytest.mark.parametrize(
    ("source", "metric", "same_work"), [(SCHEDULER, "memory", False), (PROMETHEUS, "heat", True)], ids=["Dask", "file"]
)
def test_a_model_is_asked_with_the_continuity_of_the_settings_and_whether_the_work_is_the_same(
    source: Any, metric: str, same_work: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    minder = RecordingMinder(metric)
    monkeypatch.setattr(assembly, "load_minder", {"m.model": minder}.__getitem__)
    window = MetricSeries.of(np.zeros((1, 3, 4)), metrics=(metric,), step_seconds=source.step_seconds)
    settings = WatchSettings(model="m.model", continuity=90.0)
    watch = assembly.fleet_watch(source, settings, show=print, warn=print, clock=float)
    assert watch.detector(window, None) == []
    assert minder.asked == [(window, {"continuity_seconds": 90.0, "same_work": same_work})]
