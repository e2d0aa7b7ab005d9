"""The tab as a viewer has it, in headless Chromium."""

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import unescape
from typing import Any

import pytest
from distributed import Client, LocalCluster, Scheduler, SpecCluster, Worker, wait

from dask_efficiency import EfficiencyPlugin, snapshot, unregister
from dask_efficiency.accounts.worker.balance import ACTIVE_BUCKETS
from dask_efficiency.show.figures import format_bytes
from tests.plugin.pretended_gpu import pretend_gpu
from tests.plugin.watch import eventually

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
        self.page = page
        page.goto(f"{url}/efficiency")
        page.wait_for_function("window.Bokeh && Bokeh.documents[0] && Bokeh.documents[0].is_idle")

    def columns(self, name: str) -> dict[str, list[Any]]:
        return self.page.evaluate(COLUMNS, name)

    @property
    def headline(self) -> str:
        return self.page.evaluate(TEXT, "headline")

    @property
    def moved(self) -> str:
        return unescape(self.page.evaluate(TEXT, "moved")).replace("\xa0", " ")

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


#: Options of a cluster with a dashboard.
SERVED = {"dashboard_address": ":0"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(n_workers=2, threads_per_worker=2, silence_logs=logging.CRITICAL, **SERVED) as cluster:
        with Client(cluster, set_as_default=False) as client:
            client.register_plugin(EfficiencyPlugin())
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
def open_window(chromium: Any, url: str) -> Iterator[Any]:
    """A window, whose console must be clean at the end, and which asks no other server for anything."""
    faults: list[str] = []

    def hear(message: Any) -> None:
        # What Chromium logs of any frame with the sandbox that JupyterLab gives it.
        if message.type in ("error", "warning") and "can escape its sandboxing" not in message.text:
            faults.append(message.text)

    context = chromium.new_context(viewport={"width": 1400, "height": 900})
    window = context.new_page()
    window.on("console", hear)
    window.on("pageerror", lambda error: faults.append(str(error)))
    window.on("request", lambda request: url not in request.url and faults.append(f"asked for {request.url}"))
    yield window
    context.close()
    assert faults == []


@contextmanager
def open_page(chromium: Any, url: str) -> Iterator[Page]:
    """A window that shows the tab."""
    with open_window(chromium, url) as window:
        yield Page(window, url)


@pytest.fixture(scope="module")
def opened(chromium: Any, cluster: LocalCluster) -> Iterator[Page]:
    with open_page(chromium, url_of(cluster)) as page:
        yield page


@pytest.fixture
def page(opened: Page, client: Client) -> Page:
    """A page that is open all the time, once it shows the accounts that begin now."""
    opened.until(lambda: "unregistered" not in opened.headline and "thread-cpu" not in opened.pie)
    return opened


@pytest.fixture
def window(chromium: Any, client: Client, cluster: LocalCluster) -> Iterator[Any]:
    """One that shows nothing yet."""
    with open_window(chromium, url_of(cluster)) as window:
        yield window


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
    accounts = dask_scheduler.plugins["dask-efficiency"]._meter.accounts
    base = accounts.recent[0].activity
    sums = [{name: ns - base[name] for name, ns in moment.activity.items()} for moment in accounts.recent]
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
    shown = re.search(r"([0-9.]+) % efficient", page.headline)
    assert shown is not None
    assert float(shown[1]) == pytest.approx(float(percent), abs=1)
    # The stack reaches to the threads.
    columns = page.until(lambda: len((now := page.columns("timeline"))["left"]) > 1 and now)
    drawn = [name for name in columns if name not in ("left", "right", "middle", "width", "nthreads")]
    for i, nthreads in enumerate(columns["nthreads"]):
        assert min(columns[name][i] for name in drawn) >= 0
        assert sum(columns[name][i] for name in drawn) == pytest.approx(nthreads)
    assert columns["nthreads"][-1] == 4


def test_bytes_made_are_those_that_dask_counts(page: Page, client: Client) -> None:
    results = client.map(bytes, range(100_000, 100_010), pure=False)
    wait(results)
    made = format_bytes(sum(client.nbytes().values()))
    page.until(lambda: f"made {made}" in page.moved)


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
    page.until(lambda: page.workers == {"0", "1"})


def test_the_other_pages_link_to_it(window: Any, client: Client, cluster: LocalCluster) -> None:
    window.goto(f"{url_of(cluster)}/tasks")
    top, more = window.locator(".navbar > ul > li > a"), window.locator(".dropdown-content a")
    assert top.all_inner_texts().count("Efficiency") == 1
    assert [text.strip() for text in more.all_text_contents()].count("Efficiency") == 1
    top.get_by_text("Efficiency").click()
    window.wait_for_function("window.Bokeh && Bokeh.documents[0] && Bokeh.documents[0].is_idle")
    assert window.url == f"{url_of(cluster)}/efficiency"
    assert window.evaluate(TEXT, "headline")


#: What dask-labextension's sidebar calls the page, the name of its figure's columns, and whether it fits any panel.
PANELS = {
    "Efficiency": ("timeline", False),
    "Efficiency Gpus": ("gpus", True),
    "Efficiency Pie": ("pie", True),
    "Efficiency Prefixes": ("prefixes", True),
    "Efficiency Timeline": ("timeline", True),
    "Efficiency Workers": ("workers", True),
}


class Panel:
    """A page as dask-labextension opens it: in a sandboxed frame, by its path in ``/individual-plots.json``."""

    def __init__(self, browser: Any, url: str, name: str, width: int, height: int) -> None:
        plots = browser.request.get(f"{url}/individual-plots.json").json()
        assert plots["Individual Task Stream"] == "/individual-task-stream"
        labels = {key.replace("Individual ", ""): route for key, route in plots.items()}
        assert {label for label in labels if "Efficiency" in label} == set(PANELS)
        browser.set_content(
            f'<iframe src="{url}{labels[name]}" width={width} height={height} frameborder=0 '
            'sandbox="allow-scripts allow-same-origin"></iframe>'
        )
        self.frame = browser.frames[-1]
        self.frame.wait_for_function("window.Bokeh && Bokeh.documents[0] && Bokeh.documents[0].is_idle")

    def columns(self, name: str) -> dict[str, list[Any]]:
        return self.frame.evaluate(COLUMNS, name)

    def cut_off(self) -> list[str]:
        """Figures and texts that are beyond the frame, or have no room in it."""
        inner = "({width: innerWidth, height: innerHeight, down: document.documentElement.scrollHeight})"
        room = self.frame.evaluate(inner)
        boxes = "(all) => all.map((e) => [e.className, e.getBoundingClientRect().toJSON()])"
        found = []
        for kind, box in self.frame.locator(".bk-Figure:visible, .bk-Div:visible").evaluate_all(boxes):
            small = "bk-Figure" in kind and min(box["width"], box["height"]) < 100
            if small or box["right"] > room["width"] + 0.5 or box["bottom"] > room["height"] + 0.5:
                found.append(f"{kind} {box}")
        return found + (["it scrolls"] if room["down"] > room["height"] else [])


@pytest.mark.parametrize(("width", "height"), [(400, 300), (1200, 700)])
def test_in_a_panel_of_jupyterlab_nothing_is_cut_off(
    window: Any, client: Client, cluster: LocalCluster, width: int, height: int
) -> None:
    client.run(pretend_gpu)
    for name, (figure, fits) in PANELS.items():
        panel = Panel(window, url_of(cluster), name, width, height)

        def is_drawn(panel: Panel = panel, figure: str = figure) -> bool:
            # Again and again: where a page takes long to open, what ran before is no longer of the last minute.
            wait(client.map(spin, [0.02] * 4, pure=False))
            window.wait_for_timeout(100)
            return len(next(iter(panel.columns(figure).values()))) > 0

        eventually(is_drawn)
        panel.frame.wait_for_function("Bokeh.documents[0].is_idle")
        assert panel.frame.locator(".navbar").count() == 0
        assert panel.cut_off() == [] or not fits, name


def test_names_of_workers_are_text(chromium: Any) -> None:
    names = ["<img src=x onerror=alert(1)>", r"$$\alpha$$", r"\[x\]", "n" * 200, "\u202egnp.exe", "1"]
    workers = {name: {"cls": Worker, "options": {"nthreads": 1, "dashboard": False}} for name in names}
    scheduler = {"cls": Scheduler, "options": SERVED}
    with SpecCluster(workers, scheduler, silence_logs=logging.CRITICAL) as cluster, Client(cluster) as client:
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
