"""Make the pictures of the pages: ``python docs/make_pictures.py [NAME ...]`` writes all of them, or those named.

It runs real clusters and takes screenshots in headless Chromium, so run it on a machine that does nothing else. The
picture of Prometheus needs `prometheus`. Only ``gpu`` is made from figures that were written by hand.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS.parent), str(DOCS)]

#: Pixels of a page, and of a screenshot for each of them.
WIDTH, SCALE = 980, 1.5

#: Pixels above and below a section.
MARGIN = 24

#: For how long the demo's work is repeated before a picture of a live view is taken.
LIVE_SECONDS = 75

#: Columns and lines of the terminal.
TERMINAL = (96, 30)


class Camera:
    """Takes pictures of pages in a browser."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser

    @contextmanager
    def at(self, url: str, *, width: int = WIDTH, height: int = 900) -> Iterator[Any]:
        """A page that is open."""
        context = self._browser.new_context(
            viewport={"width": width, "height": height}, device_scale_factor=SCALE, color_scheme="light"
        )
        page = context.new_page()
        page.goto(url)
        yield page
        context.close()

    def take_file(self, file: str, name: str, *, height: int) -> None:
        """The top of a page in a file."""
        with self.at(Path(file).resolve().as_uri(), height=height) as page:
            page.screenshot(path=picture(name))

    def take_section(self, file: str, title: str, name: str) -> None:
        """A section of a report's page."""
        with self.at(Path(file).resolve().as_uri()) as page:
            named = re.compile(rf"^{title}\b")
            section = page.locator("section", has=page.get_by_role("heading", name=named))
            folded = page.locator("details", has=page.locator("summary").get_by_text(named))
            margin = MARGIN
            if folded.count():
                section, margin = folded, 4  # other sections are close
                section.last.evaluate("details => { details.open = true; }")
            box = section.last.bounding_box()
            box |= {"x": 0, "y": box["y"] - margin, "width": WIDTH, "height": box["height"] + 2 * margin}
            page.screenshot(path=picture(name), clip=box, full_page=True)


def picture(name: str) -> Path:
    """Where a picture is kept."""
    return DOCS / "images" / f"{name}.png"


def report(camera: Camera) -> None:
    """The page of the demo, to its timeline."""
    from dask_efficiency.report.demo import run_demo

    run_demo(output="demo.json").to_html("demo.html")
    camera.take_file("demo.html", "report", height=1340)


def critical_path(camera: Camera) -> None:
    """The path of a nightly job."""
    from distributed import Client, LocalCluster

    from dask_efficiency import efficiency_report

    with LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as client:
        with efficiency_report(client=client, name="nightly", trace=True) as measured:
            days = client.map(clean, client.map(read, range(40), pure=False))
            client.submit(write, client.submit(join, days)).result()
        measured.critical_path().to_html("path.html")
    camera.take_file("path.html", "critical-path", height=1240)


def read(day: int) -> NDArray[np.float64]:
    """Numbers of one day, from a slow disk."""
    time.sleep(0.1)
    return np.random.default_rng(day).random(1_000_000)


def clean(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sort them twice."""
    return np.sort(np.sort(numbers)[::-1] * -1.0)


def join(days: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """All days."""
    return np.concatenate(days)


def write(numbers: NDArray[np.float64]) -> float:
    """One number for them all."""
    time.sleep(0.2)
    return float(numbers.mean())


def stragglers(camera: Camera) -> None:
    """A run in which one of four workers computes for longer in every task."""
    from distributed import Client, LocalCluster

    from dask_efficiency import efficiency_report

    with LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as client:
        with efficiency_report(client=client, name="one slow worker", trace=True) as measured:
            client.gather(client.map(fetch, range(300), pure=False))
        measured.to_html("stragglers.html")
    camera.take_section("stragglers.html", "Stragglers", "stragglers")


def fetch(number: int) -> int:
    """Wait for an answer, and compute; that takes more than twice as long on worker 2."""
    from distributed import get_worker

    time.sleep(0.04)
    stop = time.thread_time() + (0.05 if get_worker().name == 2 else 0.02)
    while time.thread_time() < stop:
        pass
    return number


def comparison(camera: Camera) -> None:
    """The slow job of the tutorial, before and after."""
    from dask_efficiency import compare

    for name, threads in (("before", 1), ("after", 4)):
        run = [sys.executable, "-m", "dask", "efficiency", "run", "--json", f"{name}.json"]
        subprocess.run([*run, DOCS / "slow_job.py", "--threads", str(threads)], check=True)
    compare("before.json", "after.json").to_html("comparison.html")
    camera.take_file("comparison.html", "comparison", height=1000)


def gpu(camera: Camera) -> None:
    """The section about GPUs, of a report that was written by hand for the tests."""
    from tests.report.samples import with_gpus

    with_gpus().to_html("gpu.html")
    camera.take_section("gpu.html", "GPUs", "gpu")


def torch(camera: Camera) -> None:
    """Eight ranks of one step, which the tests have."""
    from dask_efficiency.torch_traces import critical_path as torch_critical_path
    from dask_efficiency.torch_traces import load_kineto

    torch_critical_path(load_kineto(DOCS.parent / "tests/data/kineto/dlrm")).to_html("torch.html")
    camera.take_file("torch.html", "torch", height=1400)


def live(camera: Camera) -> None:
    """The tab, the terminal and Prometheus, of the demo's workload."""
    from distributed import Client

    from dashboards.monitor.__main__ import GRAPHS
    from dashboards.monitor.prometheus import scraping
    from dask_efficiency import EfficiencyPlugin
    from dask_efficiency.report.demo import local_cluster

    with local_cluster(2, 2, dashboard=True) as cluster, Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin())
        address = f"127.0.0.1:{cluster.scheduler.http_server.port}"
        with scraping(address) as server, working(client):
            with camera.at(f"http://{address}/efficiency", width=1200, height=600) as page:
                page.wait_for_timeout(1000 * LIVE_SECONDS)
                page.screenshot(path=picture("tab"))
            take_terminal(camera, ["dask-efficiency", "top", cluster.scheduler_address], "top", seconds=12)
            with camera.at(server.graphs(GRAPHS[0]).replace("=5m", "=2m"), width=1200, height=980) as page:
                page.wait_for_timeout(5000)
                page.screenshot(path=picture("prometheus"))


#: Cells of a notebook; the last one runs until the panel has been looked at.
CELLS = (
    """\
%load_ext dask_efficiency

from distributed import Client, LocalCluster
from dask_efficiency import EfficiencyPlugin

client = Client(LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=":0"))
client.register_plugin(EfficiencyPlugin())
print(client.dashboard_link)""",
    """\
import time

def read_day(day):
    time.sleep(0.3)
    return list(range(200_000))

def total(day):
    return sum(n % 7 for n in day)""",
    """\
%%efficiency -o report
days = client.map(read_day, range(40))
sum(client.gather(client.map(total, days)))""",
    """\
%%efficiency
from pathlib import Path

while not Path("seen").exists():
    days = client.map(read_day, range(8), pure=False)
    client.gather(client.map(total, days))""",
)


def notebook(camera: Camera) -> None:
    """A report below its cell in JupyterLab, and a panel of Dask's extension beside a cell that runs; `JUPYTER=1`."""
    from tests.jupyterlab import Lab, serving, write_notebook

    write_notebook(Path("work.ipynb"), list(CELLS))
    with serving(Path.cwd()) as url, camera.at(url, width=1200, height=1320) as page:
        page.set_default_timeout(120_000)
        lab = Lab(page, url, "work.ipynb")
        lab.choose("Run", "Run All Cells")
        page.locator(".dask-efficiency").wait_for()
        page.locator(".jp-CodeCell").nth(2).screenshot(path=picture("notebook"))
        lab.find_dashboard(lab.output(0).inner_text().strip())
        page.set_viewport_size({"width": 1500, "height": 620})
        lab.open_panels()
        page.locator(".jp-CodeCell").nth(3).scroll_into_view_if_needed()
        page.wait_for_timeout(1000 * LIVE_SECONDS)
        page.screenshot(path=picture("jupyterlab"))
        Path("seen").touch()


@contextmanager
def working(client: Any) -> Iterator[None]:
    """The demo's workload, over and over."""
    from dask_efficiency.report.demo import run_workload

    enough = threading.Event()

    def work() -> None:
        while not enough.is_set():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                run_workload(client)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        enough.set()
        worker.join()


def take_terminal(camera: Camera, command: list[str], name: str, *, seconds: float) -> None:
    """A program that fills the terminal's screen, as it looks after a while."""
    from rich.console import Console
    from rich.text import Text

    last = screen_of(command, seconds).rpartition("\x1b[H")[2].replace("\r\n", "\n").rstrip()
    console = Console(width=TERMINAL[0], record=True, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    console.print(Text.from_ansi(last))
    text = '<body style="margin:0"><pre style="font:14px/1.3 monospace;padding:1em;display:inline-block">{code}</pre>'
    Path("terminal.html").write_text(console.export_html(inline_styles=True, code_format=text), encoding="utf-8")
    with camera.at(Path("terminal.html").resolve().as_uri()) as page:
        page.locator("pre").screenshot(path=picture(name))


def screen_of(command: list[str], seconds: float) -> str:
    """What a program writes to a terminal in some seconds."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", TERMINAL[1], TERMINAL[0], 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    for size in ("COLUMNS", "LINES"):
        environment.pop(size, None)
    process = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=environment, start_new_session=True)
    written, until = b"", time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if select.select([ours], [], [], left)[0]:
            written += os.read(ours, 65536)
    process.terminate()
    process.wait()
    os.close(its)
    os.close(ours)
    return written.decode("utf-8", errors="replace")


PICTURES: dict[str, Callable[[Camera], None]] = {
    "report": report,
    "critical-path": critical_path,
    "stragglers": stragglers,
    "comparison": comparison,
    "gpu": gpu,
    "torch": torch,
    "live": live,
    "notebook": notebook,
}


def main(names: list[str]) -> None:
    """Make them in a temporary folder."""
    from playwright.sync_api import sync_playwright

    from tests.conftest import ARGUMENTS

    with (
        sync_playwright() as started,
        tempfile.TemporaryDirectory() as folder,
    ):
        camera = Camera(started.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS))
        os.chdir(folder)
        for name in names or PICTURES:
            print(name, flush=True)
            PICTURES[name](camera)
        os.chdir(DOCS)


if __name__ == "__main__":
    main(sys.argv[1:])
