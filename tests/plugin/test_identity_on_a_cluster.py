"""The sum is exact: every thread-second of a live cluster is in one bucket, whatever happens to its workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
from distributed import Client, wait

from dask_efficiency import EfficiencyPlugin, EfficiencyReport, snapshot
from dask_efficiency.accounts.buckets import HELD
from dask_efficiency.accounts.worker.balance import FREE_BUCKETS
from tests.plugin import tasks
from tests.plugin.watch import (
    Attendance,
    addresses,
    after_the_scheduler,
    ahead_of_the_clock,
    assert_between,
    between,
    eventually,
    kill,
    nothing_runs,
    off_cpu,
    payloads,
    shrunk,
    silence,
    timed_report,
)

pytestmark = pytest.mark.cluster

FREE = (*FREE_BUCKETS, "no-work")


def mixture(client: Client, diary: tasks.Diary) -> list[Any]:
    """Tasks of all kinds, about a second of them on four threads."""
    return [
        *client.map(tasks.spin, [0.05] * 6, pure=False),
        *client.map(tasks.nap, [0.05] * 6, pure=False),
        *client.map(tasks.half_and_half, [0.05] * 6, pure=False),
        *client.map(tasks.nap_in_a_coroutine, [0.05] * 4, pure=False),
        *client.map(tasks.leave_the_pool, [0.02] * 4, [0.02] * 4, [0.1] * 4, pure=False),
        client.submit(tasks.fail_at_first, diary, 2, retries=2, pure=False),
    ]


def timed(function: Callable[..., Any], *args: Any) -> tuple[float, Any, float]:
    """The instants before and after a call, and what it gave."""
    before = time.monotonic()
    value = function(*args)
    return before, value, time.monotonic()


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


def test_two_snapshots_differ_by_nthreads_times_an_independent_clock(client, diary):
    a, then, b = timed(snapshot, client)
    wait(mixture(client, diary))
    time.sleep(0.2)
    c, now, d = timed(snapshot, client)
    assert len(now.by_worker) == 2
    for name, row in now.by_worker.items():
        gained = (row.total_ns - then.by_worker[name].total_ns) / 1e9 / 2
        assert_between(gained, c - b - ahead_of_the_clock(then, name), d - a, name)


def test_a_report_is_nthreads_times_the_time_inside_it(client, diary):
    with timed_report(client) as (report, window):
        wait(mixture(client, diary))
    for name, row in report.by_worker.items():
        assert row.total_ns % 2 == 0
        assert_between(row.total / 2, window.least, window.most, name)
    assert_between(report.window_seconds, window.least, window.most, "window")
    assert sum(row.total_ns for row in report.by_worker.values()) == report.breakdown.total_ns


def test_a_task_counts_in_a_window_only_for_its_part_in_it(client, diary):
    future = client.submit(tasks.wait_for_word, diary, pure=False)
    eventually(lambda: diary.read("start"))
    time.sleep(0.3)
    with timed_report(client) as (report, window):
        time.sleep(0.3)
        diary.write(event="go")
        result = future.result()
    row = report.by_prefix["wait_for_word"]
    assert row.total == between(result["stop"] - window.entered, window.most)
    inside = row["thread-noncpu"] + row["overhead"]  # each counts for its share, however long the hand-over took
    assert inside == between(result["stop"] - window.entered - result["cpu"], window.most)
    assert report.tasks == {"succeeded": 1}


def test_a_report_across_a_kill_counts_the_worker_until_it_was_removed(mortal_client, attendance, diary):
    client = mortal_client
    first, _ = addresses(client)
    with timed_report(client) as (report, window):
        future = client.submit(tasks.wait_for_word, diary, workers=[first], allow_other_workers=True, pure=False)
        eventually(lambda: diary.read("start"))
        silence(client, first)
        kill(client, first)
        diary.write(event="go")
        gone, there = attendance.replaced(client, first)
        future.result()
    assert report.by_worker[attendance.names[first]]["lost-worker"] > 0
    attendance.assert_lives(report, window, gone=gone, there=there)


def test_a_worker_that_joins_inside_a_window_counts_from_when_it_was_there(new_cluster):
    with new_cluster(n_workers=1) as cluster, Client(cluster) as client:
        attendance = Attendance(cluster.scheduler)
        cluster.scheduler.add_plugin(attendance)
        client.register_plugin(EfficiencyPlugin())
        (first,) = addresses(client)
        with timed_report(client) as (report, window):
            cluster.scale(2)
            (second,) = eventually(lambda: attendance.joined.keys() - {first})
            there = after_the_scheduler(client)
            naps = time.monotonic()
            results = client.gather(client.map(tasks.nap, [0.3] * 4, pure=False))
            elapsed = eventually(lambda: payloads(client)[second])["elapsed"] / 1e9
            metered = time.monotonic() - elapsed
        row = report.by_worker[attendance.names[second]]
        joined = attendance.joined[second]
        assert_between(row.total / 2, window.left - there, window.closed - joined, "the second worker")
        assert_between(row["unmeasured"] / 2, 0, metered - joined, "until it was metered")
        assert report.by_prefix["nap"]["thread-noncpu"] == between(off_cpu(results), 4 * (window.closed - naps))


# -- no settled bucket ever shrinks ----------------------------------------------------------


@contextmanager
def polling(address: str) -> Iterator[list[tuple[float, EfficiencyReport, float]]]:
    """Takes snapshots as fast as they come, in a thread with a client of its own; with the instants around each."""
    taken: list[tuple[float, EfficiencyReport, float]] = []
    failures: list[Exception] = []
    stop = threading.Event()

    def poll() -> None:
        with Client(address, set_as_default=False) as client:
            while not stop.wait(0.02):
                try:
                    taken.append(timed(snapshot, client))
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
        return mixture(client, tasks.Diary(tmp_path / str(i)))

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
        eventually(lambda: len(addresses(client)) == 1)
        eventually(lambda: nothing_runs(client))
        finalized = len(taken)
        eventually(lambda: len(taken) > finalized + 2)
    for (_, then, _), (_, now, _) in pairwise(taken):
        assert shrunk(then.by_worker, now.by_worker) == []
        assert shrunk({"all": then.breakdown}, {"all": now.breakdown}) == []
    before, now, after = timed(snapshot, client)
    # What a worker's total may be ahead of the clock: the time that its quickest snapshot was on its way.
    ahead = max(received - asked for asked, _, received in taken)
    for name, row in now.by_worker.items():
        # Every life of a worker of this name counts from its joining to its removal.
        lives = sum(1 for other in attendance.names.values() if other == name)
        least, most = attendance.thread_seconds(name, before, after)
        slack = 2 * lives * ahead
        assert least - slack <= row.total <= most + slack, (name, row, least, most)
        assert not row["running"]
