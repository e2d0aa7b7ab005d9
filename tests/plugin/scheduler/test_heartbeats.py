"""Which heartbeats are read: costs are handed in, none is measured."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.plugin.names import METRIC, SENSORS
from dask_efficiency.plugin.scheduler.heartbeats import (
    DASK_METRICS,
    MAX_SHARE,
    SMOOTHED_SECONDS,
    HeartbeatShare,
    dask_metric,
    host_sensors,
)
from tests.strategies import odd_names, odd_numbers

POLL_NS = 500_000_000
POLLS_A_HEARTBEAT = 12


class Cluster:
    """Workers that each send a heartbeat in the same one of twelve polls."""

    def __init__(self, workers: int, longest: float = 4.0) -> None:
        self.share = HeartbeatShare()
        self.longest = longest
        self.workers = [str(number) for number in range(workers)]
        self.polls = 0
        self.reads: list[list[str]] = []
        self.cannot_wait: set[str] = set()

    def run(self, seconds: float, *, reading_seconds: float, other_seconds: float = 0.0) -> list[list[str]]:
        """What each poll of so long a time read."""
        begun = len(self.reads)
        for _ in range(round(seconds * 1e9 / POLL_NS)):
            arrived = self.workers[self.polls % POLLS_A_HEARTBEAT :: POLLS_A_HEARTBEAT]
            chosen = self.share.choose(arrived, longest=self.longest, must=self.cannot_wait.__contains__)
            self.polls += 1
            seconds, counts = reading_seconds * len(chosen), {"arrived": len(arrived), "read": len(chosen)}
            self.share.spent(self.polls * POLL_NS, other_seconds, reading_seconds=seconds, **counts)
            self.reads.append(chosen)
        return self.reads[begun:]


def gaps(reads: list[list[str]]) -> Counter[int]:
    """How many heartbeats apart those were that were read of the same worker."""
    found: Counter[int] = Counter()
    last: dict[str, int] = {}
    for poll, workers in enumerate(reads):
        for worker in workers:
            if worker in last:
                found[(poll - last[worker]) // POLLS_A_HEARTBEAT] += 1
            last[worker] = poll
    return found


def test_every_heartbeat_is_read_while_polls_take_less_than_their_share() -> None:
    cluster = Cluster(240)
    reads = cluster.run(300, reading_seconds=0.9 * MAX_SHARE / 40)
    assert {len(workers) for workers in reads} == {20}
    assert cluster.share.every(4.0) == 1


def test_polls_that_would_take_more_read_as_many_as_the_share_allows() -> None:
    cluster = Cluster(240)
    # 40 a second would take 2.5 times what the rest of the polls leaves of the share.
    cost, rest = 2.5 * 0.8 * MAX_SHARE / 40, 0.2 * MAX_SHARE / 2
    cluster.run(20 * SMOOTHED_SECONDS, reading_seconds=cost, other_seconds=rest)
    assert cluster.share.every(4.0) == pytest.approx(2.5, rel=0.03)
    reads = cluster.run(300, reading_seconds=cost, other_seconds=rest)
    spent = (cost * sum(map(len, reads)) + rest * len(reads)) / 300
    assert spent == pytest.approx(MAX_SHARE, rel=0.03)
    # Evenly over time, and fairly.
    assert max(map(len, reads)) - min(map(len, reads)) <= 2
    assert set(gaps(reads)) <= {2, 3}
    assert set(Counter(worker for workers in reads for worker in workers)) == set(cluster.workers)
    times = Counter(worker for workers in reads for worker in workers).values()
    assert max(times) - min(times) <= 1


def test_each_worker_is_read_as_often_as_it_must_be_whatever_polls_take() -> None:
    cluster = Cluster(240)
    cluster.run(100, reading_seconds=0.01)
    assert cluster.share.every(4.0) == 4
    reads = cluster.run(300, reading_seconds=0.01)
    assert set(gaps(reads)) == {4}
    assert {len(workers) for workers in reads} == {5}
    # Where heartbeats are so far apart that none may be left out, none is.
    cluster.longest = 1.0
    assert {len(workers) for workers in cluster.run(10, reading_seconds=0.01)} == {20}


def test_workers_that_cannot_wait_are_always_read() -> None:
    cluster = Cluster(240)
    cluster.run(100, reading_seconds=0.01)
    cluster.cannot_wait = {"0", "1", "13"}
    times = Counter(worker for workers in cluster.run(60, reading_seconds=0.01) for worker in workers)
    assert [times[worker] for worker in ("0", "1", "13")] == [10, 10, 10]
    assert set(times.values()) <= {2, 3, 10}


@pytest.mark.parametrize(
    ("seconds", "costs", "later", "every"),
    [
        (200, {"reading_seconds": 0.01}, 6 * SMOOTHED_SECONDS, 1),
        (1, {"reading_seconds": 0.5 * MAX_SHARE * SMOOTHED_SECONDS / 40}, 0, 1),
        (200, {"reading_seconds": 1e-6, "other_seconds": MAX_SHARE}, 0, 4),
    ],
    ids=["when the load has fallen again", "after a short burst", "while other work takes the share"],
)
def test_heartbeats_are_read_as_the_load_lets_them(seconds, costs, later, every) -> None:
    cluster = Cluster(240)
    cluster.run(60, reading_seconds=1e-6)
    cluster.run(seconds, **costs)
    cluster.run(later, reading_seconds=0.1 * MAX_SHARE / 40)
    assert cluster.share.every(4.0) == every
    assert {len(workers) for workers in cluster.run(10, reading_seconds=1e-6)} == {20 // every}


def test_a_worker_that_left_is_forgotten() -> None:
    cluster = Cluster(24)
    cluster.run(12, reading_seconds=1e-6)
    for worker in cluster.workers:
        cluster.share.left(worker)
    cluster.share.left("unknown")
    assert not cluster.share._turns


anything = odd_names | odd_numbers | st.dictionaries(odd_names, odd_numbers)


@given(st.sampled_from(sorted(DASK_METRICS)), anything)
def test_users_metrics_in_place_of_dasks_own_are_numbers_or_missing(name: str, value: Any) -> None:
    outer, *inner = DASK_METRICS[name]
    for metrics in ({outer: value}, {outer: dict.fromkeys(inner, value)}, {METRIC: value}, {METRIC: {SENSORS: value}}):
        assert type(dask_metric(metrics, name)) is float
        assert host_sensors(metrics).dtype == np.float32


@pytest.mark.parametrize(("value", "found"), [(50, 0.5), (50.0, 0.5), (True, math.nan), (10**400, math.nan)])
def test_a_metric_is_a_number_and_no_bool(value: object, found: float) -> None:
    assert dask_metric({"cpu": value}, "cpu") == pytest.approx(found, nan_ok=True)
