from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from dask_efficiency.fleet.scheduler.outlier_watch import EVERY_SECONDS, WINDOW_SECONDS, OutlierWatch
from dask_efficiency.plugin.scheduler.straggler_watch import StragglerReporter

SECOND = 1_000_000_000


def series(faulty: int | None, onset: int = 60) -> MetricSeries:
    """Eight workers for fifteen minutes, one of which becomes hot after a third of it, or at another sample."""
    values = np.random.default_rng(0).normal(60, 1, (1, 8, 180))
    if faulty is not None:
        values[0, faulty, onset:] += 20
    return MetricSeries.of(values, metrics=["gpu_temperature"], step_seconds=5.0)


class Bench:
    """A watch whose other thread does what it is given when it is told to."""

    def __init__(self) -> None:
        self.faulty: int | None = 3
        self.onset = 60
        self.enabled = True
        self.asked: list[float] = []
        self.waiting: list[SimpleNamespace] = []
        self.watch = OutlierWatch(self.series, lambda: self.enabled, self.elsewhere)
        self.now = 0.0

    def series(self, seconds: float) -> Callable[[], MetricSeries]:
        self.asked.append(seconds)
        return lambda: series(self.faulty, self.onset)

    def elsewhere(self, call: Callable[[], Any]) -> Any:
        self.waiting.append(SimpleNamespace(done=lambda: False, result=call))
        return self.waiting[-1]

    def poll(self, seconds: float = 0.5) -> tuple[list[str], list[str]]:
        """Who is new among the findings, and who is not there any more."""
        self.now += seconds
        before = [finding.worker for finding in self.watch.findings]
        self.watch.poll(at=round(self.now * SECOND), now=self.now)
        after = [finding.worker for finding in self.watch.findings]
        return [name for name in after if name not in before], [name for name in before if name not in after]

    def look(self) -> tuple[list[str], list[str]]:
        """The same of a whole look, a minute later."""
        self.poll(EVERY_SECONDS)
        self.finish()
        return self.poll()

    def finish(self) -> None:
        self.waiting.pop().done = lambda: True


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_an_outlier_is_told_once_and_again_when_it_is_none_any_more(bench):
    assert bench.poll() == ([], [])
    assert bench.poll() == ([], [])  # nobody waits for the other thread
    bench.finish()
    assert bench.poll() == (["3"], [])
    assert [finding.worker for finding in bench.watch.findings] == ["3"]
    assert bench.look() == ([], [])
    bench.faulty = None
    assert bench.look() == ([], ["3"])
    assert bench.watch.findings == ()
    assert [finding.worker for finding in bench.watch.findings_between(0, 1e9)] == ["3"]
    assert bench.watch.findings_between(1e8, 1e9) == ()


def test_what_lasts_longer_than_is_looked_at_is_not_over(bench):
    bench.poll()
    bench.finish()
    assert bench.poll() == (["3"], [])
    bench.onset = 0
    for _ in range(3):
        assert bench.look() == ([], [])
    bench.faulty = None
    assert bench.look() == ([], ["3"])


def test_it_looks_once_a_minute_and_at_one_thing_at_a_time(bench):
    for _ in range(1_000):
        bench.poll()
    assert len(bench.waiting) == 1
    bench.finish()
    for _ in range(1_200):
        bench.poll()
        if bench.waiting:
            bench.finish()
    assert 9 <= len(bench.asked) - 1 <= 11
    assert set(bench.asked) == {WINDOW_SECONDS}


def test_switched_off_it_looks_at_nothing_and_forgets_what_it_found(bench):
    bench.poll()
    bench.finish()
    bench.poll()
    bench.enabled = False
    assert bench.poll(EVERY_SECONDS) == ([], ["3"])
    assert not bench.waiting


def test_a_worker_that_left_is_no_outlier_any_more(bench):
    bench.poll()
    bench.finish()
    bench.poll()
    bench.watch.left("3", now=bench.now)
    assert bench.watch.findings == ()
    assert len(bench.watch.past) == 1


def test_a_failure_ends_it_and_goes_no_further(bench, caplog, monkeypatch):
    monkeypatch.setattr(bench, "series", lambda seconds: None)
    bench.watch._series = lambda seconds: lambda: None
    with caplog.at_level(logging.ERROR, "dask_efficiency"):
        bench.poll()
        bench.finish()
        for _ in range(5):
            assert bench.poll(EVERY_SECONDS) == ([], [])
    assert caplog.text.count("looks for outliers no more") == 1


def test_the_watch_for_stragglers_tells_of_outliers_too(bench, caplog):
    events: list[dict[str, Any]] = []
    scheduler: Any = SimpleNamespace(workers={}, log_event=lambda topic, event: events.append(event))
    called: list[str] = []
    stragglers = StragglerReporter(
        scheduler, ClusterLedger(at=0), lambda: lambda _, finding: called.append(finding.worker)
    )
    stragglers.outliers = bench.watch
    with caplog.at_level(logging.WARNING, "dask_efficiency"):
        stragglers.poll(SECOND)
        bench.finish()
        stragglers.poll(2 * SECOND)
    assert [(event["action"], event["worker"]) for event in events] == [("straggler", "3")]
    assert called == ["3"]
    assert "Straggler: Slow worker, its GPU is slow. Worker 3. Look at the clocks" in caplog.text
    assert [finding.worker for finding in stragglers.findings] == ["3"]
    assert [finding["worker"] for finding in stragglers.between(0, 1e12)] == ["3"]


def test_an_outlier_is_told_once_its_tasks_say_nothing_any_more(bench, monkeypatch):
    events: list[str] = []
    scheduler: Any = SimpleNamespace(workers={}, log_event=lambda topic, event: events.append(event["action"]))
    stragglers = StragglerReporter(scheduler, ClusterLedger(at=0), lambda: "warn")
    stragglers.outliers = bench.watch
    bench.poll()
    (finding,), _ = bench.waiting[0].result()
    with monkeypatch.context() as patched:
        patched.setattr(type(stragglers._watch), "findings", (replace(finding, effect=2.0),))
        bench.finish()
        stragglers.poll(2 * SECOND)
        assert events == []
    stragglers.poll(3 * SECOND)
    stragglers.poll(4 * SECOND)
    assert events == ["straggler"]
    bench.watch.left("3", now=5.0)
    stragglers.poll(5 * SECOND)
    stragglers.poll(6 * SECOND)
    assert events == ["straggler", "straggler-cleared"]


def test_who_leaves_where_nobody_looks_is_not_remembered(bench):
    bench.enabled = False
    for number in range(100):
        bench.watch.left(f"w{number}", now=1.0)
        bench.poll()
    assert not bench.watch._gone


def test_who_left_while_it_looked_is_not_found(bench):
    bench.poll()
    bench.watch.left("3", now=1.0)
    bench.finish()
    assert bench.poll() == ([], [])


def test_what_tasks_say_of_a_worker_goes_before_what_metrics_say(bench, monkeypatch):
    scheduler: Any = SimpleNamespace(workers={}, log_event=lambda *event: pytest.fail("it is known already"))
    stragglers = StragglerReporter(scheduler, ClusterLedger(at=0), lambda: "warn")
    stragglers.outliers = bench.watch
    bench.poll()
    (finding,), _ = bench.waiting[0].result()
    by_tasks = replace(finding, effect=2.0)
    monkeypatch.setattr(type(stragglers._watch), "findings", (by_tasks,))
    bench.finish()
    stragglers.poll(2 * SECOND)
    assert stragglers.findings == (by_tasks,)
