"""The sum is exact: every thread-second of a live cluster is in one bucket, whatever happens to its workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, wait

from dask_efficiency import EfficiencyPlugin, EfficiencyReport, efficiency_report, snapshot
from dask_efficiency.buckets import HELD, combine
from dask_efficiency.ledger import FREE_BUCKETS
from tests.plugins.tasks import (
    Diary,
    fail_at_first,
    half_and_half,
    leave_the_pool,
    nap,
    nap_in_a_coroutine,
    spin,
    write_and_nap,
)
from tests.plugins.watch import Attendance, addresses, eventually, kill, near, nothing_runs, payloads, shrunk

pytestmark = pytest.mark.cluster

#: What a worker's total may be off an independent clock by: 0.1 %, at least 10 ms.
RELATIVE, ABSOLUTE = 0.001, 0.010

#: A worker's total may be ahead of the clock by the time that its first snapshot was on its way,
#: until a quicker one has come: up to 30 ms where two cores run four workers.
SLOW_JOIN = 0.030

FREE = (*FREE_BUCKETS, "no-work")


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    return Diary(tmp_path / "diary")


def mixture(client: Client, diary: Diary) -> list[Any]:
    """Tasks of all kinds, about a second of them on four threads."""
    return [
        *client.map(spin, [0.05] * 6, pure=False),
        *client.map(nap, [0.05] * 6, pure=False),
        *client.map(half_and_half, [0.05] * 6, pure=False),
        *client.map(nap_in_a_coroutine, [0.05] * 4, pure=False),
        *client.map(leave_the_pool, [0.02] * 4, [0.02] * 4, [0.1] * 4, pure=False),
        client.submit(fail_at_first, diary, 2, retries=2, pure=False),
    ]


def timed(function: Callable[..., Any], *args: Any) -> tuple[float, Any, float]:
    """The instants before and after a call, and what it gave."""
    before = time.monotonic()
    value = function(*args)
    return before, value, time.monotonic()


def assert_between(seconds: float, low: float, high: float, what: str) -> None:
    slack = max(ABSOLUTE, RELATIVE * high)
    assert low - slack <= seconds <= high + slack, f"{what}: {seconds:.4f} s; expected {low:.4f} to {high:.4f} s"


def test_each_snapshot_of_a_worker_adds_up_to_the_nanosecond(client, diary):
    futures = mixture(client, diary)
    seen = 0
    while not all(future.done() for future in futures) or seen < 20:
        for payload in payloads(client).values():
            seen += 1
            whole = sum(payload["settled"].values()) + payload["running"]
            assert whole == payload["nthreads"] * payload["elapsed"]
            held = sum(payload["settled"][str(b)] for b in HELD if b in payload["settled"])
            assert sum(map(sum, payload["prefixes"].values())) == held
    assert seen >= 20


def test_what_two_snapshots_differ_by_is_nthreads_times_an_independent_clock(client, diary):
    a, then, b = timed(snapshot, client)
    wait(mixture(client, diary))
    time.sleep(0.2)
    c, now, d = timed(snapshot, client)
    assert len(now.by_worker) == 2
    for name, row in now.by_worker.items():
        gained = (row.total_ns - then.by_worker[name].total_ns) / 1e9 / 2
        assert_between(gained, c - b - SLOW_JOIN, d - a, name)


def test_a_report_is_nthreads_times_the_time_inside_it(client, diary):
    outside = time.monotonic()
    with efficiency_report(client) as report:
        entered = time.monotonic()
        wait(mixture(client, diary))
        left = time.monotonic()
    outside = time.monotonic() - outside
    for name, row in report.by_worker.items():
        assert row.total_ns % 2 == 0
        assert_between(row.total / 2, left - entered, outside, name)
    assert_between(report.window_seconds, left - entered, outside, "window")
    assert sum(row.total_ns for row in report.by_worker.values()) == report.breakdown.total_ns


@pytest.mark.parametrize("repetition", range(3))
def test_a_window_of_50_ms_is_exact(client, repetition):
    outside = time.monotonic()
    with efficiency_report(client) as report:
        entered = time.monotonic()
        told = client.submit(nap, 0.05, pure=False).result()
        left = time.monotonic()
    outside = time.monotonic() - outside
    for name, row in report.by_worker.items():
        assert_between(row.total / 2, left - entered, outside, name)
    held = combine(report.by_prefix.values())
    assert held["thread-noncpu"] == pytest.approx(told["wall"], abs=0.005)
    free = report.breakdown.ns(*FREE)
    assert held.total_ns + free == report.breakdown.total_ns


def test_a_task_that_runs_across_the_whole_window_is_running_for_as_long(client, diary):
    future = client.submit(write_and_nap, diary, 0.8, pure=False)
    eventually(lambda: diary.read("start"))
    with efficiency_report(client) as report:
        time.sleep(0.3)
    assert not diary.read("stop")
    (row,) = [row for row in report.by_worker.values() if "running" in row]
    assert row["running"] == pytest.approx(row.total / 2, abs=1e-9)
    assert report.by_prefix["write_and_nap"].to_nanoseconds() == {"running": row.ns("running")}
    future.result()


def test_a_task_counts_in_a_window_only_for_its_part_in_it(client, diary):
    future = client.submit(write_and_nap, diary, 0.8, pure=False)
    eventually(lambda: diary.read("start"))
    time.sleep(0.3)
    before = time.monotonic()
    with efficiency_report(client) as report:
        after = time.monotonic()
        told = future.result()
    row = report.by_prefix["write_and_nap"]
    assert_between(row["thread-noncpu"], told["stop"] - after, told["stop"] - before, "inside")
    assert report.tasks == {"succeeded": 1}


def test_windows_that_follow_one_another_add_up_to_the_task(client, diary):
    future = client.submit(write_and_nap, diary, 0.6, pure=False)
    eventually(lambda: diary.read("start"))
    parts = []
    while not future.done():
        with efficiency_report(client) as report:
            time.sleep(0.1)
        parts.append(report.by_prefix["write_and_nap"].total)
    assert sum(parts) <= future.result()["wall"] + 0.015
    assert len(parts) >= 3


def test_a_report_across_a_kill_counts_the_worker_until_it_was_removed(mortal_client, attendance, diary):
    client = mortal_client
    first, second = addresses(client)
    with efficiency_report(client) as report:
        opened = time.monotonic()
        future = client.submit(write_and_nap, diary, 0.8, workers=[first], allow_other_workers=True, pure=False)
        eventually(lambda: diary.read("start"))
        kill(client, first)
        future.result()
        client.wait_for_workers(2)
        closed = time.monotonic()
    (again,) = attendance.joined.keys() - {first, second}
    name = attendance.names[first]
    expected = 2 * ((attendance.left[first] - opened) + (closed - attendance.joined[again]))
    assert report.by_worker[name].total == pytest.approx(expected, abs=0.06)
    assert report.by_worker[name]["lost-worker"] > 0
    assert report.by_worker[attendance.names[second]].total == pytest.approx(2 * (closed - opened), abs=0.06)


def test_a_worker_that_joins_inside_a_window_counts_from_when_it_was_there(new_cluster):
    with new_cluster(n_workers=1) as cluster, Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin())
        attendance = Attendance(cluster.scheduler)
        cluster.scheduler.add_plugin(attendance)
        (first,) = addresses(client)
        with efficiency_report(client) as report:
            cluster.scale(2)
            client.wait_for_workers(2)
            told = client.gather(client.map(nap, [0.3] * 4, pure=False))
            closed = time.monotonic()
        over = time.monotonic()
        (second,) = attendance.joined.keys() - {first}
        row = report.by_worker[attendance.names[second]]
        assert_between(row.total / 2, closed - attendance.joined[second], over - attendance.joined[second], "")
        assert row["unmeasured"] <= 0.4  # it imports the package, on two cores that others use too
        assert report.by_prefix["nap"]["thread-noncpu"] == near(sum(t["wall"] for t in told))


# -- no settled bucket ever shrinks ----------------------------------------------------------


@contextmanager
def polling(address: str) -> Iterator[list[EfficiencyReport]]:
    """Takes snapshots as fast as they come, in a thread with a client of its own."""
    taken: list[EfficiencyReport] = []
    failures: list[Exception] = []
    stop = threading.Event()

    def poll() -> None:
        with Client(address, set_as_default=False) as client:
            while not stop.wait(0.02):
                try:
                    taken.append(snapshot(client))
                except Exception as failure:
                    failures.append(failure)
                    return

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield taken
    finally:
        stop.set()
        thread.join()
    assert not failures


def test_no_settled_bucket_shrinks_whatever_happens_to_the_workers(mortal_client, attendance, tmp_path):
    client, cluster = mortal_client, mortal_client.cluster

    def work(i: int) -> list[Any]:
        return mixture(client, Diary(tmp_path / str(i)))

    with polling(cluster.scheduler_address) as taken:
        futures = work(0)
        client.register_plugin(EfficiencyPlugin(price_per_worker_hour=1))
        client.register_plugin(EfficiencyPlugin(max_prefixes=3))
        wait(futures)
        futures = work(1)
        cluster.scale(3)
        client.wait_for_workers(3)
        wait(futures)
        futures = work(2)
        kill(client, addresses(client)[0])
        wait(futures)
        futures = work(3)
        client.retire_workers([addresses(client)[0]])
        wait(futures)
        futures = work(4)
        client.restart()
        futures = work(5)
        cluster.scale(1)
        wait(futures)
        eventually(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == 1)
        eventually(lambda: nothing_runs(client))
        settled = len(taken)
        eventually(lambda: len(taken) > settled + 2)
    for then, now in pairwise(taken):
        assert shrunk(then.by_worker, now.by_worker) == []
        assert shrunk({"all": then.breakdown}, {"all": now.breakdown}) == []
    before, now, after = timed(snapshot, client)
    for name, row in now.by_worker.items():
        # Every life of a worker of this name counts from its joining to its removal.
        lives = sum(1 for other in attendance.names.values() if other == name)
        least, most = attendance.thread_seconds(name, before, after)
        slack = 2 * lives * SLOW_JOIN
        assert least - slack <= row.total <= most + slack, (name, row, least, most)
        assert not row["running"]
