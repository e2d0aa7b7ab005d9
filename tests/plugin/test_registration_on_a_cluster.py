"""One call meters a cluster, now and later; another takes all of it away again."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import dask
import distributed.worker
import pytest
from distributed import Client, LocalCluster, Nanny, Worker, wait

from dask_efficiency import EfficiencyPlugin, NotRegisteredError, efficiency_report, load_report, snapshot, unregister
from dask_efficiency.report.efficiency_report import LEASED
from tests.plugin import tasks
from tests.plugin.loops import metered_cluster
from tests.plugin.watch import (
    Window,
    addresses,
    between,
    cpu,
    eventually,
    incarnations,
    name_of,
    near,
    nothing_runs,
    off_cpu,
    scheduler_process,
    shrunk,
    timed_report,
    worker_process,
)

pytestmark = pytest.mark.cluster


def layers(function: Any) -> int:
    """How many functions stand in the place of one of upstream's."""
    return 1 + layers(function.__wrapped__) if hasattr(function, "__wrapped__") else 0


def traces_on_worker(dask_worker: Any) -> dict[str, Any]:
    return {
        "metrics": sorted(dask_worker.metrics),
        "handlers": sorted(dask_worker.handlers),
        "stream_handlers": sorted(dask_worker.stream_handlers),
        "functions": [layers(distributed.worker._run_task), layers(distributed.worker._run_actor)],
        "plugins": sorted(dask_worker.plugins),
        "callbacks": sorted(dask_worker.periodic_callbacks),
    }


def traces_on_scheduler(dask_scheduler: Any) -> dict[str, Any]:
    return {
        "plugins": sorted(dask_scheduler.plugins),
        "worker_plugins": sorted(dask_scheduler.worker_plugins),
        "nanny_plugins": sorted(dask_scheduler.nanny_plugins),
        "handlers": {op: handler.__qualname__ for op, handler in dask_scheduler.handlers.items()},
        "stream_handlers": {op: handler.__qualname__ for op, handler in dask_scheduler.stream_handlers.items()},
        "callbacks": sorted(dask_scheduler.periodic_callbacks),
    }


def traces(client: Client) -> tuple[Any, Any]:
    return client.run(traces_on_worker), client.run_on_scheduler(traces_on_scheduler)


def is_registered(client: Client) -> bool:
    registered: bool = client.run_on_scheduler(lambda dask_scheduler: EfficiencyPlugin.name in dask_scheduler.plugins)
    return registered


@pytest.fixture
def bare_client(cluster: LocalCluster) -> Iterator[Client]:
    """A client of a cluster without the plugin, and without it again afterwards."""
    with Client(cluster) as client:
        unregister(client)
        before = traces(client)
        yield client
        unregister(client)
        eventually(lambda: nothing_runs(client))
        assert traces(client) == before


# -- registering -----------------------------------------------------------------------------


def test_one_call_meters_every_worker(bare_client):
    bare_client.register_plugin(EfficiencyPlugin())
    results = bare_client.gather(bare_client.map(tasks.half_and_half, [0.2] * 2, pure=False))
    row = snapshot(bare_client).breakdown
    assert row["thread-cpu"] == near(cpu(results))
    assert len(incarnations(bare_client)) == 2
    assert not snapshot(bare_client).not_measured


def test_registering_again_with_the_same_options_changes_nothing(bare_client):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bare_client.register_plugin(EfficiencyPlugin(price_per_worker_hour=2))
        before = incarnations(bare_client), traces(bare_client), snapshot(bare_client)
        bare_client.register_plugin(EfficiencyPlugin(price_per_worker_hour=2))
    assert incarnations(bare_client) == before[0]
    assert traces(bare_client) == before[1]
    assert shrunk(before[2].by_worker, snapshot(bare_client).by_worker) == []


def test_registering_with_other_options_replaces_them_and_the_accounts_go_on(bare_client):
    bare_client.register_plugin(EfficiencyPlugin(price_per_worker_hour=2, max_prefixes=50))
    result = bare_client.submit(tasks.spin, 0.1, pure=False).result()
    before, were = snapshot(bare_client), traces(bare_client)
    running = bare_client.submit(tasks.half_and_half, 0.4, pure=False)
    bare_client.register_plugin(EfficiencyPlugin(price_per_worker_hour=3, max_prefixes=1))
    result_across = running.result()
    after = snapshot(bare_client)
    assert traces(bare_client) == were
    assert (before.price_per_worker_hour, after.price_per_worker_hour) == (2, 3)
    assert shrunk(before.by_worker, after.by_worker) == []
    assert after.breakdown["thread-cpu"] == near(result["cpu"] + result_across["cpu"])
    assert all(of_worker["functions"] == [1, 1] for of_worker in were[0].values())


def test_registering_under_another_name_leaves_one_of_them(bare_client):
    bare_client.register_plugin(EfficiencyPlugin())
    bare_client.register_plugin(EfficiencyPlugin(), name="another")
    names = bare_client.run_on_scheduler(
        lambda dask_scheduler: [n for n, p in dask_scheduler.plugins.items() if type(p).__name__ == "EfficiencyPlugin"]
    )
    assert len(names) == 1
    assert snapshot(bare_client).breakdown.total > 0


@pytest.mark.parametrize("registered", [False, True])
def test_a_wrong_option_in_the_schedulers_configuration_changes_nothing(bare_client, registered):
    if registered:
        bare_client.register_plugin(EfficiencyPlugin())
    before = traces(bare_client)
    plugin = EfficiencyPlugin()
    with (
        dask.config.set({"efficiency.price-per-worker-hour": "a lot"}),  # of this process, where the scheduler runs
        pytest.raises(ValueError, match="price-per-worker-hour is 'a lot'"),
    ):
        bare_client.register_plugin(plugin)
    assert traces(bare_client) == before
    if registered:
        assert snapshot(bare_client).breakdown.total > 0


def test_unregistering_while_tasks_run_leaves_nothing_and_breaks_nothing(bare_client):
    before = traces(bare_client)
    bare_client.register_plugin(EfficiencyPlugin())
    futures = bare_client.map(tasks.half_and_half, [0.1] * 12, pure=False)
    wait(futures, return_when="FIRST_COMPLETED")
    unregister(bare_client)
    assert len(bare_client.gather(futures)) == 12
    assert traces(bare_client) == before
    unregister(bare_client)
    with pytest.raises(NotRegisteredError, match="register_plugin"):
        snapshot(bare_client)
    bare_client.register_plugin(EfficiencyPlugin())  # which begins new accounts
    assert snapshot(bare_client).breakdown["thread-cpu"] == near(0)


def test_unregistering_the_upstream_way_takes_the_workers_half_along(bare_client):
    before = traces(bare_client)
    bare_client.register_plugin(EfficiencyPlugin())
    bare_client.unregister_scheduler_plugin(EfficiencyPlugin.name)
    eventually(lambda: traces(bare_client) == before)


def test_a_registration_amid_running_tasks_adopts_them(bare_client, diary):
    future = bare_client.submit(tasks.wait_for_word, diary, pure=False)
    (start,) = eventually(lambda: diary.read("start"))
    before = time.monotonic()
    bare_client.register_plugin(EfficiencyPlugin())
    after = time.monotonic()
    time.sleep(0.3)
    diary.write(event="go")
    result = future.result()
    held = snapshot(bare_client).by_prefix["wait_for_word"].total
    assert held == between(result["stop"] - after, time.monotonic() - before)
    assert start["start"] < before


# -- workers that come later -----------------------------------------------------------------


def test_workers_that_join_later_and_a_restart_are_metered(mortal_cluster):
    with Client(mortal_cluster) as client:
        client.register_plugin(EfficiencyPlugin())
        first = incarnations(client)
        mortal_cluster.scale(3)
        client.wait_for_workers(3)
        eventually(lambda: len(incarnations(client)) == 3)
        assert first.items() <= incarnations(client).items()
        before = snapshot(client)
        client.restart()
        client.wait_for_workers(3)
        restarted = incarnations(client)
        assert len(restarted) == 3
        assert not set(restarted.values()) & set(first.values())
        results = client.gather(client.map(tasks.spin, [0.1] * 3, pure=False))
        after = snapshot(client)
        assert shrunk(before.by_worker, after.by_worker) == []
        assert after.breakdown["thread-cpu"] == near(cpu(results))
        assert not after.not_measured


# -- reports without a registration ----------------------------------------------------------


def test_a_report_registers_the_plugin_for_itself_logs_that_once_and_removes_it(bare_client, caplog):
    before = traces(bare_client)
    with caplog.at_level(logging.INFO, logger="dask_efficiency"):
        with efficiency_report(bare_client) as report:
            assert is_registered(bare_client)
            result = bare_client.submit(tasks.spin, 0.2, pure=False).result()
        assert traces(bare_client) == before
        with efficiency_report(bare_client) as another:
            pass
    messages = [record for record in caplog.records if "registered for this report only" in record.message]
    assert len(messages) == 1
    assert LEASED in report.notes
    assert LEASED not in another.notes
    assert report.by_prefix["spin"]["thread-cpu"] == near(result["cpu"])


def test_a_registration_inside_a_leased_report_stays(bare_client):
    with efficiency_report(bare_client) as report:
        bare_client.register_plugin(EfficiencyPlugin(price_per_worker_hour=5))
        bare_client.submit(tasks.increment, 1).result()
    assert is_registered(bare_client)
    assert report.breakdown.total > 0


def test_a_report_whose_client_is_closed_inside_warns_and_gives_its_lease_back(bare_client):
    before = traces(bare_client)
    other = Client(bare_client.scheduler.address, set_as_default=False)
    report = efficiency_report(other)
    report.__enter__()
    value = other.submit(tasks.increment, 1).result()
    other.close()
    with pytest.warns(RuntimeWarning, match="there is no report"):
        report.__exit__(None, None, None)
    assert value == 2
    with pytest.raises(RuntimeError, match="there is no report"):
        _ = report.efficiency
    eventually(lambda: traces(bare_client) == before)


def test_an_exception_in_the_block_passes_through_and_the_report_is_made(bare_client):
    with pytest.raises(ArithmeticError, match="at once"), efficiency_report(bare_client) as report:
        bare_client.submit(tasks.fail).result()
    assert report.tasks == {"failed": 1}
    assert not is_registered(bare_client)


# -- several reports -------------------------------------------------------------------------


def test_nested_reports_do_not_disturb_one_another(client):
    with timed_report(client, name="outer") as (outer, around):
        first = client.submit(tasks.nap, 0.2, pure=False).result()
        with timed_report(client, name="inner") as (inner, window):
            second = client.submit(tasks.nap, 0.3, pure=False).result()
        third = client.submit(tasks.nap, 0.1, pure=False).result()
    inside, outside = off_cpu([second]), off_cpu([first, third])
    assert inner.by_prefix["nap"]["thread-noncpu"] == between(inside, window.most)
    assert outer.by_prefix["nap"]["thread-noncpu"] == between(inside + outside, around.most)
    assert outer.by_span["outer"]["thread-noncpu"] == between(inside + outside, around.most)
    assert outer.by_span["outer/inner"]["thread-noncpu"] == between(inside, window.most)
    assert not [note for note in outer.notes if "other work" in note]
    assert not [note for note in inner.notes if "other work" in note]
    assert type(client) is Client


def test_leases_that_come_and_go_in_many_threads_at_once_meter_every_report(bare_client):
    measured: list[tuple[Any, Any, Window]] = []

    def run(i: int) -> None:
        with Client(bare_client.scheduler.address, set_as_default=False) as mine:
            for repetition in range(5):
                with timed_report(mine) as (report, window):
                    value = mine.submit(tasks.nap, 0.02 * i, key=f"{'abcd'[i]}-{repetition}").result()
                measured.append((value, report.by_prefix["abcd"[i]], window))
                assert not report.not_measured
                assert report.breakdown["unmeasured"] == 0

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(measured) == 20
    for value, row, window in measured:
        assert row["thread-noncpu"] == between(off_cpu([value]), window.most)
    eventually(lambda: not is_registered(bare_client))


# -- other kinds of clusters -----------------------------------------------------------------


@pytest.mark.parametrize("nanny", [False, True])
def test_workers_with_and_without_a_nanny_on_one_event_loop(nanny):
    async def run() -> tuple[dict[str, float], Any, Window, Any]:
        async with metered_cluster(2, Nanny if nanny else Worker) as (scheduler, _, client):
            opened = time.monotonic()
            async with efficiency_report(client) as report:
                entered = time.monotonic()
                result = await client.submit(tasks.half_and_half, 0.3, pure=False)
                left = time.monotonic()
            window = Window(opened, entered, left, time.monotonic())
            await client.register_plugin(EfficiencyPlugin(max_prefixes=7))
            life = await snapshot(client)
            await unregister(client)
            assert EfficiencyPlugin.name not in scheduler.plugins
            return result, report.report, window, life

    result, report, window, life = asyncio.run(run())
    assert report.by_worker["only"]["thread-cpu"] == near(result["cpu"])
    assert life.by_worker["only"]["thread-cpu"] == report.by_worker["only"]["thread-cpu"]
    assert life.breakdown.total > report.breakdown.total
    assert report.breakdown.total == between(2 * window.least, 2 * window.most)


def test_a_cluster_in_one_process_closes_cleanly_with_the_plugin_and_a_task_running(diary):
    options = {"processes": False, "n_workers": 2, "threads_per_worker": 2, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin())
        with timed_report(client) as (report, window):
            results = client.gather(client.map(tasks.nap, [0.2] * 4, pure=False))
        cluster.scale(1)
        eventually(lambda: len(addresses(client)) == 1)
        after = snapshot(client)
        running = client.submit(tasks.wait_for_word, diary, pure=False)
        eventually(lambda: snapshot(client).breakdown["running"])
        threading.Timer(1, diary.write, kwargs={"event": "go"}).start()
    assert running.status in ("pending", "cancelled")
    assert report.by_prefix["nap"]["thread-noncpu"] == between(off_cpu(results), 4 * window.most)
    assert len(after.by_worker) == 2
    assert after.breakdown["lost-worker"] == 0


# -- without a line of user code -------------------------------------------------------------


def test_a_preload_in_the_configuration_meters_the_cluster(new_cluster):
    with (
        dask.config.set({"distributed.scheduler.preload": ["dask_efficiency"]}),
        new_cluster(n_workers=1) as cluster,
        Client(cluster) as client,
    ):
        result = client.submit(tasks.spin, 0.2, pure=False).result()
        report = snapshot(client)
        assert report.breakdown["thread-cpu"] == near(result["cpu"])
        cluster.scale(2)
        client.wait_for_workers(2)
        eventually(lambda: len(incarnations(client)) == 2)


def test_save_to_writes_the_clusters_life_when_it_closes(new_cluster, tmp_path):
    path = tmp_path / "life.json"
    began = time.monotonic()
    with new_cluster() as cluster, Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin(save_to=str(path)))
        results = client.gather(client.map(tasks.half_and_half, [0.2] * 4, pure=False))
        closing = time.monotonic()
    report = load_report(path)
    assert report.breakdown["thread-cpu"] == near(cpu(results))
    assert report.breakdown["thread-noncpu"] == between(off_cpu(results), 4 * (closing - began) - cpu(results))
    assert report.breakdown.total <= 4 * (time.monotonic() - began)
    assert report.breakdown["lost-worker"] == 0


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_a_preloaded_scheduler_process_writes_its_report_when_it_is_ended(tmp_path, ending):
    path = tmp_path / "life.json"
    preload = scheduler_process(tmp_path, "--preload", "dask_efficiency", DASK_EFFICIENCY__SAVE_TO=str(path))
    with preload as (scheduler, file), worker_process(file, "alone"):
        with Client(scheduler_file=file) as client:
            client.wait_for_workers(1)
            result = client.submit(tasks.half_and_half, 0.3, pure=False).result()
            assert name_of(client, addresses(client)[0]) == "alone"
            now = snapshot(client)
        scheduler.send_signal(ending)
        scheduler.wait(60)
    report = load_report(path)
    assert report.by_worker["alone"]["thread-cpu"] == near(result["cpu"])
    assert shrunk(now.by_worker, report.by_worker) == []
