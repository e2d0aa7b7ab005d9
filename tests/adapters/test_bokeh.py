"""The tab without a browser: what it shows, and what of Dask's dashboard it leans on."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
from bokeh.server.tornado import BokehTornado
from distributed import Client, LocalCluster, Scheduler
from distributed.dashboard.scheduler import template_variables
from tornado.httpclient import AsyncHTTPClient, HTTPClientError

from dask_efficiency import EfficiencyPlugin, snapshot, unregister
from dask_efficiency.adapters import bokeh
from dask_efficiency.adapters.bokeh import EMPTY, GONE, EfficiencyPage, Tab
from dask_efficiency.cluster import ClusterLedger
from dask_efficiency.plugins.meter import Moment
from tests.strategies import idle_payload

SECOND = 1_000_000_000


class Meter:
    """A source that moves when it is told to."""

    def __init__(self, workers: int = 2) -> None:
        self.cluster = ClusterLedger(at=0)
        self.off: str | None = None
        self.since = 1_000.0
        self.recent: deque[Moment] = deque()
        self._names = [f"tcp://{i}" for i in range(workers)]
        for name in self._names:
            self.cluster.worker_joined(name, name, 2, at=0)
        self.cluster.work.set(True, at=0)
        self.poll(0)

    def poll(self, at: int) -> None:
        self.recent.append(Moment(at, self.cluster.activity(), self.cluster.nthreads))

    def idle_until(self, seconds: int) -> None:
        for now in range(self.recent[-1].at // SECOND + 1, seconds + 1):
            for name in self._names:
                payload = {**idle_payload(2, now * SECOND), "incarnation": name, "seq": now}
                self.cluster.receive(name, payload, at=now * SECOND)
            self.poll(now * SECOND)


class NoTimer:
    """In place of a periodic callback, where there is no event loop."""

    def __init__(self, *args: Any) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


@pytest.fixture
def tab(monkeypatch: pytest.MonkeyPatch) -> Tab:
    monkeypatch.setattr(bokeh, "PeriodicCallback", NoTimer)
    return Tab({"pages": ["status"], "plots": [{"url": "individual-zebra", "name": "Zebra"}]})


def test_before_any_report_the_page_says_so(tab: Tab) -> None:
    tab.show(Meter())
    assert tab.view().verdict.endswith(bokeh.NO_REPORT)


def test_every_figures_columns_are_of_one_length(tab: Tab) -> None:
    meter = Meter()
    tab.show(meter)
    meter.idle_until(20)
    view = tab.view()
    for columns, empty in ((view.pie, EMPTY.pie), (view.timeline, EMPTY.timeline), (view.workers, EMPTY.workers)):
        assert len({len(column) for column in columns.values()}) == 1
        assert list(columns) == list(empty)
    assert view.timeline["left"][0] == 1_000_000
    assert view.timeline["idle"] == [4.0] * 4
    assert view.pie["percent"] == ["100.0 %"]
    assert view.workers["name"] == ["tcp://0", "tcp://1"]


def test_a_view_is_made_anew_once_there_is_news(tab: Tab) -> None:
    meter = Meter()
    tab.show(meter)
    meter.idle_until(10)
    first = tab.view()
    assert tab.view() is first
    meter.idle_until(11)
    assert tab.view() is first
    meter.idle_until(12)
    assert tab.view() is not first


def test_a_page_that_is_left_open_stands_still_and_comes_back_to_life(tab: Tab) -> None:
    meter = Meter()
    tab.show(meter)
    meter.idle_until(10)
    page = EfficiencyPage(tab)
    page.update()
    columns = dict(page.timeline_source.data)
    tab.hide(meter)
    page.update()
    assert page.verdict.text == GONE.replace("'", "&#x27;")
    assert page.timeline_source.data == columns
    other = Meter(workers=1)
    tab.show(other)
    other.idle_until(5)
    page.update()
    assert "0 % efficient" in page.verdict.text
    assert page.timeline_source.data["nthreads"] == [2.0]
    assert page.workers_source.data["name"] == ["tcp://0"]


def test_a_meter_that_failed_says_why_as_text(tab: Tab) -> None:
    meter = Meter()
    tab.show(meter)
    meter.off = "<b>it</b> failed"
    assert tab.view().verdict == "Nothing is measured any more: &lt;b&gt;it&lt;/b&gt; failed"


def test_a_failure_of_the_page_is_logged_once_and_shown(tab: Tab, caplog: pytest.LogCaptureFixture) -> None:
    meter = Meter()
    tab.show(meter)
    meter.recent.append("no moment")  # type: ignore[arg-type]
    assert tab.view().verdict.startswith("This page failed: AttributeError")
    tab.view()
    assert len(caplog.records) == 1


def test_links_come_and_go_and_are_never_there_twice(tab: Tab) -> None:
    first, second = Meter(), Meter()
    for source in (first, first, second):
        tab.show(source)
        assert tab._pages == ["status", "efficiency"]
        assert [plot["name"] for plot in tab._plots] == ["Efficiency", "Zebra"]
    tab.hide(first)
    assert tab.shown
    tab.hide(second)
    tab.hide(second)
    assert tab._pages == ["status"]
    assert [plot["name"] for plot in tab._plots] == ["Zebra"]


def test_what_is_kept_of_the_workers_is_bounded(tab: Tab) -> None:
    tab.show(Meter())
    for _ in range(100):
        tab._keep_workers()
    assert len(tab._workers) * bokeh.KEEP_WORKERS_MS <= 6 * 60_000


# -- what Dask keeps private; each test says what broke --------------------------------------


async def fetch(scheduler: Scheduler, path: str) -> str:
    url = f"http://127.0.0.1:{scheduler.http_server.port}{path}"
    return (await AsyncHTTPClient().fetch(url)).body.decode()


def on_a_scheduler(check: Any, **options: Any) -> None:
    async def run() -> None:
        async with Scheduler(dashboard_address=":0", **options) as scheduler:
            await check(scheduler)

    asyncio.run(run())


@pytest.mark.cluster
def test_the_templates_variables_are_still_memoised_lists_that_all_pages_share() -> None:
    async def check(scheduler: Scheduler) -> None:
        variables = template_variables(scheduler)
        assert variables is template_variables(scheduler)
        assert "status" in variables["pages"]
        assert {"url", "name"} == set(variables["plots"][0])
        variables["pages"].append("a-page-of-ours")
        assert 'href="a-page-of-ours"' in await fetch(scheduler, "/status")

    on_a_scheduler(check)


@pytest.mark.cluster
def test_the_first_bokeh_application_is_still_found_and_has_a_prefix() -> None:
    async def check(scheduler: Scheduler) -> None:
        applications = [app for app in scheduler.http_application.applications if isinstance(app, BokehTornado)]
        assert len(applications) == 1
        assert applications[0].prefix == "/behind/a/proxy"

    on_a_scheduler(check, http_prefix="/behind/a/proxy")


@pytest.mark.cluster
@pytest.mark.parametrize("prefix", ["/", "/behind/a/proxy"])
def test_the_list_of_plots_for_jupyterlab_still_takes_ours(prefix: str) -> None:
    async def check(scheduler: Scheduler) -> None:
        path = f"{prefix.rstrip('/')}/individual-plots.json"
        theirs = await fetch(scheduler, path)
        assert "Individual Efficiency" not in theirs
        meter = Meter()
        bokeh.show(scheduler, meter)
        ours = await fetch(scheduler, path)
        assert '"Individual Efficiency": "/individual-efficiency"' in ours
        assert "Individual Task Stream" in ours
        for page in ("efficiency", "individual-efficiency"):
            assert "Bokeh" in await fetch(scheduler, f"{prefix.rstrip('/')}/{page}")
        bokeh.hide(scheduler, meter)
        assert await fetch(scheduler, path) == theirs

    on_a_scheduler(check, http_prefix=prefix)


# -- on a cluster ----------------------------------------------------------------------------


@pytest.fixture(params=[True, False], ids=["processes", "threads"])
def without_a_dashboard(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    with LocalCluster(
        n_workers=1, threads_per_worker=1, processes=request.param, dashboard_address=None, silence_logs=False
    ) as cluster:
        yield cluster


@pytest.mark.cluster
def test_without_a_dashboard_there_is_no_tab_and_one_line_that_says_so(
    without_a_dashboard: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with Client(without_a_dashboard) as client, caplog.at_level(logging.INFO, "dask_efficiency"):
        client.register_plugin(EfficiencyPlugin())
        assert [r.message for r in caplog.records if "dashboard" in r.message] == [
            "dask_efficiency adds no tab to the dashboard: the scheduler serves none"
        ]
        assert client.submit(sum, (1, 2)).result() == 3
        assert snapshot(client).thread_seconds > 0
        with pytest.raises(HTTPClientError, match="404"):
            client.sync(fetch, without_a_dashboard.scheduler, "/efficiency")
        unregister(client)


@pytest.mark.cluster
def test_without_bokeh_everything_else_works(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        caplog.at_level(logging.INFO, "dask_efficiency"),
    ):
        monkeypatch.delattr("dask_efficiency.adapters.bokeh")
        monkeypatch.setitem(sys.modules, "dask_efficiency.adapters.bokeh", None)
        client.register_plugin(EfficiencyPlugin())
        assert len([r for r in caplog.records if "adds no tab to the dashboard" in r.message]) == 1
        assert snapshot(client).thread_seconds >= 0
        unregister(client)


@pytest.mark.cluster
def test_a_tab_that_breaks_takes_nothing_else_with_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(scheduler: Any) -> Any:
        raise AttributeError("Dask has changed")

    monkeypatch.setattr(bokeh, "_install", broken)
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(EfficiencyPlugin())
        assert "could not add its tab" in caplog.text
        assert client.submit(sum, (1, 2)).result() == 3
        assert snapshot(client).thread_seconds > 0


@pytest.mark.cluster
def test_registering_again_and_again_leaves_one_route() -> None:
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        for options in ({}, {"max_prefixes": 7}, {}):
            client.register_plugin(EfficiencyPlugin(**options))
            client.register_plugin(EfficiencyPlugin(**options))
            variables = template_variables(cluster.scheduler)
            assert variables["pages"].count("efficiency") == 1
            assert [plot["url"] for plot in variables["plots"]].count("efficiency") == 1
            if options:
                unregister(client)
                assert "efficiency" not in variables["pages"]
        served = [app for app in cluster.scheduler.http_application.applications if isinstance(app, BokehTornado)]
        assert len(served) == 2
