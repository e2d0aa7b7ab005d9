"""Our part of a scrape reads as prometheus_client would have written it."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Scheduler
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from tornado.httpclient import AsyncHTTPClient

from dask_efficiency import EfficiencyPlugin
from dask_efficiency.live import exposition
from dask_efficiency.live.prometheus import COLLECTOR, ClusterCollector
from dask_efficiency.report import own_recipes

VALUES = st.floats(min_value=0, max_value=1e15) | st.integers(min_value=0, max_value=10**15)


def read(text: bytes) -> list[Any]:
    families = text_string_to_metric_families(text.decode())
    return [(family.name, family.type, family.documentation, family.samples) for family in families]


@given(st.dictionaries(st.tuples(st.text(), st.text()), VALUES), VALUES)
def test_it_reads_as_upstream_would_have_written_it(rows: dict[tuple[str, str], float], value: float) -> None:
    seconds = CounterMetricFamily("x_seconds", "Seconds by what for", labels=["worker", "activity"])
    for labels, number in rows.items():
        seconds.add_metric(labels, number)
    metrics: list[Metric] = [seconds, GaugeMetricFamily("x_threads", "Threads", value=float(value))]
    upstream = generate_latest(SimpleNamespace(collect=lambda: metrics))  # type: ignore[arg-type]
    assert read(exposition.text(metrics)) == read(upstream)


async def scraped(scheduler: Scheduler) -> bytes:
    answer = await AsyncHTTPClient().fetch(f"http://127.0.0.1:{scheduler.http_server.port}/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4"
    return answer.body


def test_a_scrape_has_each_metric_once_with_ours_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        async with Scheduler(port=0, host="127.0.0.1", dashboard=False, dashboard_address=":0") as scheduler:
            before = await scraped(scheduler)
            plugin = EfficiencyPlugin()
            await scheduler.register_scheduler_plugin(plugin, name=plugin.name, idempotent=False)
            text = await scraped(scheduler)
            names = [name for name, *_ in read(text)]
            assert len(names) == len(set(names))
            assert "dask_efficiency_thread_seconds" in names
            assert {name for name, *_ in read(before)} <= set(names)
            # If it fails, upstream writes them. The failures are counted by process, and other tests expect none.
            monkeypatch.setattr(COLLECTOR, "_failures", 0)
            monkeypatch.setattr(exposition, "_line", lambda _: 1 / 0)
            assert [name for name, *_ in read(await scraped(scheduler)) if "failures" in name] == [
                "dask_efficiency_export_failures"
            ]
            assert set(names) == {name for name, *_ in read(await scraped(scheduler))}
            await scheduler.unregister_scheduler_plugin(plugin.name)
            await plugin._meter.stop()
            assert b"dask_efficiency" not in await scraped(scheduler)

    asyncio.run(check())
    assert not COLLECTOR._exports


def test_an_exporter_of_another_thread_misses_nothing_meanwhile() -> None:
    collector = ClusterCollector()
    source: Any = SimpleNamespace(refresh=lambda: None, cost_seconds=0.0)
    collector.add(source)
    try:
        with collector.left_out(), ThreadPoolExecutor(1) as executor:
            assert not list(collector.collect())
            assert executor.submit(lambda: list(collector.collect())).result()
        assert list(collector.collect())
    finally:
        collector.remove(source)


def test_recipes_of_packages_are_looked_up_before_a_scrape_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()
    monkeypatch.setattr(own_recipes, "_of_packages", lambda: asked.set() or ())

    async def check() -> None:
        async with Scheduler(port=0, host="127.0.0.1", dashboard=False, dashboard_address=":0") as scheduler:
            plugin = EfficiencyPlugin()
            await scheduler.register_scheduler_plugin(plugin, name=plugin.name, idempotent=False)
            assert await asyncio.to_thread(asked.wait, 60)
            await plugin._meter.stop()

    asyncio.run(check())
