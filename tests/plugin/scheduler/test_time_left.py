from __future__ import annotations

import logging
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.plugin.scheduler import time_left as module
from dask_efficiency.plugin.scheduler.time_left import TimeLeftWatch


class Cluster:
    """A scheduler whose workers run equal tasks of a second, by a clock that is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tasks: int = 100) -> None:
        self.now = 1_000.0
        monkeypatch.setattr(module, "monotonic", lambda: self.now)
        self.tasks, self.ended = tasks, 0
        self.prefix = SimpleNamespace(name="step", states={}, state_counts=defaultdict(int), all_durations={})
        task = SimpleNamespace(prefix=self.prefix)
        self.ws = SimpleNamespace(nthreads=2, long_running=set(), executing={Task(task): 0.0, Task(task): 0.0})
        self.scheduler: Any = SimpleNamespace(workers={"tcp://a": self.ws}, task_prefixes={"step": self.prefix})
        self.work = SimpleNamespace(outstanding=True)
        ledger: Any = SimpleNamespace(work=self.work)
        self.watch = TimeLeftWatch(self.scheduler, ledger)

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.prefix.states = {
                "waiting": 0,
                "queued": self.tasks - self.ended - 2,
                "no-worker": 0,
                "processing": 2,
                "memory": self.ended,
            }
            self.prefix.state_counts.update(memory=self.ended, waiting=self.tasks)
            self.prefix.all_durations = {"compute": float(self.ended)}
            self.watch.poll()
            self.now += 1.0
            self.ended += 2


class Task:
    """A task, by identity as Dask's."""

    def __init__(self, task: Any) -> None:
        self.prefix = task.prefix


def test_the_rest_of_equal_tasks_is_known_half_way(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.run(26)
    left = cluster.watch.left
    assert left is not None
    assert left.least < 25 < left.most
    cluster.work.outstanding = False
    cluster.run(1)
    assert cluster.watch.left is None


def test_nothing_is_said_while_tasks_that_seceded_may_send_more(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.run(20)
    cluster.ws.long_running.add(next(iter(cluster.ws.executing)))
    cluster.run(1)
    assert cluster.watch.left is None


def test_a_failure_is_logged_once_and_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(monkeypatch)
    cluster.run(26)
    del cluster.scheduler.task_prefixes["step"].states
    with caplog.at_level(logging.ERROR, "dask_efficiency"):
        for _ in range(3):
            cluster.now += 5.0
            cluster.watch.poll()
    assert cluster.watch.left is None
    assert caplog.text.count("does not say how long") == 1
