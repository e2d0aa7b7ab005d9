"""GPU time from the tasks of a cluster of processes to ``/metrics`` and the report, through a stub of CUPTI."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster, wait
from prometheus_client.parser import text_string_to_metric_families

from dask_efficiency import EfficiencyPlugin, efficiency_report, load_report
from dask_efficiency.accounts.buckets import HELD, combine
from tests.gpu import tasks
from tests.gpu.conftest import stub_directory
from tests.plugin.watch import eventually

__all__ = ["stub_directory"]

pytestmark = pytest.mark.cluster

MS = 1_000_000


def meter_of(dask_worker: Any) -> str:
    totals = dask_worker.plugins["dask-efficiency-worker"].meter._gpu.totals(unknown_tasks=0)
    return "" if totals is None else str(totals.meter)


@pytest.fixture
def client(stub_directory: Path) -> Iterator[Client]:
    """Of two metered workers that use a GPU."""
    options = {"n_workers": 2, "threads_per_worker": 2, "dashboard_address": ":0", "silence_logs": False}
    with LocalCluster(processes=True, **options) as cluster, Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin())
        client.run(tasks.begin, str(stub_directory))
        eventually(lambda: all(gpu == "cupti" for gpu in client.run(meter_of).values()))
        yield client


def exported(cluster: Any, *names: str) -> list[dict[tuple[str, ...], float]]:
    """Values of metrics in one scrape, by their labels' values in the order of the labels' names."""
    with urllib.request.urlopen(f"http://127.0.0.1:{cluster.scheduler.http_server.port}/metrics") as answer:
        text = answer.read().decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return [
        {
            tuple(value for _, value in sorted(sample.labels.items())): sample.value
            for sample in samples
            if sample.name == f"dask_efficiency_{name}"
        }
        for name in names
    ]


def test_gpu_time_of_tasks_reaches_the_report_and_the_metrics(client: Client, tmp_path):
    (before,) = exported(client.cluster, "gpu_seconds_total")
    with efficiency_report() as report:
        done = client.map(tasks.train, [0.04] * 6, kernels=3, pure=False, key="train")
        crashed = client.submit(tasks.crash, 0.05, key="crash", retries=0)
        tail = client.submit(tasks.forget, 0.03, key="forget")
        wait([*done, crashed, tail])
        waited = client.submit(tasks.train, 0.05, key="after").result() + sum(client.gather(done))
    devices = [device for totals in report.gpu.values() for device in totals.devices]
    # Every thread-second is somewhere, and a task's is where its prefix is: to the nanosecond.
    held = {str(bucket) for bucket in HELD}
    by_prefix = combine(report.by_prefix.values())
    assert by_prefix.to_nanoseconds() == {b: ns for b, ns in report.breakdown.to_nanoseconds().items() if b in held}
    # The stub was given 6 x 3 x 40, 50, 30 and 50 ms of kernels.
    expected = {"train": 720 * MS, "crash": 50 * MS, "forget": 30 * MS, "after": 50 * MS}
    kernels: dict[str, int] = {}
    for totals in report.gpu.values():
        assert (totals.meter, totals.coverage, totals.dropped, totals.unknown_tasks) == ("cupti", 1.0, 0, 0)
        for kernel in totals.kernels:
            kernels[kernel.prefix] = kernels.get(kernel.prefix, 0) + kernel.ns
    assert kernels == expected
    for device in devices:
        assert device.kernels + device.copies + device.idle == device.elapsed
        assert sum(device.shares.values()) + device.unattributed == device.kernels + device.copies
        # The task that nobody waited for was gone when its kernel ran.
        assert device.tail <= 30 * MS
    assert sum(device.tail for device in devices) > 0
    # In the threads: what was waited for by tasks that succeeded, but for waits for the GIL before that.
    gpu = report.breakdown.ns("gpu")
    assert 0.8 * waited * 1e9 < gpu <= 770 * MS
    assert report.by_prefix["train"].ns("gpu") + report.by_prefix["after"].ns("gpu") == gpu
    assert report.by_prefix["crash"]["failed"] > 0.05
    assert report.tasks["failed"] == 1

    report.save(tmp_path / "run.json")
    assert load_report(tmp_path / "run.json").gpu == report.gpu

    now, users, coverage, by_worker = exported(
        client.cluster, "gpu_seconds_total", "gpu_workers", "gpu_coverage_ratio", "worker_gpu_seconds_total"
    )
    ran = sum(now.get(key, 0) - before.get(key, 0) for key in now if key[0] == "kernels")
    assert ran == pytest.approx(sum(device.kernels for device in devices) / 1e9)
    # Both workers see a GPU of this UUID, and neither sees what the other does there.
    assert list(users.values()) == [2.0]
    assert coverage == {(): 1.0}
    assert sum(by_worker.values()) == pytest.approx(sum(now.values()))

    def at_work() -> bool:
        """What was taken for waiting before the GPU's part was known is made up for by what comes later."""
        client.submit(tasks.train, 0.05, pure=False).result()
        (seconds,) = exported(client.cluster, "thread_activity_seconds_total")
        return seconds["gpu",] > 0

    eventually(at_work)
