"""Clusters whose workers come and go while a report is open: every task and thread-second counts once."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster

from dask_efficiency import EfficiencyPlugin, efficiency_report
from dask_efficiency.accounts.buckets import HELD, combine
from dask_efficiency.report.replies import ask_history
from tests.plugin.tasks import nap
from tests.plugin.watch import Attendance, addresses, eventually, kill

pytestmark = pytest.mark.cluster


@pytest.fixture
def cluster(new_cluster: Any) -> Iterator[LocalCluster]:
    """Of workers with one thread; none at first."""
    with new_cluster(n_workers=0, threads_per_worker=1) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin())
        yield client


def test_every_task_of_an_adaptive_run_counts_once(cluster: LocalCluster, client: Client) -> None:
    attendance = Attendance(cluster.scheduler)
    cluster.scheduler.add_plugin(attendance)
    cluster.adapt(minimum=0, maximum=3, interval="100ms", wait_count=2, target_duration="1s")
    before = time.monotonic()
    with efficiency_report(client) as found:
        for _ in range(2):
            client.gather(client.map(nap, [0.1] * 20, pure=False))
            eventually(lambda: not cluster.scheduler.workers, seconds=60)
    after = time.monotonic()
    report = found.report
    assert report.tasks == {"succeeded": 40}, report.notes
    assert report.breakdown["lost-worker"] == 0
    at_the_top = combine(row for path, row in report.by_span.items() if "/" not in path)
    assert at_the_top == report.breakdown
    held = sum(row.ns(*HELD) for row in report.by_prefix.values())
    assert report.by_span[report.name].ns(*HELD) == held
    # The sum of all is that of the threads, over the lives of their workers.
    assert set(report.by_worker) == {attendance.names[address] for address in attendance.joined}
    for name, row in report.by_worker.items():
        least, _ = attendance.thread_seconds(name, before, after)
        assert row.total >= least - 0.1 * len(attendance.joined)
    there = report.attendance
    assert there["workers"] == len(attendance.joined) >= 2
    assert there["most_workers"] == there["most_threads"] <= 3
    assert f"{there['workers']} workers came and went, at most {there['most_workers']} at a time" in str(report)
    # In retrospect the same workers are counted, though none is there.
    past = client.sync(ask_history, client, None)
    assert past.attendance == there
    assert past.breakdown["lost-worker"] == 0


def test_a_retired_worker_without_its_nanny_sends_its_final_snapshot(cluster: LocalCluster, client: Client) -> None:
    """``Worker.close`` asks the nanny first: where that fails, it takes no plugin away, and the worker hangs."""
    cluster.scale(2)
    client.wait_for_workers(2, timeout=60)
    leaving = addresses(client)[0]

    def lose_the_nanny(dask_worker: Any) -> None:
        dask_worker.nanny = "tcp://127.0.0.1:1"

    client.run(lose_the_nanny, workers=[leaving])
    with efficiency_report(client) as found:
        client.gather(client.map(nap, [0.01] * 10, pure=False, workers=[leaving]))
        client.retire_workers([leaving], close_workers=True)
        eventually(lambda: leaving not in cluster.scheduler.workers)
    assert found.tasks == {"succeeded": 10}, found.notes
    assert found.breakdown["lost-worker"] == 0
    assert sum(row.total_ns for row in found.by_span.values()) > 0


def test_missing_tasks_of_a_killed_worker_are_counted(cluster: LocalCluster, client: Client) -> None:
    cluster.scale(2)
    client.wait_for_workers(2, timeout=60)
    killed = addresses(client)[0]
    # Heartbeats of this worker stop, so that none tells of the tasks.
    client.run(lambda dask_worker: dask_worker.periodic_callbacks["heartbeat"].stop(), workers=[killed])
    with dask.config.set({"efficiency.report-timeout": "1s"}), efficiency_report(client) as found:
        client.gather(client.map(nap, [0.01] * 10, pure=False, workers=[killed]))
        kill(client, killed)
        eventually(lambda: killed not in cluster.scheduler.workers)
    assert found.tasks == {"without account": 10}, found.notes
    assert "10 without account" in str(found.report)
    assert any("of 10 tasks that it finished since, only the number is known" in note for note in found.notes)
    assert found.breakdown["lost-worker"] > 0


def test_a_note_has_the_length_of_a_window_longer_than_asked_for(cluster: LocalCluster, client: Client) -> None:
    cluster.scale(2)
    client.wait_for_workers(2, timeout=60)
    report = eventually(lambda: _with_note(client.sync(ask_history, client, 1.5)))
    (note,) = [note for note in report.notes if "it begins at a point of the scheduler" in note]
    match = re.match(r"a window of ([\d.]+) s for the last 1\.5 s: .* history, which has one every 5 s", note)
    assert match is not None, note
    assert report.name == f"last {match[1]} s"
    assert float(match[1]) == pytest.approx(report.window_seconds, rel=0.01)
    assert report.attendance == {"workers": 2, "most_workers": 2, "most_threads": 2}
    assert "2 workers, 2 threads" in str(report)


def _with_note(report: Any) -> Any:
    return report if any("it begins at a point of the scheduler" in note for note in report.notes) else None
