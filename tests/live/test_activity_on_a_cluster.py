"""The activity view of live clusters: what threads do shows while they do it, and is never taken back."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from distributed import Client, wait

from dask_efficiency import snapshot
from dask_efficiency.accounts.buckets import CAUSES, causes_of
from dask_efficiency.accounts.worker.balance import ACTIVE_BUCKETS, FREE_BUCKETS
from dask_efficiency.live.top_view import Observation, read
from tests.plugin.tasks import (
    Diary,
    burn,
    half_and_half,
    leave_the_pool,
    leave_the_pool_until_word,
    nap_in_a_coroutine,
    spin_until_word,
    wait_for_word,
)
from tests.plugin.watch import addresses, between, eventually, kill, near, nothing_runs, payloads, silence

pytestmark = pytest.mark.cluster

#: Times that a long task is looked at while it runs, and the seconds in between.
SCRAPES, INTERVAL = 4, 0.3


def burn_nap_and_fail(cpu_seconds: float, seconds: float) -> None:
    burn(cpu_seconds)
    time.sleep(seconds)
    raise ArithmeticError("after a while")


def live(client: Client) -> Observation:
    """A live view's figures, as far as heartbeats have come."""
    return read(client.sync(client.scheduler.efficiency, action="live"))


def now(client: Client) -> Observation:
    """The same, exact to this instant."""
    snapshot(client)
    return live(client)


def timed_now(client: Client) -> tuple[float, Observation, float]:
    """With the instants before and after it."""
    return time.monotonic(), now(client), time.monotonic()


def activity(payload: Mapping[str, Any]) -> dict[str, int]:
    """A worker's activity view: what its held slots did, and its free slots' buckets."""
    return {**payload["active"], **{str(bucket): payload["settled"].get(str(bucket), 0) for bucket in FREE_BUCKETS}}


def held(client: Client) -> dict[str, float]:
    """Seconds so far by what held slots did, on all workers together."""
    rows = [payload["active"] for payload in payloads(client).values()]
    return {str(bucket): sum(row.get(str(bucket), 0) for row in rows) / 1e9 for bucket in ACTIVE_BUCKETS}


def cpu_of_tasks(dask_worker: Any) -> float:
    """CPU time so far of the threads that are at a task, by their own clocks."""
    with dask_worker.active_threads_lock:
        clocks = [time.pthread_getcpuclockid(ident) for ident in dask_worker.active_threads]
        return sum(map(time.clock_gettime, clocks))


@dataclass
class Scrape:
    """The held slots' activity, and the clocks before and after it was read."""

    held: dict[str, float]
    at: tuple[float, float]
    cpu: tuple[float, float]


def scrape(client: Client) -> Scrape:
    at, cpu = time.monotonic(), sum(client.run(cpu_of_tasks).values())
    found = held(client)
    return Scrape(found, (at, time.monotonic()), (cpu, sum(client.run(cpu_of_tasks).values())))


def watched(client: Client, diary: Diary) -> list[Scrape]:
    """Some scrapes, all while the one task that there is waits for the word to end."""
    eventually(lambda: diary.read("start"))
    seen = [scrape(client)]
    while len(seen) < SCRAPES:
        time.sleep(INTERVAL)
        seen.append(scrape(client))
    diary.write(event="go")
    return seen


def assert_gains(seen: list[Scrape], bucket: str) -> None:
    """From each scrape to the next, a bucket gains what the CPU clock of the task's thread does, or all but that."""
    for before, after in pairwise(seen):
        gained = after.held[bucket] - before.held[bucket]
        least_cpu, most_cpu = max(0.0, after.cpu[0] - before.cpu[1]), after.cpu[1] - before.cpu[0]
        if bucket == "thread-cpu":
            assert gained == between(least_cpu, most_cpu)
        else:
            least, most = after.at[0] - before.at[1], after.at[1] - before.at[0]
            assert gained == between(max(0.0, least - most_cpu), most - least_cpu)


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


def test_the_clusters_two_views_and_causes_cover_the_same_time_and_only_grow(client):
    futures = client.map(half_and_half, [0.3] * 8, pure=False)
    asked, before, answered = timed_now(client)
    # A worker's total may be ahead of the clock by as long as the quickest of its snapshots was on its way.
    ahead = answered - asked
    while not all(future.done() for future in futures):
        asks, reading, answers = timed_now(client)
        assert sum(reading.activity.values()) == sum(reading.buckets.values())
        for worker in reading.workers.values():
            assert sum(worker.activity.values()) > 0
        for bucket in CAUSES:
            assert sum(causes_of(reading.causes, bucket).values()) == reading.activity[bucket], bucket
        assert_nothing_shrank(before.activity, reading.activity)
        assert_nothing_shrank(before.causes, reading.causes)
        lived = sum(reading.activity.values()) - sum(before.activity.values())
        assert lived / 1e9 == between(4 * max(0.0, asks - answered - ahead), 4 * (answers - asked))
        asked, before, answered = asks, reading, answers
    assert before.not_sampled == {}

    def most_sleep_is_known() -> bool:  # however late the sampling began
        client.gather(client.map(half_and_half, [0.3] * 8, pure=False))
        causes = now(client).causes
        return causes["thread-noncpu/sleep"] > causes["thread-noncpu/unknown"]

    eventually(most_sleep_is_known)


@pytest.mark.parametrize(
    ("task", "bucket"), [(spin_until_word, "thread-cpu"), (wait_for_word, "thread-noncpu")], ids=["spins", "sleeps"]
)
def test_a_long_task_shows_at_every_scrape(client, diary, task, bucket):
    began = held(client)
    future = client.submit(task, diary, pure=False)
    assert_gains(watched(client, diary), bucket)
    used = future.result()
    assert held(client)["thread-cpu"] - began["thread-cpu"] == near(used["cpu"])


def test_a_seceded_task_keeps_its_time_from_before_and_its_slot_becomes_free(client, diary):
    began = held(client)
    future = client.submit(leave_the_pool_until_word, diary, 0.5, 0.1, pure=False)
    first, *_, last = watched(client, diary)
    assert last.held == first.held
    assert future.result()["cpu"] == near(first.held["thread-cpu"] - began["thread-cpu"])


def test_a_killed_workers_time_is_lost_in_both_views_and_nothing_shrinks(mortal_client):
    client = mortal_client
    futures = client.map(half_and_half, [1.0] * 8, pure=False, retries=3)
    eventually(lambda: not nothing_runs(client))
    time.sleep(0.7)
    readings = [now(client)]
    killed = addresses(client)[0]
    silence(client, killed)  # else nothing may be lost, as right after a heartbeat
    kill(client, killed)
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
