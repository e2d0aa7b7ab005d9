from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dask_efficiency.accounts.cluster.account import place
from dask_efficiency.accounts.sensors import encode_sensors
from dask_efficiency.fleet.outliers.metric_series import METRICS, MetricSeries
from dask_efficiency.fleet.scheduler import worker_series
from dask_efficiency.fleet.scheduler.worker_series import (
    NAMES,
    STEP_SECONDS,
    RememberedWorker,
    SeriesRing,
    WorkerSeries,
    series_of,
)

SECOND = 1_000_000_000


class Cluster:
    """The part of the accounts that is read, and the workers of a scheduler."""

    def __init__(self, *names: str) -> None:
        self.present = {name: SimpleNamespace(account=np.zeros(500, np.int64)) for name in names}
        self.readings: dict[str, dict[str, dict[str, float]]] = {}
        self.options: Any = SimpleNamespace(worker_series=60.0, outliers=False)
        accounts: Any = SimpleNamespace(cluster=self, stragglers=SimpleNamespace())
        self.series = WorkerSeries(accounts, lambda: self.options)
        for name in names:
            self.series.worker_joined(name, self.worker(name))

    def gpu_readings(self, address: str) -> Any:
        return self.readings.get(address)

    @staticmethod
    def worker(name: str, metrics: dict[str, Any] | None = None) -> Any:
        return SimpleNamespace(
            name=name, host="h", nthreads=2, memory_limit=0, resources={}, extra={}, metrics=metrics or {}
        )

    def heartbeat(self, name: str, at: int, did: dict[str, float] | None = None, **metrics: Any) -> None:
        for activity, seconds in (did or {}).items():
            self.present[name].account[place("activity", activity)] += round(seconds * 1e9)
        self.series.take_heartbeat(name, self.worker(name, metrics), at)

    def read(self, seconds: float = 60.0) -> MetricSeries:
        return self.series.reader(seconds)()


def last(series: MetricSeries, metric: str, worker: str) -> float:
    return float(series.values[series.metrics.index(metric), series.workers.index(worker), -1])


def test_figures_of_heartbeats_are_in_the_series():
    assert set(NAMES) == set(METRICS)
    cluster = Cluster("a", "b")
    now = time.monotonic_ns()
    sensors = encode_sensors({"steal": 0.25, "net_drops": 0.0})
    cluster.readings["b"] = {"GPU-0": {"temperature_celsius": 80.0}}
    for name in ("a", "b"):
        cluster.heartbeat(name, now)
    cluster.heartbeat("a", now, {"thread-cpu": 3.0, "spill": 1.0, "idle": 6.0}, memory=5e9)
    cluster.heartbeat("b", now, {"thread-cpu": 0.1, "idle": 9.9}, efficiency={"sensors": sensors})
    series = cluster.read()
    assert (last(series, "thread_cpu", "a"), last(series, "spill", "a")) == (0.75, 0.25)
    assert np.isnan(last(series, "thread_cpu", "b"))  # it had hardly any work
    assert last(series, "memory", "a") == np.float32(5e9)
    assert (last(series, "steal", "b"), last(series, "net_drops", "b")) == (0.25, 0)
    assert np.isnan(last(series, "steal", "a"))
    assert last(series, "gpu_temperature", "b") == 80
    assert "swap_in" not in series.metrics
    assert series.start + series.values.shape[2] * series.step_seconds == pytest.approx(time.time(), abs=6)


def test_sensors_that_cannot_be_read_cost_nothing_else():
    cluster = Cluster("a")
    cluster.heartbeat("a", time.monotonic_ns(), memory=1.0, efficiency={"sensors": "?"})
    cluster.heartbeat("a", time.monotonic_ns(), memory=3.0, efficiency=7)
    assert last(cluster.read(), "memory", "a") == 2


def test_workers_that_were_made_alike_are_comparable():
    cluster = Cluster("a", "b")
    large = cluster.worker("c")
    large.nthreads, large.resources = 4, {"GPU": 1.0}
    cluster.present["c"] = cluster.present["a"]
    cluster.series.worker_joined("c", large)
    for name in "abc":
        cluster.heartbeat(name, time.monotonic_ns(), memory=1.0)
    assert [part.workers for part in cluster.read().comparable()] == [("a", "b"), ("c",)]


def test_a_worker_that_left_takes_no_memory_and_its_last_heartbeat_may_come_late():
    cluster = Cluster("a", "b")
    both = cluster.series.nbytes
    cluster.series.worker_left("a", None)
    cluster.heartbeat("a", time.monotonic_ns(), memory=1.0)
    assert cluster.series.nbytes == both / 2
    assert cluster.read().workers == ("b",)


def test_another_length_takes_effect(monkeypatch):
    cluster = Cluster("a")
    short = cluster.series.nbytes
    cluster.options.worker_series = 600.0
    asyncio.run(cluster.series.configured())
    now = 3600 * SECOND  # this machine may have started a minute ago
    monkeypatch.setattr(worker_series, "time", SimpleNamespace(monotonic_ns=lambda: now, time=time.time))
    for step in range(130, -1, -1):
        cluster.heartbeat("a", now - 5 * step * SECOND, memory=1.0)
    assert cluster.series.nbytes > 7 * short
    assert cluster.read(1e9).values.shape[2] == 120
    assert cluster.read(1.0).values.shape[2] == 1


def test_a_failure_of_all_is_logged_once_and_raised_for_readers(caplog, monkeypatch):
    cluster = Cluster("a")
    monkeypatch.setattr(worker_series, "host_sensors", None)
    for _ in range(3):
        cluster.heartbeat("a", time.monotonic_ns())
    assert caplog.text.count("remembers no metrics of a") == 1
    with pytest.raises(RuntimeError, match="the series of a failed: TypeError"):
        cluster.series.reader(60.0)


def test_a_heartbeat_that_fails_leaves_a_gap_in_the_series_of_its_worker_alone():
    cluster = Cluster("a", "b")
    cluster.heartbeat("a", now := time.monotonic_ns(), memory=1.0)
    cluster.series.take_heartbeat("b", None, now)
    assert last(cluster.read(), "memory", "a") == 1
    cluster.heartbeat("b", now, memory=2.0)
    assert last(cluster.read(), "memory", "b") == 2


NAN = np.nan


def ring(*reports: tuple[int, list[float]], steps: int = 8) -> SeriesRing:
    made = SeriesRing(2, steps)
    for step, values in reports:
        made.add(values, step)
    return made


def series(*rings: SeriesRing, first: int, last: int) -> MetricSeries:
    workers = [RememberedWorker(f"w{i}", "", "", one) for i, one in enumerate(rings)]
    return series_of(workers, first, last, ahead=100.0, metrics=["a", "b"])


def test_a_sample_is_the_mean_of_the_reports_in_its_step_unless_they_come_late():
    late = (3, [9.0, 9.0])
    found = ring((3, [1.0, NAN]), (3, [3.0, 4.0]), (3, [2.0, 6.0]), (4, [7.0, NAN]), late).read(np.arange(3, 6))
    np.testing.assert_array_equal(found, [[2, 5], [7, NAN], [NAN, NAN]])


def test_a_ring_has_the_last_steps_and_takes_no_old_one_for_a_new_one():
    one = ring(*((step, [step, step]) for step in range(20)), (25, [25.0, 25.0]))
    assert one.nbytes == SeriesRing(2, 8).nbytes
    # Step 25 has the place of 17, and 18 that of 26.
    np.testing.assert_array_equal(one.read(np.arange(17, 25))[:, 0], [NAN, 18, 19] + [NAN] * 5)
    np.testing.assert_array_equal(one.read(np.arange(20, 28))[:, 0], [NAN] * 5 + [25, NAN, NAN])


def test_a_series_has_the_metrics_that_somebody_has_and_every_worker():
    found = series(ring((5, [1.0, NAN])), ring((5, [2.0, NAN])), SeriesRing(2, 8), first=4, last=6)
    assert (found.metrics, found.workers) == (("a",), ("w0", "w1", "w2"))
    # Nobody had reported anything in step 4.
    assert (found.start, found.step_seconds) == (100.0 + 5 * STEP_SECONDS, STEP_SECONDS)
    np.testing.assert_array_equal(found.values, [[[1, 1], [2, 2], [NAN, NAN]]])
    nothing = series(SeriesRing(2, 8), first=4, last=6)
    assert (nothing.metrics, nothing.values.shape) == ((), (0, 1, 0))


def test_steps_between_two_heartbeats_are_filled_and_a_long_silence_is_not():
    seldom = ring((0, [1.0, NAN]), (2, [3.0, NAN]), steps=40)
    values = series(seldom, first=0, last=20).values[0, 0]
    np.testing.assert_array_equal(values[:9], [1, 1, 3, 3, 3, 3, 3, 3, 3])
    assert np.isnan(values[9:]).all()
