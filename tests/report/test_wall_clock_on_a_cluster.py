"""What the wall clock of a block went to, on clusters whose workers come late and whose clients think."""

import time
import urllib.request
from importlib.util import find_spec
from typing import Any

import pytest
from distributed import Client, LocalCluster

from dask_efficiency import EfficiencyPlugin, EfficiencyReport, critical_path, efficiency_report, snapshot
from dask_efficiency.show.terminal import plain
from tests.plugin.tasks import burn

pytestmark = pytest.mark.cluster


def cluster(workers: int, **options: Any) -> LocalCluster:
    return LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, scheduler_port=0, dashboard_address=":0", **options
    )


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> tuple[efficiency_report, float, str]:
    """Four tasks that wait for two workers; how long there was none by our clock; and the metrics after it."""
    path = tmp_path_factory.mktemp("late") / "late.json"
    with cluster(0) as local, Client(local) as client:
        client.register_plugin(EfficiencyPlugin())
        with efficiency_report(str(path), client=client, trace=True) as report:
            futures = client.map(burn, [0.2] * 4, pure=False)
            while not client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)):
                time.sleep(0.01)
            began = time.monotonic()
            time.sleep(2.0)
            without = time.monotonic() - began
            local.scale(2)
            client.wait_for_workers(2)
            client.gather(futures)
        url = f"http://127.0.0.1:{local.scheduler.http_server.port}/metrics"
        with urllib.request.urlopen(url) as answer:
            metrics = answer.read().decode()
        assert snapshot(client).no_workers_seconds >= without
    return report, without, metrics


def test_time_without_any_worker_is_separate_and_no_thread_time(late: Any) -> None:
    report, without, metrics = late
    if find_spec("prometheus_client"):
        (line,) = (line for line in metrics.splitlines() if line.startswith("dask_efficiency_no_workers_seconds_total"))
        assert float(line.split()[-1]) >= without
    found: EfficiencyReport = report.report
    assert without <= found.no_workers_seconds <= found.window_seconds
    assert found.wall_clock_seconds == pytest.approx(
        found.cluster_seconds + found.no_workers_seconds + found.client_seconds
    )
    no_workers = next(one for one in found.findings if one.kind == "no-workers")
    assert no_workers.where.startswith("2 workers asked for, the first after ")
    # both workers, for no longer than there was any
    assert 0 < found.mean_threads <= 2.0 + 1e-9
    assert "without any worker (no-workers)" in plain(found.document)
    # workers that joined are listed from request to first task
    assert {arrival.worker for arrival in found.arrivals} == {"0", "1"}
    for arrival in found.arrivals:
        assert without <= arrival.asked <= arrival.joined <= found.window_seconds
        assert not arrival.first_task < arrival.joined
    assert any(arrival.first_task >= arrival.joined for arrival in found.arrivals)


def test_the_path_names_it_and_its_bounds_leave_it_out(late: Any) -> None:
    report, without, _ = late
    path = critical_path(report.trace)
    assert path.seconds("kind")["no-workers"] >= 0.9 * without
    # On a busy machine the tasks may take longer than the time without workers.
    seconds = path.seconds("kind")
    assert "waiting until there was any worker" in path.headline or seconds["no-workers"] < 0.5 * path.makespan_seconds
    assert 0 < path.slots <= 2.0
    computing = sum(path.seconds_computing().values())
    assert path.slot_bound_seconds <= path.makespan_seconds - without
    assert computing > 0


def test_a_client_that_thinks_is_named_and_the_ideal_knows_the_cores() -> None:
    with cluster(1) as local, Client(local) as client:
        client.register_plugin(EfficiencyPlugin())
        client.submit(burn, 0.01).result()
        began = time.monotonic()
        with efficiency_report(client=client) as report:
            thought = 0.0
            for _ in range(2):
                client.submit(burn, 0.1, pure=False).result()
                before = time.monotonic()
                time.sleep(1.0)
                thought += time.monotonic() - before
        took = time.monotonic() - began
    assert report.client_seconds >= 0.9 * thought
    assert report.wall_clock_seconds <= took
    assert report.no_workers_seconds == 0
    if report.client_seconds > report.cluster_seconds:
        assert "on the client" in report.headline
        assert report.findings[0].kind == "client"
    assert report.cores is not None
    assert 0 < report.cores <= 1024
    assert set(report.ideal_bounds) == {"slots", "cores"}
    assert "lost-worker" not in [one.kind for one in report.findings]
