"""The tab as a viewer has it, in headless Chromium."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from distributed import Client, LocalCluster, Scheduler, SpecCluster, Worker, wait

from dask_efficiency import EfficiencyPlugin, snapshot, unregister
from dask_efficiency.ledger import ACTIVE_BUCKETS
from tests.plugins.watch import eventually

pytestmark = pytest.mark.cluster

#: The columns of one figure, as the browser has them.
COLUMNS = """name => {
    const data = Bokeh.documents[0].get_model_by_name(name).data
    const entries = data instanceof Map ? [...data.entries()] : Object.entries(data)
    return Object.fromEntries(entries.map(([column, values]) => [column, Array.from(values)]))
}"""
TEXT = "name => Bokeh.documents[0].get_model_by_name(name).text"


class Page:
    """The tab in one browser window."""

    def __init__(self, page: Any, url: str) -> None:
        self.faults: list[str] = []
        self.page = page
        page.on("console", lambda message: message.type in ("error", "warning") and self.faults.append(message.text))
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("request", lambda request: url not in request.url and self.faults.append(f"asked for {request.url}"))
        page.goto(f"{url}/efficiency")
        page.wait_for_function("window.Bokeh && Bokeh.documents[0] && Bokeh.documents[0].is_idle")

    def columns(self, name: str) -> dict[str, list[Any]]:
        return self.page.evaluate(COLUMNS, name)

    @property
    def verdict(self) -> str:
        return self.page.evaluate(TEXT, "headline")

    @property
    def pie(self) -> dict[str, float]:
        columns = self.columns("pie")
        return dict(zip(columns["label"], columns["seconds"], strict=True))

    @property
    def held(self) -> float:
        """Seconds that tasks have held threads."""
        return sum(self.pie.get(name, 0.0) for name in ACTIVE_BUCKETS)

    @property
    def latest(self) -> float:
        return max(self.columns("timeline")["right"], default=0.0)

    @property
    def workers(self) -> set[str]:
        return set(self.columns("workers")["name"])

    def until(self, condition: Callable[[], Any]) -> Any:
        """Wait, and let the browser's messages in."""
        return eventually(lambda: self.page.wait_for_timeout(100) or condition())


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(
        n_workers=2, threads_per_worker=2, dashboard_address=":0", silence_logs=logging.CRITICAL
    ) as cluster:
        yield cluster


@pytest.fixture
def client(chromium: Any, cluster: LocalCluster) -> Iterator[Client]:
    """A client of a cluster whose accounts begin now."""
    with Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin())
        yield client
        unregister(client)


def url_of(cluster: Any) -> str:
    return f"http://127.0.0.1:{cluster.scheduler.http_server.port}"


@contextmanager
def open_page(chromium: Any, url: str) -> Iterator[Page]:
    """A window, whose console must be clean at the end, and which asks no other server for anything."""
    context = chromium.new_context(viewport={"width": 1400, "height": 900})
    page = Page(context.new_page(), url)
    yield page
    context.close()
    assert page.faults == []


@pytest.fixture
def page(chromium: Any, client: Client, cluster: LocalCluster) -> Iterator[Page]:
    with open_page(chromium, url_of(cluster)) as page:
        yield page


def spin(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def held(client: Client) -> Any:
    """Seconds that tasks, all of which have succeeded, held threads, by the exact accounts.

    How they are split is known once a task has ended; the live view may have called some of its CPU
    time overhead by then, and takes nothing back.
    """
    exact = snapshot(client).breakdown
    return pytest.approx(sum(exact[name] for name in ACTIVE_BUCKETS), abs=1e-6)


def recent_sums(dask_scheduler: Any) -> list[dict[str, float]]:
    """Seconds by activity at each poll since the accounts began, without those without work."""
    meter = dask_scheduler.plugins["dask-efficiency"]._meter
    base = meter.recent[0].activity
    sums = [{name: ns - base[name] for name, ns in moment.activity.items()} for moment in meter.recent]
    return [{name: ns / 1e9 for name, ns in row.items() if ns and name != "no-work"} for row in sums]


def test_its_values_are_the_accounts(page: Page, client: Client) -> None:
    wait(client.map(spin, [0.1] * 20, pure=False))
    wait(client.map(time.sleep, [0.1] * 20, pure=False))
    exact = held(client)
    page.until(lambda: page.held == exact)
    now = page.pie
    assert now in client.run_on_scheduler(recent_sums)
    assert 1 < now["thread-cpu"] <= snapshot(client).breakdown["thread-cpu"]
    pie = page.columns("pie")
    assert sum(float(percent.removesuffix(" %")) for percent in pie["percent"]) == pytest.approx(100)
    percent = pie["percent"][pie["label"].index("thread-cpu")].removesuffix(" %")
    said = re.search(r"([0-9.]+) % efficient: ", page.verdict)
    assert said is not None
    assert float(said[1]) == pytest.approx(float(percent), abs=1)


def test_the_stack_reaches_to_the_threads(page: Page, client: Client) -> None:
    wait(client.map(spin, [0.2] * 40, pure=False))
    columns = page.until(lambda: len((now := page.columns("timeline"))["left"]) > 1 and now)
    drawn = [name for name in columns if name not in ("left", "right", "middle", "width", "nthreads")]
    for i, nthreads in enumerate(columns["nthreads"]):
        assert min(columns[name][i] for name in drawn) >= 0
        assert sum(columns[name][i] for name in drawn) == pytest.approx(nthreads)
    assert columns["nthreads"][-1] == 4


def test_it_goes_on_by_itself(page: Page) -> None:
    for _ in range(3):
        latest = page.latest
        page.until(lambda latest=latest: page.latest > latest)


def test_workers_come_and_go(page: Page, client: Client, cluster: LocalCluster) -> None:
    page.until(lambda: page.workers == {"0", "1"})
    cluster.scale(4)
    page.until(lambda: len(page.workers) == 4)
    cluster.scale(2)
    page.until(lambda: len(page.workers) == 2)
    latest = page.latest
    page.until(lambda: page.latest > latest and page.columns("timeline")["nthreads"][-1] < 8)


def test_it_outlives_a_restart_of_the_cluster(page: Page, client: Client) -> None:
    wait(client.map(spin, [0.1] * 8, pure=False))
    before = held(client)
    page.until(lambda: page.held == before)
    client.restart()
    wait(client.map(spin, [0.1] * 8, pure=False))
    after = held(client)
    page.until(lambda: page.held == after)
    assert page.held != before
    assert page.workers == {"0", "1"}


def test_several_viewers_see_the_same(chromium: Any, page: Page, client: Client, cluster: LocalCluster) -> None:
    with open_page(chromium, url_of(cluster)) as other:
        wait(client.map(spin, [0.1] * 8, pure=False))
        exact = held(client)
        for viewer in (page, other):
            viewer.until(lambda viewer=viewer: viewer.held == exact)
    latest = page.latest
    page.until(lambda: page.latest > latest)


def test_a_page_left_open_outlives_a_registration_and_finds_the_next(
    chromium: Any, page: Page, client: Client, cluster: LocalCluster
) -> None:
    wait(client.map(spin, [0.1] * 8, pure=False))
    page.until(lambda: page.held > 0)
    unregister(client)
    page.until(lambda: "was unregistered" in page.verdict)
    status = page.page.request.get(f"{url_of(cluster)}/status").text()
    assert 'href="efficiency"' not in status
    client.register_plugin(EfficiencyPlugin())
    page.until(lambda: "unregistered" not in page.verdict and "thread-cpu" not in page.pie)
    wait(client.map(spin, [0.1] * 2, pure=False))
    exact = held(client)
    page.until(lambda: page.held == exact)


def test_the_other_pages_link_to_it(page: Page, client: Client, cluster: LocalCluster) -> None:
    client.register_plugin(EfficiencyPlugin())
    browser = page.page
    browser.goto(f"{url_of(cluster)}/tasks")
    top, more = browser.locator(".navbar > ul > li > a"), browser.locator(".dropdown-content a")
    assert top.all_inner_texts().count("Efficiency") == 1
    assert [text.strip() for text in more.all_text_contents()].count("Efficiency") == 1
    top.get_by_text("Efficiency").click()
    browser.wait_for_function("window.Bokeh && Bokeh.documents[0] && Bokeh.documents[0].is_idle")
    assert browser.url == f"{url_of(cluster)}/efficiency"
    assert page.verdict


def test_jupyterlab_finds_it(page: Page, cluster: LocalCluster) -> None:
    plots = page.page.request.get(f"{url_of(cluster)}/individual-plots.json").json()
    assert plots["Individual Efficiency"] == "/individual-efficiency"
    assert plots["Individual Task Stream"] == "/individual-task-stream"
    page.page.goto(url_of(cluster) + plots["Individual Efficiency"])
    page.page.wait_for_function("window.Bokeh && Bokeh.documents[0] && Bokeh.documents[0].is_idle")
    assert page.workers == {"0", "1"}
    assert page.page.locator(".navbar").count() == 0


def test_names_of_workers_are_text(chromium: Any) -> None:
    names = ["<img src=x onerror=alert(1)>", r"$$\alpha$$", r"\[x\]", "n" * 200, "\u202egnp.exe", "1"]
    options = {"nthreads": 1, "dashboard": False}
    with (
        SpecCluster(
            workers={name: {"cls": Worker, "options": options} for name in names},
            scheduler={"cls": Scheduler, "options": {"dashboard_address": ":0"}},
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(EfficiencyPlugin())
        with open_page(chromium, url_of(cluster)) as page:
            page.until(lambda: len(page.workers) == len(names))
            assert {"<img src=x onerror=alert(1)>", "1", r"\u202egnp.exe"} <= page.workers
            assert max(map(len, page.workers)) < 40
            page.until(lambda: page.latest > 0)
            plot = page.page.locator(".bk-Figure").last.bounding_box()
            for y in range(40, int(plot["height"]) - 20, 8):
                page.page.mouse.move(plot["x"] + plot["width"] / 2, plot["y"] + y)
            assert page.page.locator("img[src=x]").count() == 0
