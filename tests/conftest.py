"""What all tests share: a browser, their order, and how property tests run.

Property tests have no deadline, and under ``CI`` the same examples each time.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files go to processes whole, so that each fixture of a file is made once; the longest go first."""
    if hasattr(config, "workerinput"):
        costly = Counter(item.path for item in items if _is_costly(item))
        items.sort(key=lambda item: -costly[item.path])


def _is_costly(item: pytest.Item) -> bool:
    """Most of the time is spent on these: a hundredth of a second for any other test, and seconds for each of them."""
    return "cluster" in item.keywords or "chromium" in getattr(item, "fixturenames", ())


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
