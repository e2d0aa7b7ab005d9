from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from dask_efficiency.cluster import ClusterLedger
from dask_efficiency.plugins.scheduler.straggler_watch import Stragglers


class OddWorker:
    """Of no version of upstream that is known: it has no resources, and no name."""

    host = "host"


@pytest.fixture
def stragglers():
    return Stragglers(SimpleNamespace(workers={}), ClusterLedger(at=0), lambda: "warn")


def test_a_worker_that_cannot_be_read_ends_the_watch_and_goes_no_further(stragglers, caplog):
    with caplog.at_level(logging.ERROR, "dask_efficiency"):
        stragglers.worker_joined("tcp://a", OddWorker())
        stragglers.worker_joined("tcp://b", OddWorker())
        stragglers.poll(10**10)
        stragglers.worker_left("tcp://a")
    assert caplog.text.count("looks for stragglers no more") == 1
    assert stragglers.findings == ()


def test_a_heartbeat_without_task_rates_is_passed_over(stragglers, caplog):
    stragglers.take_heartbeat("tcp://a", OddWorker(), {"schema": 2}, 0)
    stragglers.take_heartbeat("tcp://a", OddWorker(), None, 0)
    assert caplog.records == []


def test_task_rates_that_are_refused_are_logged_once_for_each_worker(caplog):
    cluster = ClusterLedger(at=0)
    cluster.worker_joined("tcp://a", "a", 1, at=0)
    stragglers = Stragglers(SimpleNamespace(workers={}), cluster, lambda: "warn")
    for _ in range(3):
        stragglers.take_heartbeat("tcp://a", OddWorker(), {"pace": "no rates"}, 0)
    assert caplog.text.count("refused the task rates of tcp://a") == 1
