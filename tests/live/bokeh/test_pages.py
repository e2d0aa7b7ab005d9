import asyncio
import json
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from bokeh.document import Document
from bokeh.document.events import ColumnDataChangedEvent, ColumnsPatchedEvent, ColumnsStreamedEvent
from bokeh.server.tornado import BokehTornado
from distributed import Client, Scheduler
from distributed.dashboard.scheduler import template_variables
from tornado.httpclient import AsyncHTTPClient, HTTPClientError

from dask_efficiency import EfficiencyPlugin, unregister
from dask_efficiency.accounts.stalls import StalledWork
from dask_efficiency.live import bokeh
from dask_efficiency.live.bokeh import columns, pages, texts
from dask_efficiency.live.bokeh.pages import PAGES, Page, timeline, whole
from dask_efficiency.live.bokeh.tab import GONE, Tab
from tests.live.bokeh.meter import Meter, busy_gpu


def headline(page: Page) -> str:
    return str(page.root.select_one({"name": "headline"}).text)


@pytest.mark.parametrize("make", PAGES.values(), ids=PAGES)
def test_a_page_that_is_left_open_stands_still_and_comes_back_to_life(tab: Tab, make: Callable[[Tab], Page]) -> None:
    meter = Meter()
    tab.show(meter)
    meter.run_until(10)
    page = make(tab)
    page.update()
    before = headline(page)
    assert before.startswith("<span")
    tab.hide(meter)
    page.update()
    assert headline(page) == GONE
    other = Meter(workers=1)
    tab.show(other)
    other.run_until(5)
    page.update()
    assert headline(page).startswith("<span")
    assert headline(page) != before


class Viewer:
    """The columns of a figure as a browser has them that is sent the changes."""

    def __init__(self, page: Page, name: str) -> None:
        source = page.root.select_one({"name": name})
        self.columns = {column: list(values) for column, values in source.data.items()}
        self._document = Document()
        self._document.add_root(page.root)
        self._document.callbacks.on_change_dispatch_to(self)

    def _column_data_changed(self, event: ColumnDataChangedEvent) -> None:
        data = event.model.data
        self.columns.update({column: list(data[column]) for column in event.cols or data})

    def _columns_patched(self, event: ColumnsPatchedEvent) -> None:
        for column, changes in event.patches.items():
            for rows, values in changes:
                self.columns[column][rows] = values

    def _columns_streamed(self, event: ColumnsStreamedEvent) -> None:
        for column, values in event.data.items():
            self.columns[column] = [*self.columns[column], *values][-event.rollover :]


def test_viewers_that_are_sent_only_the_changes_see_all_there_is(tab: Tab) -> None:
    meter = Meter()
    tab.show(meter)
    meter.run_until(20)
    pages = [timeline(tab) for _ in range(2)]
    for page in pages:
        page.update()
    viewers = [Viewer(page, "timeline") for page in pages]
    for seconds in range(23, 700, 3):
        meter.run_until(seconds)
        # One of them looks less often.
        for page, viewer in [*zip(pages, viewers, strict=True)][: 1 + seconds % 2]:
            page.update()
            assert tab.view is not None
            assert viewer.columns == columns.timeline(tab.view)
    assert len(viewers[0].columns["left"]) > 50


def test_a_failure_of_a_page_is_logged_once_and_shown_until_it_is_over(
    tab: Tab, caplog: pytest.LogCaptureFixture
) -> None:
    meter = Meter()
    tab.show(meter)
    meter.run_until(10)
    page = whole(tab)
    meter.recent.append("no moment")  # type: ignore[arg-type]
    page.update()
    assert headline(page).startswith("This page failed: AttributeError")
    page.update()
    assert len([record for record in caplog.records if record.name == "dask_efficiency"]) == 1
    meter.recent.pop()
    meter.run_until(20)
    page.update()
    assert "efficient" in headline(page)


def test_the_gpus_are_on_the_tab_where_there_are_any(tab: Tab) -> None:
    meter = Meter()
    tab.show(meter)
    meter.run_until(10)
    page = whole(tab)
    page.update()
    title, figure = page.root.children[7:9]
    assert (title.visible, figure.visible) == (False, False)
    meter.gpu = busy_gpu
    for seconds in (20, 30):  # parts that are drawn seldom take turns
        meter.run_until(seconds)
        page.update()
    assert (title.visible, figure.visible) == (True, True)
    assert page.root.select_one({"name": "gpus"}).data["idle"] == [0.4, 0.4]
    assert "2 GPUs, idle 40 % of the time" in title.text


def test_parts_that_are_drawn_seldom_take_turns_so_that_no_update_takes_long(tab: Tab) -> None:
    meter = Meter()
    tab.show(meter)
    meter.run_until(10)
    page = whole(tab)
    page.update()
    for seconds in (20, 30, 40, 50):
        meter.run_until(seconds)
        page.update()
        anew = [tab._drawn[part][0] is tab.view for part in (texts.findings, texts.few_workers_title)]
        assert anew == [seconds % 20 == 0, seconds % 20 == 10]


def narrow(page: Page, name: str, value: str) -> None:
    page.root.select_one({"name": f"only-{name}"}).value = value


def test_a_viewer_narrows_the_tab_by_prefix_span_and_worker_and_others_see_all(tab: Tab) -> None:
    meter = Meter(prefixes=("load", "train"))
    meter.spans = {"nightly": {"load"}}
    tab.show(meter)
    mine, other = whole(tab), whole(tab)
    meter.run_until(20)

    def pie(page: Page) -> dict[str, float]:
        page.update()
        data = page.root.select_one({"name": "pie"}).data
        return dict(zip(data["label"], data["seconds"], strict=True))

    everything = pie(other)
    assert everything["idle"] == 40
    assert sum(everything.values()) == 80
    narrow(mine, "worker", "TCP://1")
    assert sum(pie(mine).values()) == 40
    assert mine.root.select_one({"name": "workers"}).data["name"] == ["tcp://1"]
    assert "workers tcp://1: " in headline(mine).lower()
    narrow(mine, "prefix", "oad")
    assert pie(mine).keys() == {"thread-cpu", "thread-noncpu"}
    assert sum(pie(mine).values()) == 20
    narrow(mine, "prefix", "")
    narrow(mine, "span", "nightly")
    assert sum(pie(mine).values()) == 20
    assert "tasks of span nightly, workers" in headline(mine)
    narrow(mine, "prefix", "<b>none")
    assert sum(pie(mine).values()) == 0
    assert "&lt;b&gt;none" in headline(mine)
    assert pie(other) == everything
    for name in ("prefix", "span", "worker"):
        narrow(mine, name, "")
    assert pie(mine) == everything


def test_a_failure_of_a_viewers_filter_is_shown_on_that_page_only_and_until_it_is_over(
    tab: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    meter = Meter()
    tab.show(meter)
    meter.run_until(20)
    mine, other = whole(tab), whole(tab)
    with monkeypatch.context() as patched:
        patched.setattr(meter, "prefixes_in", {}.__getitem__)
        other.update()
        view = tab.view
        narrow(mine, "span", "nightly")
        assert tab.notice is None
        other.update()
        assert tab.view is view
        assert headline(mine).startswith("This page failed: KeyError")
        assert "efficient" in headline(other)
    mine.update()
    assert "tasks of span nightly" in headline(mine)


def test_what_stands_still_and_who_is_slow_is_narrowed_as_well(tab: Tab) -> None:
    meter = Meter()
    meter.stalled = (
        StalledWork("task", 1, "load", ("tcp://0",), 60.0, 1.0),
        StalledWork("task", 1, "train", ("tcp://1",), 60.0, 1.0),
    )
    tab.show(meter)
    meter.run_until(20)
    page = whole(tab)

    def findings() -> str:
        page.update()
        return str(page.root.select_one({"name": "findings"}).text)

    assert "load" in findings()
    assert "train" in findings()
    narrow(page, "worker", "1")
    assert "load" not in findings()
    assert "train" in findings()
    narrow(page, "prefix", "load")
    assert findings() == "Threads of 1 worker are not sampled: no /proc."


# -- what Dask keeps private; each test's name is what broke --------------------------------------


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
@pytest.mark.parametrize("prefix", ["/", "/behind/a/proxy"])
def test_the_list_of_plots_for_jupyterlab_still_takes_ours(prefix: str) -> None:
    async def check(scheduler: Scheduler) -> None:
        path = f"{prefix.rstrip('/')}/individual-plots.json"
        theirs = await fetch(scheduler, path)
        assert "Efficiency" not in theirs
        meter = Meter()
        bokeh.show(scheduler, meter)
        ours = json.loads(await fetch(scheduler, path))
        names = ["Individual Efficiency"]
        names += [f"{names[0]} {part}" for part in ("Gpus", "Pie", "Prefixes", "Timeline", "Workers")]
        added = {name: f"/{name.lower().replace(' ', '-')}" for name in names}
        assert ours == json.loads(theirs) | added
        for page in ("efficiency", *PAGES):
            assert "Bokeh" in await fetch(scheduler, f"{prefix.rstrip('/')}/{page}")
        bokeh.hide(scheduler, meter)
        assert await fetch(scheduler, path) == theirs

    on_a_scheduler(check, http_prefix=prefix)


@pytest.mark.parametrize(
    ("lacking", "line"),
    [
        ("a dashboard", "dask_efficiency adds no tab to the dashboard: the scheduler serves none"),
        ("Bokeh", "dask_efficiency adds no tab to the dashboard: import of dask_efficiency.live.bokeh halted"),
        ("its place in Dask", "dask_efficiency could not add its tab to the dashboard"),
    ],
)
def test_without_its_tab_the_plugin_logs_a_line_and_goes_on(
    lacking: str, line: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(scheduler: Scheduler) -> None:
        plugin = EfficiencyPlugin()
        await scheduler.register_scheduler_plugin(plugin, name=plugin.name, idempotent=False)
        assert "dask_efficiency_nthreads" in await fetch(scheduler, "/metrics")
        with pytest.raises(HTTPClientError, match="404"):
            await fetch(scheduler, "/efficiency")
        await scheduler.unregister_scheduler_plugin(plugin.name)
        await plugin._meter.stop()

    if lacking == "Bokeh":
        monkeypatch.delattr("dask_efficiency.live.bokeh")
        monkeypatch.setitem(sys.modules, "dask_efficiency.live.bokeh", None)
    if lacking == "its place in Dask":
        monkeypatch.setattr(pages, "_install", lambda scheduler: scheduler.no_such_attribute)
    with caplog.at_level(logging.INFO, "dask_efficiency"):
        on_a_scheduler(check, dashboard=lacking != "a dashboard")
    assert [r.message[: len(line)] for r in caplog.records if "dashboard" in r.message and "efficiency" in r.name] == [
        line
    ]


# -- on a cluster ----------------------------------------------------------------------------


@pytest.fixture
def client(new_cluster: Any) -> Iterator[Client]:
    """A client of a cluster with a dashboard."""
    with new_cluster(n_workers=1, threads_per_worker=1, processes=False) as found, Client(found) as client:
        yield client


@pytest.mark.cluster
def test_registering_again_and_again_leaves_one_route(client: Client) -> None:
    scheduler = client.cluster.scheduler
    variables = template_variables(scheduler)
    for options in ({}, {"max_prefixes": 7}, {}):
        client.register_plugin(EfficiencyPlugin(**options))
        client.register_plugin(EfficiencyPlugin(**options))
        assert variables["pages"].count("efficiency") == 1
        assert [plot["url"] for plot in variables["plots"]].count("efficiency") == 1
        if options:
            unregister(client)
            assert "efficiency" not in variables["pages"]
    assert len([app for app in scheduler.http_application.applications if isinstance(app, BokehTornado)]) == 2
