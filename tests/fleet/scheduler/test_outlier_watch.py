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
from dask_efficiency.fleet.outliers.outliers import find_outliers
from dask_efficiency.fleet.scheduler import outlier_watch
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
    """A watch whose other thread finishes when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = SimpleNamespace(run_in_executor=lambda executor, call: self.elsewhere(call))
        monkeypatch.setattr(outlier_watch, "asyncio", SimpleNamespace(get_running_loop=lambda: loop))
        self.faulty: int | None = 3
        self.onset = 60
        self.enabled = True
        self.asked: list[float] = []
        self.waiting: list[SimpleNamespace] = []
        self.watch = OutlierWatch(self.series, lambda: self.enabled)
        self.now = 0.0

    def series(self, seconds: float) -> Callable[[], Any]:
        self.asked.append(seconds)
        return lambda: series(self.faulty, self.onset)

    def elsewhere(self, call: Callable[[], Any]) -> Any:
        self.waiting.append(SimpleNamespace(done=lambda: False, result=call))
        return self.waiting[-1]

    def names(self) -> list[str]:
        return [finding.worker for finding in self.watch.findings]

    def poll(self, seconds: float = 0.5) -> tuple[list[str], list[str]]:
        """New workers among the findings, and those that are no longer there."""
        self.now += seconds
        before = self.names()
        self.watch.poll(at=round(self.now * SECOND), now=self.now)
        after = self.names()
        return [name for name in after if name not in before], [name for name in before if name not in after]

    def look(self) -> tuple[list[str], list[str]]:
        """The changes of a whole look, a minute later."""
        self.poll(EVERY_SECONDS)
        self.finish()
        return self.poll()

    def finish(self) -> None:
        self.waiting.pop().done = lambda: True


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def test_an_outlier_is_new_once_and_over_once(bench):
    assert bench.poll() == ([], [])
    assert bench.poll() == ([], [])  # nobody waits for the other thread
    bench.finish()
    assert bench.poll() == (["3"], [])
    assert bench.names() == ["3"]
    assert bench.look() == ([], [])
    bench.onset = 0  # it lasts longer than the window
    for _ in range(3):
        assert bench.look() == ([], [])
    bench.faulty = None
    assert bench.look() == ([], ["3"])
    assert bench.names() == []
    assert [finding.worker for finding in bench.watch.findings_between(0, 1e9)] == ["3"]
    assert bench.watch.findings_between(1e8, 1e9) == ()


def test_a_watch_looks_once_a_minute_at_one_window_at_a_time(bench):
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


def test_workers_that_leave_their_past_often_are_named_no_more(bench, caplog):
    named = []
    for each in range(8):
        for faulty in (each, None, None, None):
            bench.faulty = faulty
            named += bench.look()[0]
    assert named == ["0", "1"]  # the third one within a day is one too many
    assert [record.message for record in caplog.records if "share no job" in record.message]


def test_switched_off_it_looks_at_nothing_and_forgets_its_findings(bench):
    bench.look()
    bench.enabled = False
    assert bench.poll(EVERY_SECONDS) == ([], ["3"])
    assert not bench.waiting


def test_a_worker_that_left_is_no_outlier_not_even_by_a_look_that_began_before(bench):
    bench.look()
    bench.watch.left("3", now=bench.now)
    assert bench.names() == []
    assert len(bench.watch.past) == 1
    bench.poll(EVERY_SECONDS)
    bench.watch.left("3", now=bench.now)
    bench.finish()
    assert bench.poll() == ([], [])


def test_workers_that_leave_while_nobody_looks_are_not_remembered(bench):
    bench.watch.left("w", now=1.0)
    assert not bench.watch._gone


def test_looks_that_fail_are_logged_once_and_change_nothing(bench, caplog):
    bench.look()
    good, bench.watch._series = bench.watch._series, lambda seconds: lambda: None
    with caplog.at_level(logging.ERROR, "dask_efficiency"):
        for _ in range(3):
            assert bench.look() == ([], [])
    assert caplog.text.count("a look for outliers failed") == 1
    assert bench.names() == ["3"]
    bench.watch._series, bench.faulty = good, None
    assert bench.look() == ([], ["3"])


def test_a_worker_that_a_look_fails_on_is_left_out(bench, caplog, monkeypatch):
    def fails(window: MetricSeries, **options: Any) -> list[Any]:
        if "5" in window.workers:
            raise IndexError("5")
        return find_outliers(window, **options)

    monkeypatch.setattr(outlier_watch, "find_outliers", fails)
    with caplog.at_level(logging.ERROR, "dask_efficiency"):
        assert bench.look() == (["3"], [])
        bench.look()
    assert caplog.text.count("the watch for outliers goes on without the machine 5: IndexError: 5 (test_outlier") == 1


def reporter(bench: Bench, on_straggler: Any, log_event: Callable[..., Any]) -> StragglerReporter:
    scheduler: Any = SimpleNamespace(workers={}, log_event=log_event)
    made = StragglerReporter(scheduler, ClusterLedger(at=0), lambda: on_straggler)
    made.outliers = bench.watch
    return made


def test_the_watch_for_stragglers_reports_outliers_too(bench, caplog):
    events: list[dict[str, Any]] = []
    called: list[str] = []
    stragglers = reporter(
        bench, lambda _, finding: called.append(finding.worker), lambda topic, event: events.append(event)
    )
    with caplog.at_level(logging.WARNING, "dask_efficiency"):
        stragglers.poll(SECOND)
        bench.finish()
        stragglers.poll(2 * SECOND)
    assert [(event["action"], event["worker"]) for event in events] == [("straggler", "3")]
    assert called == ["3"]
    assert "Straggler: Slow worker, its GPU is slow. Worker 3. Look at the clocks" in caplog.text
    assert [finding.worker for finding in stragglers.findings] == ["3"]
    assert [finding["worker"] for finding in stragglers.between(0, 1e12)] == ["3"]


def test_findings_by_tasks_go_before_an_outlier_which_is_reported_when_they_are_over(bench, monkeypatch):
    events: list[str] = []
    stragglers = reporter(bench, "warn", lambda topic, event: events.append(event["action"]))
    bench.poll()
    (finding,), *_ = bench.waiting[0].result()
    by_tasks = replace(finding, effect=2.0)
    with monkeypatch.context() as patched:
        patched.setattr(type(stragglers._watch), "findings", (by_tasks,))
        bench.finish()
        stragglers.poll(2 * SECOND)
        assert stragglers.findings == (by_tasks,)
        assert events == []
    stragglers.poll(3 * SECOND)
    stragglers.poll(4 * SECOND)
    assert events == ["straggler"]
    bench.watch.left("3", now=5.0)
    stragglers.poll(5 * SECOND)
    stragglers.poll(6 * SECOND)
    assert events == ["straggler", "straggler-cleared"]
