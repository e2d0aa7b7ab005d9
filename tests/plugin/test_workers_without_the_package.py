"""A worker without the package, or with another version of it, works on and is named."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from distributed import Client, WorkerPlugin

from dask_efficiency import EfficiencyPlugin, snapshot
from tests.plugin.tasks import half_and_half, spin
from tests.plugin.watch import (
    addresses,
    between,
    eventually,
    name_of,
    near,
    scheduler_process,
    timed_report,
    worker_process,
)

pytestmark = pytest.mark.cluster
#: What stands in a worker's path in the package's place, and what the report must say of it.
STUBS = {
    "absent": ("raise ModuleNotFoundError('No module named dask_efficiency')", "No module named dask_efficiency"),
    "broken": ("import a_library_that_is_not_there", "a_library_that_is_not_there"),
    "outdated": ("__version__ = '0.0.1'", "dask_efficiency 0.0.1 is installed"),
}


@pytest.fixture(scope="module")
def scheduler_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A scheduler in a process of its own, with the package, and one worker that has it too."""
    with (
        scheduler_process(tmp_path_factory.mktemp("scheduler")) as (_, file),
        worker_process(file, "complete"),
        Client(scheduler_file=file) as client,
    ):
        client.wait_for_workers(1)
        yield file


def stub(folder: Path, kind: str) -> Path:
    (folder / "dask_efficiency" / "plugin").mkdir(parents=True)
    (folder / "dask_efficiency" / "__init__.py").write_text("" if kind == "outdated" else STUBS[kind][0])
    (folder / "dask_efficiency" / "plugin" / "version.py").write_text(STUBS[kind][0])
    return folder


def compute_on_all(client: Client) -> dict[str, dict[str, float]]:
    """The result of a task on each worker, by the worker's name."""
    futures = {
        name_of(client, address): client.submit(half_and_half, 0.3, workers=[address], pure=False)
        for address in addresses(client)
    }
    results: dict[str, Any] = client.gather(futures)
    return results


def test_workers_that_are_there_or_join_without_the_package_compute_and_are_named(scheduler_file, tmp_path):
    folders = {kind: stub(tmp_path / kind, kind) for kind in STUBS}
    without = {f"{kind}-{when}": STUBS[kind][1] for kind in STUBS for when in ("before", "after")}
    names = {"complete", *without}
    with ExitStack() as stack:

        def start(when: str) -> None:
            for kind, folder in folders.items():
                stack.enter_context(worker_process(scheduler_file, f"{kind}-{when}", folder, "--no-nanny"))

        start("before")
        client = stack.enter_context(Client(scheduler_file=scheduler_file))
        client.wait_for_workers(1 + len(STUBS))
        client.register_plugin(EfficiencyPlugin())
        start("after")
        client.wait_for_workers(1 + 2 * len(STUBS))

        eventually(lambda: without.keys() <= snapshot(client).not_measured.keys())
        with timed_report(client) as (report, window):
            results = compute_on_all(client)

        assert results.keys() == names
        assert report.by_worker["complete"]["thread-cpu"] == near(results["complete"]["cpu"])
        assert "complete" not in report.not_measured
        for name, reason in without.items():
            assert reason in report.not_measured[name]
            row = report.by_worker[name]
            assert row["unmeasured"] > 0
            assert set(row) <= {"unmeasured", "no-work"}
            assert row.total == between(2 * window.least, 2 * window.most)
            assert set(snapshot(client).by_worker[name]) <= {"unmeasured", "no-work"}

        # Other options reach the others, and nobody breaks.
        client.register_plugin(EfficiencyPlugin(max_prefixes=9))
        assert compute_on_all(client).keys() == names
        assert client.submit(spin, 0.01, pure=False).result()


class Installs(WorkerPlugin):
    """What PipInstall does, as seen from this worker: the package comes while other plugins are set up."""

    def __init__(self, stub: str) -> None:
        self.stub = stub

    async def setup(self, worker: Any) -> None:
        if self.stub not in sys.path:
            return
        await asyncio.sleep(0.1)
        sys.path[:] = [place for place in sys.path if place not in (self.stub, "")]
        for name in [name for name in sys.modules if name.startswith("dask_efficiency")]:
            del sys.modules[name]


def test_a_worker_that_joins_is_metered_once_a_plugin_of_its_own_has_installed_the_package(scheduler_file, tmp_path):
    folder = stub(tmp_path / "absent", "absent")
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with Client(scheduler_file=scheduler_file) as client:
        client.register_plugin(Installs(str(folder)), name="installs")
        client.register_plugin(EfficiencyPlugin())
        with worker_process(scheduler_file, "installed", folder, "--no-nanny"):
            eventually(lambda: "no-work" in snapshot(client).by_worker.get("installed", {}))
            with timed_report(client) as (report, _):
                results = compute_on_all(client)
            assert "installed" not in report.not_measured
            assert report.by_worker["installed"]["thread-cpu"] == near(results["installed"]["cpu"])
        client.unregister_worker_plugin("installs")
