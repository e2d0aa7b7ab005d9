"""What all tests share: which are slow, what they need, their order, a browser, and how property tests run."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dask
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import providers

from tests.cluster_tests import is_listed

pytest_plugins = ["tests.clusters"]

#: Tests of what an extra is there for, by the module that it brings: where it is missing, they cannot be loaded.
NEED_EXTRAS = {
    "bokeh": ["live/bokeh"],
    "prometheus_client": [
        "dashboards",
        "fleet/prometheus/test_own_metrics.py",
        "live/test_exposition.py",
        "live/test_prometheus.py",
        "live/test_prometheus_on_a_cluster.py",
        "live/test_worker_exports.py",
        "plugin/test_gpu_on_a_cluster.py",
        "test_wings.py",
    ],
    "rich": ["live/test_terminal.py"],
}
collect_ignore = [path for module, paths in NEED_EXTRAS.items() if not find_spec(module) for path in paths]

settings.register_profile(
    "test",
    deadline=None,
    database=None,
    # The same examples each time, and as few as find what a change of a part breaks: `make nightly` looks for more.
    derandomize=True,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[phase for phase in Phase if phase is not Phase.explain],
)
settings.register_profile("few", settings.get_profile("test"), max_examples=4)
settings.register_profile("nightly", settings.get_profile("test"), derandomize=False, max_examples=500)
settings.register_profile("fuzz", settings.get_profile("nightly"), max_examples=2_000)
settings.load_profile("test")

# Hypothesis draws from the constants of the modules that are loaded as well, and which those are depends on what ran
# before in the process: a test would have other examples in each order and with each wing.
providers._get_local_constants = partial(providers.Constants)  # type: ignore[attr-defined]

# A local cluster gives a worker up for good that is not back from a restart by then, which are 15 s by default.
dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"})

# Workers are forked off a process that has imported distributed, as in upstream's own tests: to import it takes each
# a second of CPU otherwise, and these tests start hundreds.
dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})


@pytest.fixture(scope="session", autouse=True)
def _state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`dask-efficiency run` keeps its last report where the user's state is, not in a home; so do its subprocesses."""
    state = tmp_path_factory.mktemp("state")
    os.environ["XDG_STATE_HOME"] = str(state)
    return state


@pytest.fixture(autouse=True)
def _no_test_sees_the_last_report_of_another(_state: Path) -> Iterator[None]:
    yield
    shutil.rmtree(_state / "dask-efficiency", ignore_errors=True)


#: Debian's packages of Python are not in the virtual environment.
IMPORTS_SIMGRID = ["/usr/bin/python3", "-c", "import simgrid"]

#: Programs that tests need and a newcomer may lack, by their packages.
PROGRAMS = {
    "chromium": "chromium",
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "mpicc": "mpich libmpich-dev",
    "smpirun": "libsimgrid-dev",
    "mpiexec": "mpich",
    "openssl": "openssl",
    "/usr/sbin/sshd": "openssh-server openssh-client",
    "/usr/sbin/slurmctld": "slurmctld slurmd slurm-client munge",
}

#: Modules, by what installs them. The last two are hundreds of megabytes, which neither `make setup` nor continuous
#: integration installs: their pages are tried in environments of their own.
MODULES = {
    "make setup DEPLOY=1": "asyncssh cryptography dask_gateway_server dask_jobqueue dask_kubernetes dask_mpi"
    " jsonschema",
    "make setup JUPYTER=1": "ipykernel nbclient jupyterlab dask_labextension",
    "make setup ORACLE=1": "hta networkx",
    "make setup TORCH=1": "torch",
    "make setup": "hatchling",
    "pip install prefect-dask": "prefect_dask",
    "pip install ray pandas pyarrow": "ray",
}

#: All that tests need: how it is found, and how it is installed.
NEEDED: dict[str, tuple[Callable[[], object], str]] = {
    **{name: (partial(shutil.which, name), f"apt-get install {package}") for name, package in PROGRAMS.items()},
    **{name: (partial(find_spec, name), how) for how, names in MODULES.items() for name in names.split()},
    "simgrid": (
        lambda: not subprocess.call(IMPORTS_SIMGRID, stderr=subprocess.DEVNULL),
        "apt-get install python3-simgrid",
    ),
    "py-spy": (partial(shutil.which, "py-spy", path=f"{os.path.dirname(sys.executable)}:{os.defpath}"), "make setup"),
    "root": (lambda: os.geteuid() == 0, "run the tests as root"),
}
found = cache(lambda name: NEEDED[name][0]())

#: Fixtures that need them.
NEEDED_BY = {
    "chromium": "chromium",
    "mpicc": "mpicc",
    "simgrid": "smpirun",
    "hta": "hta",
    "trained": "torch",
    "minder": "torch",
    "profiler": "torch",
    "jupyterlab": "jupyterlab",
}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep what is imported and collected out of the search for garbage, which takes half a second there each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark as slow what is beyond `make test`: the clusters that are not listed, and what a newcomer may lack.

    Files go to processes whole, so that each fixture of a file is made once; the longest go first.
    """
    for item in items:
        needed = {name for mark in item.iter_markers("needs") for name in mark.args}
        needed |= {NEEDED_BY[fixture] for fixture in getattr(item, "fixturenames", ()) if fixture in NEEDED_BY}
        for name in sorted(needed):
            item.add_marker(pytest.mark.skipif(not found(name), reason=f"{name} is not installed: {NEEDED[name][1]}"))
        if needed or (item.get_closest_marker("cluster") and not is_listed(item.nodeid)):
            item.add_marker("slow")
    if hasattr(config, "workerinput"):
        costly = Counter(
            item.path for item in items if item.get_closest_marker("cluster") or item.get_closest_marker("slow")
        )
        items.sort(key=lambda item: -costly[item.path])


def _patient(request: pytest.FixtureRequest) -> Iterator[None]:
    """A report waits for workers as long as a busy machine lets them wait for a core."""
    with dask.config.set({"efficiency.report-timeout": "60s"} if request.node.get_closest_marker("cluster") else {}):
        yield


#: Of a file, whose own fixtures may make reports, and of each test.
patience_of_a_file = pytest.fixture(_patient, autouse=True, scope="module", name="patience_of_a_file")
patience = pytest.fixture(_patient, autouse=True, name="patience")


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
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        # Playwright's own patience ends after 30 s, which one page may take on a busy machine.
        new_context = browser.new_context

        def patient_context(**options: Any) -> Any:
            context = new_context(**options)
            context.set_default_timeout(120_000)
            return context

        browser.new_context = patient_context
        yield browser
        browser.close()


@pytest.fixture(autouse=True)
def _nothing_stays_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test could not replace, in something that only looks like Dask's, is in no other one's report."""
    patches = sys.modules.get("dask_efficiency.plugin.patches")
    if patches is not None:
        monkeypatch.setattr(patches, "_stays_off", {})
