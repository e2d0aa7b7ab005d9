"""A real Prometheus scrapes a real cluster: rates are numbers of threads, and no counter falls."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, pairwise
from typing import Any

import pytest
from distributed import Client, LocalCluster, wait
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from dask_efficiency import EfficiencyPlugin, unregister
from dask_efficiency.accounts.cluster.account import ACTIVITIES
from tests.live.prometheus_process import Prometheus, needs_prometheus, scraping
from tests.plugin.tasks import half_and_half, nap, spin_until_word, wait_for_word
from tests.plugin.watch import CLOCKS, eventually

pytestmark = pytest.mark.cluster

THREADS = 4


def metrics_url(cluster: LocalCluster) -> str:
    return f"http://127.0.0.1:{cluster.scheduler.http_server.port}/metrics"


def scrape(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read(), "utf-8")


def ours(text: str) -> str:
    """Our part of a scrape: Dask's own metrics have lint findings of their own."""
    kept = [line for line in text.splitlines() if re.match(r"(# (HELP|TYPE) )?dask_efficiency_", line)]
    return "\n".join([*kept, ""])


def counters(text: str) -> dict[tuple[Any, ...], float]:
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(ours(text))
        if family.type == "counter"
        for sample in family.samples
    }


def total(url: str, name: str) -> float:
    return sum(value for (series, *_), value in counters(scrape(url)).items() if series == f"dask_efficiency_{name}")


@contextmanager
def scraper(url: str) -> Iterator[list[dict[tuple[Any, ...], float]]]:
    """All counters at each scrape of a thread that scrapes all the time."""
    scrapes: list[dict[tuple[Any, ...], float]] = []
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(0.05):
            scrapes.append(counters(scrape(url)))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield scrapes
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def url(cluster: LocalCluster) -> str:
    return metrics_url(cluster)


@pytest.fixture(scope="module")
def prometheus(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    target = f"127.0.0.1:{cluster.scheduler.http_server.port}"
    with scraping(target, tmp_path_factory.mktemp("prometheus")) as server:
        eventually(lambda: server.value("up") == 1)  # Prometheus takes 5 s to find its targets
        yield server


@needs_prometheus
def test_the_rates_of_the_activity_view_add_up_to_the_threads_however_long_tasks_are(client, prometheus, diary):
    futures = [client.submit(spin_until_word, diary), *client.map(wait_for_word, [diary] * 2, pure=False)]
    eventually(lambda: len(diary.read("start")) == 3)

    def rate(metric: str, by: str) -> dict[str, float]:
        found = prometheus.query(f"sum by ({by}) (rate(dask_efficiency_{metric}[4s]))")
        return {labels[by]: rate for labels, rate in found}

    def steady() -> bool:
        """As it is while nothing but these tasks happens, and no heartbeat and no scrape is late."""
        activity = rate("thread_activity_seconds_total", "activity")
        by_worker = rate("worker_thread_activity_seconds_total", "worker")
        finalized = prometheus.value("sum(rate(dask_efficiency_thread_seconds_total[4s]))")
        return (
            activity.keys() == set(ACTIVITIES)
            and sum(activity.values()) == pytest.approx(THREADS, rel=0.15)
            and activity["thread-noncpu"] >= 0.9 * 2
            and activity["thread-cpu"] > 0
            and by_worker == {name: pytest.approx(2, rel=0.25) for name in ("0", "1")}
            and finalized is not None
            and finalized < 1.5  # three of the four threads have settled nothing
            and (prometheus.value("dask_efficiency_running_thread_seconds") or 0) > 12  # none, if a scrape is late
            and prometheus.value("dask_efficiency_nthreads") == THREADS
        )

    eventually(steady, seconds=90)
    diary.write(event="go")
    wait(futures)


@needs_prometheus
def test_no_counter_falls_when_workers_die_the_plugin_is_replaced_and_the_cluster_restarts(client, url, prometheus):
    with scraper(url) as first, scraper(url) as second:
        futures = client.map(half_and_half, [0.4] * 20, pure=False, retries=5)
        time.sleep(1)
        victim = next(iter(client.run(os.getpid).values()))
        lost = total(url, "thread_seconds_total")
        os.kill(victim, signal.SIGKILL)
        eventually(lambda: prometheus.value('dask_efficiency_thread_seconds_total{bucket="lost-worker"} > 0'))
        client.register_plugin(EfficiencyPlugin(price_per_worker_hour=2.0, max_prefixes=50))
        time.sleep(1)
        client.wait_for_workers(2)
        client.restart()
        wait(client.map(half_and_half, [0.2] * 4, pure=False))
        time.sleep(2)
    assert total(url, "thread_seconds_total") > lost
    assert len(first) > 3
    for before, after in chain(pairwise(first), pairwise(second)):
        assert {series: n for series, n in before.items() if not after.get(series, -1) >= n} == {}
    names = {name for name, *_ in counters(scrape(url))}
    assert len(names) >= 10
    for name in names:
        assert prometheus.value(f"sum(resets({name}[1m]))") == 0, name
    assert prometheus.value("sum_over_time(up[20s])") > 1
    del futures


@needs_prometheus
def test_unregistering_ends_the_series_and_a_new_registration_begins_at_zero(client, url, prometheus):
    wait(client.map(nap, [0.5] * 4, pure=False))
    assert total(url, "thread_activity_seconds_total") >= THREADS * 0.5
    unregister(client)
    assert ours(scrape(url)).strip() == ""
    eventually(lambda: prometheus.value("dask_efficiency_nthreads") is None)
    began = time.monotonic()
    client.register_plugin(EfficiencyPlugin())
    assert total(url, "thread_activity_seconds_total") <= THREADS * (time.monotonic() - began + CLOCKS)
    eventually(lambda: prometheus.value("dask_efficiency_nthreads") == THREADS)
    # Prometheus takes it for the reset that it is: rates stay what they are.
    rate = "sum(rate(dask_efficiency_thread_activity_seconds_total[3s]))"
    eventually(lambda: prometheus.value(rate) == pytest.approx(THREADS, rel=0.15))


def test_a_worker_and_the_scheduler_export_the_same_seconds(client, url):
    """Under other names, so that no sum over both counts a thread-second twice."""
    ports = client.run(lambda dask_worker: (str(dask_worker.name), dask_worker.http_server.port))
    wait([client.submit(half_and_half, 0.4, pure=False, workers=[address]) for address in ports])

    def by_itself(port: int) -> dict[tuple[Any, ...], float]:
        text = scrape(f"http://127.0.0.1:{port}/metrics")
        assert "dask_worker_threads" in text
        mine = counters(text)
        assert all(name.startswith("dask_efficiency_local_") for name, *_ in mine)
        return mine

    def same() -> bool:
        found = counters(scrape(url))
        return all(
            by_itself(port).get(("dask_efficiency_local_thread_seconds_total", ("bucket", bucket)))
            == found["dask_efficiency_worker_thread_seconds_total", ("bucket", bucket), ("worker", name)]
            > 0.1
            for name, port in ports.values()
            for bucket in ("thread-cpu", "thread-noncpu")
        )

    eventually(same)
    assert "dask_efficiency_local_" not in scrape(url)
    unregister(client)
    assert not any(ours(scrape(f"http://127.0.0.1:{port}/metrics")).strip() for _, port in ports.values())


IN_PROCESS = {"processes": False, "n_workers": 1}


def test_an_exporter_in_a_thread_of_its_own_leaves_the_accounts_alone(new_cluster):
    with new_cluster(**IN_PROCESS) as cluster, Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin())
        accounts = cluster.scheduler.plugins[EfficiencyPlugin.name]._meter.accounts
        poll, polled_by = accounts.poll, set()
        accounts.poll = lambda **limit: polled_by.add(threading.get_ident()) or poll(**limit)
        futures = client.map(nap, [0.02] * 60, pure=False)
        while not all(future.done() for future in futures):
            text = generate_latest().decode()
            assert "dask_efficiency_nthreads 2.0" in text
            assert "dask_efficiency_export_failures_total 0.0" in text
        assert polled_by
        assert threading.get_ident() not in polled_by


def test_of_two_schedulers_in_one_process_the_last_is_exported_until_it_closes(new_cluster):
    with new_cluster(**IN_PROCESS) as older, Client(older) as old:
        old.register_plugin(EfficiencyPlugin())
        with new_cluster(**IN_PROCESS) as newer, Client(newer, set_as_default=False) as new:
            newer.scale(2)
            new.wait_for_workers(2)
            new.register_plugin(EfficiencyPlugin())
            assert "dask_efficiency_nthreads 4.0" in scrape(metrics_url(older))
            assert scrape(metrics_url(newer)).count("# TYPE dask_efficiency_nthreads gauge") == 1
        old.submit(nap, 0.2, pure=False).result()
        eventually(lambda: total(metrics_url(older), "thread_seconds_total") > 0.4)
        assert "dask_efficiency_nthreads 2.0" in scrape(metrics_url(older))


WITHOUT_PROMETHEUS = """
import logging, sys
sys.modules["prometheus_client"] = None
logging.basicConfig(level=logging.INFO)
from distributed import Client, LocalCluster
from dask_efficiency import EfficiencyPlugin, efficiency_report, unregister
with LocalCluster(processes=False, n_workers=1, dashboard_address=None) as cluster, Client(cluster) as client:
    client.register_plugin(EfficiencyPlugin())
    client.sync(cluster.workers[0].heartbeat)
    with efficiency_report(client) as report:
        client.submit(sum, range(10)).result()
    assert report.tasks == {"succeeded": 1}, report.tasks
    unregister(client)
print("all of it works")
"""


def test_everything_else_works_without_prometheus_client():
    command = [sys.executable, "-c", WITHOUT_PROMETHEUS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.stdout.strip() == "all of it works", done.stderr
    logged = [line for line in done.stderr.splitlines() if "prometheus" in line.lower() and "dask_efficiency" in line]
    assert len(logged) == 1
    assert "INFO" in logged[0]
