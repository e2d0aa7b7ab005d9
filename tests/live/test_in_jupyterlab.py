"""Dask's extension of JupyterLab shows our pages, live, while a cell runs; and the report is below that cell."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.jupyterlab import Lab, serving, write_notebook
from tests.live.test_bokeh_in_a_browser import COLUMNS, PANELS
from tests.plugin.watch import eventually

#: The last cell runs until the test has seen what it wants to see.
CELLS = [
    """\
%load_ext dask_efficiency
from distributed import Client, LocalCluster
from dask_efficiency import EfficiencyPlugin
client = Client(LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0"))
client.register_plugin(EfficiencyPlugin())
print(client.dashboard_link)""",
    "def work(n):\n    return sum(n + i for i in range(200_000))",
    """\
%%efficiency
from pathlib import Path
while not Path("seen").exists():
    client.gather(client.map(work, range(4), pure=False))
len(list(Path(".").glob("seen")))""",
]


@pytest.fixture
def lab(chromium: Any, jupyterlab: None, tmp_path: Path) -> Iterator[Lab]:
    write_notebook(tmp_path / "work.ipynb", CELLS)
    with serving(tmp_path) as url:
        context = chromium.new_context(viewport={"width": 1500, "height": 1000})
        yield Lab(context.new_page(), url, "work.ipynb")
        context.close()


@pytest.fixture
def jupyterlab() -> None:
    """By its name, tests/conftest.py knows what is needed."""


@pytest.mark.cluster
@pytest.mark.needs("dask_labextension")
def test_a_panel_is_live_while_a_cell_runs_and_the_report_stands_below_the_cell(lab: Lab, tmp_path: Path) -> None:
    lab.choose("Run", "Run All Cells")
    link = lab.output(0).inner_text().strip()
    listed = lab.find_dashboard(link)
    assert set(PANELS) <= set(listed)
    assert "Task Stream" in listed
    panel = lab.open_panels()

    def timeline() -> dict[str, list[float]]:
        lab.page.wait_for_timeout(100)
        return panel.evaluate(COLUMNS, "timeline")

    eventually(lambda: sum(timeline()["thread-cpu"]) > 0)
    seen = max(timeline()["right"])
    eventually(lambda: max(timeline()["right"]) > seen)
    assert lab.page.locator(".dask-efficiency").count() == 0
    (tmp_path / "seen").touch()
    report = lab.page.locator(".dask-efficiency")
    report.wait_for()
    assert report.locator(".de-headline").is_visible()
    assert report.locator(".de-pie path").count() > 0
    assert report.locator("details[open]").count() == 0
    assert not report.locator(".de-plain").is_visible()
    assert lab.output(2).first.inner_text().strip() == "1"
