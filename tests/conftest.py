"""What all tests share: a browser, which of them run in one process, and how property tests run.

Property tests have no deadline, and under ``CI`` the same examples each time.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import dask
import pytest
from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "local",
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[phase for phase in Phase if phase is not Phase.explain],
)
#: Fewer examples than by hand, so that all tests take ten minutes on two cores.
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, max_examples=40)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# A local cluster gives a worker up for good that is not back from a restart by then, which are 15 s if not told.
dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"})

# Workers are forked off a process that has imported distributed, as in upstream's own tests: to import it takes each
# a second of CPU otherwise, and these tests start hundreds.
dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})

#: Modules with clusters of their own that mind no busy machine.
HARDY = ("test_bokeh_in_a_browser", "test_prove", "test_monitor", "test_top", "test_prometheus_on_a_cluster")


def _group(item: pytest.Item) -> str:
    """Tests of a group follow one another in one process, where two share the work; the rest goes to either."""
    if "cluster" not in item.keywords:
        return ""
    return item.path.stem if item.path.stem in HARDY else "clusters"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # the longest group first
        items.sort(key=lambda item: _group(item) != "clusters")
    for item in items:
        if group := _group(item):
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(autouse=True)
def patience(request: pytest.FixtureRequest) -> Iterator[None]:
    """A report waits for workers as long as a busy machine lets them wait for a core."""
    if "cluster" not in request.keywords:
        yield
        return
    with dask.config.set({"efficiency.report-timeout": "60s"}):
        yield


CHROMIUM = shutil.which("chromium")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A real browser, as Playwright drives it."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright cannot be imported")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here; on Debian: apt-get install chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        # Playwright's own patience ends after 30 s, which one page may take on a busy machine.
        new_context = browser.new_context

        def patient_context(**options: Any) -> Any:
            context = new_context(**options)
            context.set_default_timeout(120_000)
            return context

        browser.new_context = patient_context
        yield browser
        browser.close()
