from __future__ import annotations

import itertools
import logging
import math
import time
from types import SimpleNamespace

import pytest

from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.stalls import StalledWork
from dask_efficiency.accounts.wire.heartbeats import REPEATS
from dask_efficiency.plugin.scheduler import straggler_watch as module
from dask_efficiency.plugin.scheduler.straggler_watch import (
    INTERVAL_SECONDS,
    MAX_POLL_SECONDS,
    MAX_UNREAD,
    MIN_READ_A_POLL,
    POLL_SECONDS,
    StragglerReporter,
)
from dask_efficiency.straggler.task_rates import TaskRateCounter, TaskRateWriter

SECOND = 1_000_000_000


class OddWorker:
    """Of no version of upstream that is known: it has no resources, and no name."""

    host = "host"


@pytest.fixture
def stragglers():
    return StragglerReporter(SimpleNamespace(workers={}), ClusterLedger(at=0), lambda: "warn")


def test_a_worker_that_cannot_be_read_ends_the_watch_only(stragglers, caplog):
    with caplog.at_level(logging.ERROR, "dask_efficiency"):
        stragglers.worker_joined("tcp://a", OddWorker())
        stragglers.worker_joined("tcp://b", OddWorker())
        stragglers.poll(10**10)
        stragglers.worker_left("tcp://a")
    assert caplog.text.count("no longer looks for stragglers") == 1
    assert stragglers.findings == ()


def test_task_rates_that_are_refused_are_logged_once_for_each_worker_and_missing_ones_are_not(stragglers, caplog):
    stragglers._cluster.worker_joined("tcp://a", "a", 1, at=0)
    for payload in ({"schema": 2}, None, *[{"pace": "no rates"}] * 3):
        stragglers.take_heartbeat("tcp://a", OddWorker(), payload, 0)
    (record,) = caplog.records
    assert "refused the task rates of tcp://a" in record.getMessage()


class Workers:
    """So many that send task rates, and what was read of them."""

    def __init__(self, count, monkeypatch):
        self.ws = SimpleNamespace(
            name="w", host="h", nthreads=1, memory_limit=0, resources={}, extra={}, metrics={}, nbytes=0
        )
        self.addresses = [f"tcp://{i}" for i in range(count)]
        self.writers = {address: TaskRateWriter() for address in self.addresses}
        cluster = ClusterLedger(at=0)
        self.stragglers = StragglerReporter(SimpleNamespace(workers={}), cluster, lambda: "warn")
        for address in self.addresses:
            cluster.worker_joined(address, address, 1, at=0)
            self.stragglers.worker_joined(address, self.ws)
        self.read = []
        monkeypatch.setattr(self.stragglers._watch, "receive", self.receive)

    def receive(self, address, rates, **_):
        self.read.append((address, rates.process[0]))

    def send(self, number, at):
        for address in self.addresses:
            pace = self.writers[address].heartbeat(TaskRateCounter(), (float(number), 0.0, 0.0, 0.0, 0.0))
            self.stragglers.take_heartbeat(address, self.ws, {"i": "a", "n": number, "pace": pace}, at)


def test_the_newest_task_rates_of_few_workers_are_read_at_the_end_of_an_interval(monkeypatch):
    monkeypatch.setattr(module, "MAX_POLL_SECONDS", math.inf)
    workers = Workers(3, monkeypatch)
    workers.send(0, 0)
    assert workers.read == [(address, 0) for address in workers.addresses]
    workers.stragglers.poll(0)
    workers.send(1, SECOND)
    workers.stragglers.poll(SECOND)
    workers.send(2, 2 * SECOND)
    workers.stragglers.poll(2 * SECOND)
    del workers.read[:]
    workers.stragglers.poll(round(INTERVAL_SECONDS * SECOND))
    assert workers.read == [(address, 2) for address in workers.addresses]


def test_many_workers_are_read_once_each_spread_over_the_polls_of_an_interval(monkeypatch):
    monkeypatch.setattr(module, "MAX_POLL_SECONDS", math.inf)
    polls = round(INTERVAL_SECONDS / POLL_SECONDS)
    workers = Workers(3 * MIN_READ_A_POLL * polls, monkeypatch)
    workers.send(0, 0)
    workers.stragglers.poll(0)
    workers.send(1, 1)
    del workers.read[:]
    most = 0
    for poll in range(1, polls + 1):
        before = len(workers.read)
        workers.stragglers.poll(round(poll * POLL_SECONDS * SECOND))
        most = max(most, len(workers.read) - before)
        if poll == polls // 2:
            workers.send(2, poll)
    assert sorted({address for address, _ in workers.read}) == sorted(workers.addresses)
    assert len(workers.read) == len(workers.addresses)
    assert most < 2 * len(workers.addresses) / polls


def test_task_rates_without_time_left_are_read_at_the_end_of_the_next_interval(monkeypatch):
    workers = Workers(5, monkeypatch)
    workers.send(0, 0)
    workers.stragglers.poll(0)
    workers.send(1, 1)
    del workers.read[:]
    # Each look at the clock is so much later that there is time for two in a poll.
    clock = itertools.count(step=MAX_POLL_SECONDS / 2.5)
    monkeypatch.setattr(module, "time", SimpleNamespace(**{**vars(time), "thread_time": lambda: next(clock)}))
    for interval, read in enumerate((2, 4, 5), 1):
        while workers.stragglers._watch.comparing:
            workers.stragglers.poll(0)
        workers.stragglers.poll(round(interval * INTERVAL_SECONDS * SECOND))
        assert len(workers.read) == read
    assert {address for address, _ in workers.read} == set(workers.addresses)


def test_task_rates_are_read_at_once_before_too_many_are_unread(monkeypatch):
    workers = Workers(1, monkeypatch)
    for number in range(2 * MAX_UNREAD + 1):
        workers.send(number, number)
    assert [number for _, number in workers.read] == [0, MAX_UNREAD, 2 * MAX_UNREAD]


def test_the_last_unread_heartbeat_is_read_before_one_that_needs_it(monkeypatch):
    workers = Workers(1, monkeypatch)
    for number in range(3 * REPEATS):
        if number in {0, 1, 2, 3, 4, 5, 7, 10}:  # a worker's next heartbeat is up to three later
            workers.send(number, number)
        else:
            workers.writers[workers.addresses[0]].heartbeat(TaskRateCounter(), (float(number), 0.0, 0.0, 0.0, 0.0))
    (presence,) = workers.stragglers._cluster.present.values()
    assert not presence.missed
    assert [number for _, number in workers.read] == [0, 3, 7, 10]


def test_an_interval_is_no_shorter_than_the_time_between_two_heartbeats_that_are_read(monkeypatch):
    workers = Workers(2, monkeypatch)
    workers.stragglers.poll(0, 20.0)
    workers.stragglers.poll(19 * SECOND, 20.0)
    assert workers.stragglers._watch.last == 0
    for _ in range(10):
        workers.stragglers.poll(20 * SECOND, 20.0)
    assert workers.stragglers._watch.last == 20 * SECOND


def test_the_users_function_is_called_with_what_stands_still_and_may_ask_it_for_a_worker(caplog):
    called = []

    def react(scheduler, finding):
        called.append((scheduler, finding))
        if finding.worker:
            raise AssertionError("no worker is to be replaced")
        raise RuntimeError("after that")

    scheduler, stall = SimpleNamespace(workers={}), StalledWork("task", 1, "load", ("a",))
    StragglerReporter(scheduler, ClusterLedger(at=0), lambda: react).call(stall)
    assert called == [(scheduler, stall)]
    assert "on_straggler failed for 'task load'" in caplog.text
    assert "after that" in caplog.text
