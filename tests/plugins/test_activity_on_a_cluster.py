"""The activity view of live clusters: what threads do shows while they do it, and is never taken back."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import dask
import pytest
from distributed import Client, wait

from dask_efficiency import snapshot
from dask_efficiency.ledger import ACTIVE_BUCKETS, FREE_BUCKETS
from dask_efficiency.report.live import Reading, read
from tests.plugins.tasks import burn, half_and_half, leave_the_pool, nap, nap_in_a_coroutine, spin
from tests.plugins.watch import eventually, kill, near, nothing_runs, payloads

pytestmark = pytest.mark.cluster

#: Times that a long task is looked at while it runs, and the seconds in between.
SCRAPES, INTERVAL = 6, 0.4


def burn_nap_and_fail(cpu_seconds: float, seconds: float) -> None:
    burn(cpu_seconds)
    time.sleep(seconds)
    raise ArithmeticError("after a while")


def live(client: Client) -> Reading:
    """What a live view is told, as far as heartbeats have come."""
    return read(client.sync(client.scheduler.efficiency, action="live"))


def now(client: Client) -> Reading:
    """The same, exact to this instant."""
    snapshot(client)
    return live(client)


def activity(payload: Mapping[str, Any]) -> dict[str, int]:
    """A worker's activity view: what its held slots did, and its free slots' buckets."""
    return {**payload["active"], **{str(bucket): payload["settled"].get(str(bucket), 0) for bucket in FREE_BUCKETS}}


def held(client: Client) -> dict[str, float]:
    """Seconds so far by what held slots did, on all workers together."""
    rows = [payload["active"] for payload in payloads(client).values()]
    return {str(bucket): sum(row.get(str(bucket), 0) for row in rows) / 1e9 for bucket in ACTIVE_BUCKETS}


def watched(client: Client, future: Any) -> list[dict[str, float]]:
    """The held slots' activity at each of some scrapes, all while a task runs."""
    eventually(lambda: not nothing_runs(client))
    seen = []
    for _ in range(SCRAPES):
        seen.append(held(client))
        time.sleep(INTERVAL)
    assert not future.done(), "the task was to run on for all scrapes"
    return seen


def gains(seen: list[dict[str, float]], bucket: str) -> list[float]:
    return [after[bucket] - before[bucket] for before, after in pairwise(seen)]


@contextmanager
def a_process_pool(client: Client) -> Iterator[None]:
    """The workers get an executor named "processes"."""

    def add(dask_worker: Any) -> None:
        pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
        pool.submit(int).result()
        dask_worker.executors["processes"] = pool

    client.run(add)
    try:
        with dask.annotate(executor="processes"):
            yield
    finally:
        client.run(lambda dask_worker: dask_worker.executors.pop("processes").shutdown())


def assert_nothing_shrank(then: Mapping[str, int], after: Mapping[str, int]) -> None:
    assert {name: (ns, after.get(name, 0)) for name, ns in then.items() if after.get(name, 0) < ns} == {}


def test_every_scrape_of_a_worker_adds_up_to_its_threads_times_its_time(client):
    futures = [
        *client.map(half_and_half, [0.2] * 6, pure=False),
        *client.map(nap_in_a_coroutine, [0.1] * 4, pure=False),
        *client.map(leave_the_pool, [0.05] * 4, [0.02] * 4, [0.1] * 4, pure=False),
        *client.map(burn_nap_and_fail, [0.05] * 4, [0.05] * 4, pure=False),
    ]
    before: dict[str, dict[str, int]] = {}
    scrapes = 0
    while not all(future.done() for future in futures) or scrapes < 20:
        scrapes += 1
        for address, payload in payloads(client).items():
            view = activity(payload)
            assert sum(view.values()) == payload["nthreads"] * payload["elapsed"]
            assert_nothing_shrank(before.get(address, {}), view)
            before[address] = view


def test_the_clusters_two_views_cover_the_same_time_and_only_grow(client):
    futures = client.map(half_and_half, [0.3] * 8, pure=False)
    before = now(client)
    while not all(future.done() for future in futures):
        reading = now(client)
        assert sum(reading.activity.values()) == sum(reading.buckets.values())
        for worker in reading.workers.values():
            assert sum(worker.activity.values()) > 0
        assert_nothing_shrank(before.activity, reading.activity)
        lived = sum(reading.activity.values()) - sum(before.activity.values())
        assert lived / 1e9 == pytest.approx(4 * (reading.at - before.at) / 1e9, abs=4 * 0.5)
        before = reading


def test_a_long_spinning_task_shows_as_thread_cpu_at_every_scrape(client):
    began = held(client)
    future = client.submit(spin, SCRAPES * INTERVAL + 1, pure=False)
    seen = watched(client, future)
    assert min(gains(seen, "thread-cpu")) > 0.1 * INTERVAL
    told = future.result()
    assert held(client)["thread-cpu"] - began["thread-cpu"] == near(told["cpu"])


def test_a_long_sleeping_task_shows_as_thread_noncpu_at_every_scrape(client):
    future = client.submit(nap, SCRAPES * INTERVAL + 1.5, pure=False)
    seen = watched(client, future)
    assert min(gains(seen, "thread-noncpu")) > 0.9 * INTERVAL
    assert max(gains(seen, "thread-cpu")) < 0.1 * INTERVAL


def test_a_long_coroutine_shows_as_thread_noncpu_at_every_scrape(client):
    future = client.submit(nap_in_a_coroutine, SCRAPES * INTERVAL + 1.5, pure=False)
    assert min(gains(watched(client, future), "thread-noncpu")) > 0.9 * INTERVAL


def test_a_long_task_of_a_process_pool_shows_as_thread_noncpu_at_every_scrape(client):
    with a_process_pool(client):
        future = client.submit(spin, SCRAPES * INTERVAL + 1, pure=False)
        assert min(gains(watched(client, future), "thread-noncpu")) > 0.9 * INTERVAL
        wait(future)


def test_a_seceded_tasks_slot_shows_what_it_did_before_and_is_free_after(client):
    began = held(client)
    future = client.submit(leave_the_pool, 0.5, 0.1, SCRAPES * INTERVAL + 1.5, pure=False)
    eventually(lambda: any(client.run(lambda dask_worker: len(dask_worker.state.long_running)).values()))
    seen = watched(client, future)
    assert seen[0]["thread-cpu"] - began["thread-cpu"] == near(0.5)
    assert seen[-1] == seen[0]
    assert future.result()["inside"]["cpu"] == near(seen[0]["thread-cpu"] - began["thread-cpu"])


def test_a_task_that_fails_after_a_while_takes_back_nothing_that_it_did(client):
    began, so_far = now(client), held(client)["thread-cpu"]
    future = client.submit(burn_nap_and_fail, 1.0, 2.0, pure=False)
    eventually(lambda: held(client)["thread-cpu"] - so_far > 0.98)
    time.sleep(1)
    running = now(client)
    assert not future.done()
    wait(future)
    eventually(lambda: nothing_runs(client))
    ended = now(client)

    def gained(then: Mapping[str, int], after: Mapping[str, int], name: str) -> float:
        return (after.get(name, 0) - then.get(name, 0)) / 1e9

    assert gained(began.activity, running.activity, "thread-cpu") == near(1.0)
    assert gained(began.activity, running.activity, "thread-noncpu") > 0.5
    assert_nothing_shrank(running.activity, ended.activity)
    assert gained(began.activity, ended.activity, "thread-cpu") == near(1.0)
    assert gained(began.buckets, running.buckets, "failed") == 0
    assert gained(began.buckets, ended.buckets, "failed") > 2.9
    assert gained(began.buckets, ended.buckets, "thread-cpu") < 0.1
    assert ended.tasks["failed"] == began.tasks.get("failed", 0) + 1


def test_a_killed_workers_time_is_lost_in_both_views_and_nothing_shrinks(mortal_client):
    client = mortal_client
    futures = client.map(half_and_half, [1.0] * 8, pure=False, retries=3)
    eventually(lambda: not nothing_runs(client))
    time.sleep(0.7)
    readings = [now(client)]
    kill(client, next(iter(client.scheduler_info(n_workers=-1)["workers"])))
    while readings[-1].buckets.get("lost-worker", 0) == 0 or len(readings) < 10:
        time.sleep(0.1)
        readings.append(live(client))
        assert len(readings) < 200
    wait(futures)
    readings.append(now(client))
    for then, after in pairwise(readings):
        assert_nothing_shrank(then.activity, after.activity)
        for name in then.workers.keys() & after.workers.keys():
            assert_nothing_shrank(then.workers[name].activity, after.workers[name].activity)
    last = readings[-1]
    assert 0 < last.activity["lost-worker"] <= last.buckets["lost-worker"]
    assert sum(last.activity.values()) == sum(last.buckets.values())
    assert last.activity["thread-cpu"] >= readings[0].activity["thread-cpu"]
