"""Slots that wait while a worker's event loop spills, judged by clocks of the tests' own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client, wait

from dask_efficiency import EfficiencyPlugin, critical_path, efficiency_report
from tests.plugin.tasks import increment
from tests.plugin.watch import eventually, nothing_runs, payloads

pytestmark = pytest.mark.cluster
#: Seconds for which the loop spills in the tests in which it waits for the word to go on.
SPILLING = 0.6
#: What the day's clock and the monotonic one may differ in over a second, with the hand-over of a thread.
SLACK = 0.05

SPILLING_IS_THE_ONLY_TROUBLE = {
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.admin.tick.limit": "1h",
}


@pytest.fixture
def client(new_cluster: Any) -> Iterator[Client]:
    """Of one worker of two threads that spills when the test says so."""
    memory = SPILLING_IS_THE_ONLY_TROUBLE | {"distributed.worker.memory.spill": False}
    with dask.config.set(memory), new_cluster(n_workers=1, memory_limit="1 GiB") as cluster, Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin())
        eventually(lambda: nothing_runs(client))
        yield client


class SlowDisk:
    """Spilling that begins, and goes on until the test ends it."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.client = client
        self.begun, self.go_on = folder / "begun", folder / "go-on"
        #: When the eviction began and ended.
        self.times = (0.0, 0.0)

    @contextmanager
    def spilling(self) -> Iterator[None]:
        """The worker's event loop evicts something all the time."""
        result = self.client.scatter(np.ones(100_000), direct=False)
        wait(result)
        thread = threading.Thread(target=self._evict)
        thread.start()
        try:
            eventually(self.begun.exists)
            yield
        finally:
            self.go_on.touch()
            thread.join()

    def _evict(self) -> None:
        begun, go_on = self.begun, self.go_on

        def evict(dask_worker: Any) -> tuple[float, float]:
            slow = dask_worker.data.slow.data
            dump = slow.dump

            def wait_and_dump(value: Any) -> Any:
                begun.touch()
                while not go_on.exists():
                    time.sleep(0.002)
                return dump(value)

            slow.dump = wait_and_dump
            try:
                start = time.monotonic()
                assert dask_worker.data.evict() > 0
                return start, time.monotonic()
            finally:
                slow.dump = dump

        (self.times,) = self.client.run(evict).values()


@pytest.fixture
def disk(client: Client, tmp_path: Path) -> SlowDisk:
    return SlowDisk(client, tmp_path)


def pass_by(seconds: float) -> None:
    """Time passes, whatever the signals."""
    until = time.monotonic() + seconds
    eventually(lambda: time.monotonic() > until)


def wait_for(path: Path) -> float:
    """A task that ends when the test says so; gives when that was."""
    path.with_suffix(".begun").touch()
    while not path.exists():
        time.sleep(0.002)
    path.with_suffix(".ended").touch()
    return time.monotonic()


def test_slots_whose_tasks_are_done_while_the_loop_spills_are_spill(client, disk, tmp_path):
    ends = [tmp_path / "a", tmp_path / "b"]
    with efficiency_report(client) as report:
        futures = client.map(wait_for, ends, pure=False)
        eventually(lambda: all(end.with_suffix(".begun").exists() for end in ends))
        with disk.spilling():
            for end in ends:
                end.touch()
            eventually(lambda: all(end.with_suffix(".ended").exists() for end in ends))
            pass_by(SPILLING)
        results = client.gather(futures)
    waited = sum(disk.times[1] - end for end in results)
    assert waited > 2 * (SPILLING - SLACK)
    assert report.breakdown["spill"] == pytest.approx(waited, abs=2 * SLACK)
    assert report.by_prefix["wait_for"]["spill"] == pytest.approx(waited, abs=2 * SLACK)
    assert report.outside.get("spill by the memory manager", 0.0) < SLACK


def test_free_slots_with_unread_tasks_while_the_loop_spills_are_spill(client, disk):
    with efficiency_report(client) as report:
        with disk.spilling():
            pass_by(SPILLING)
            sent_after = time.monotonic()
            futures = client.map(increment, range(2), pure=False)
            eventually(lambda: sum(map(len, client.processing().values())) == 2)
            sent_before = time.monotonic()
            pass_by(SPILLING)
        client.gather(futures)
    least, most = 2 * (disk.times[1] - sent_before), 2 * (disk.times[1] - sent_after)
    assert least - SLACK <= report.breakdown["spill"] <= most + SLACK
    # Before they were sent the slots had nothing to do.
    assert report.breakdown["no-work"] + report.breakdown["idle"] >= 2 * SPILLING


def test_the_critical_path_has_the_spilling_that_delayed_the_end_or_start_of_a_task(client, disk, tmp_path):
    end = tmp_path / "a"
    with efficiency_report(client, trace=True) as report:
        ending = client.submit(wait_for, end, pure=False)
        eventually(end.with_suffix(".begun").exists)
        with disk.spilling():
            end.touch()
            eventually(end.with_suffix(".ended").exists)
            pass_by(SPILLING)
        done = ending.result()
        kept_from_its_end = disk.times[1] - done
    assert kept_from_its_end > SPILLING - SLACK
    found = critical_path(report.trace).seconds("kind")
    assert found["spill"] == pytest.approx(kept_from_its_end, abs=SLACK)

    for path in (disk.begun, disk.go_on):
        path.unlink()
    with efficiency_report(client, trace=True) as report:
        with disk.spilling():
            sent = time.monotonic()
            starting = client.submit(increment, 1, pure=False)
            eventually(lambda: any(client.processing().values()))
            pass_by(SPILLING)
        starting.result()
    found = critical_path(report.trace).seconds("kind")
    assert SPILLING <= found["spill"] <= disk.times[1] - sent + SLACK


def test_spilling_that_delays_no_slot_is_outside_the_buckets(client, disk):
    with efficiency_report(client) as report, disk.spilling():
        pass_by(SPILLING)
    assert report.breakdown["spill"] == 0
    assert report.outside["spill by the memory manager"] == pytest.approx(disk.times[1] - disk.times[0], abs=SLACK)


def test_tasks_that_wait_for_spilling_are_in_the_activity_view_before_they_end(client, disk, tmp_path):
    end = tmp_path / "a"
    future = client.submit(wait_for, end, pure=False)
    eventually(end.with_suffix(".begun").exists)
    other = client.submit(wait_for, tmp_path / "b", pure=False)
    eventually((tmp_path / "b.begun").exists)
    with disk.spilling():
        end.touch()
        eventually(end.with_suffix(".ended").exists)
        pass_by(SPILLING)
    future.result()
    (payload,) = payloads(client).values()
    assert payload["active"]["spill"] >= (SPILLING - SLACK) * 1e9
    assert sum(payload["active"].values()) == payload["running"] + sum(
        payload["settled"][bucket]
        for bucket in ("thread-cpu", "gpu", "thread-noncpu", "spill", "overhead", "failed", "cancelled", "recomputed")
    )
    (tmp_path / "b").touch()
    other.result()
