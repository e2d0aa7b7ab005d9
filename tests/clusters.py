"""Clusters for the tests of the plugin: real processes, and as few of them as will do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cloudpickle
import dask
import pytest
from distributed import Client, LocalCluster

import tests.plugin.tasks
import tests.plugin.watch
from dask_efficiency import EfficiencyPlugin
from dask_efficiency.plugin.names import PLUGIN
from dask_efficiency.plugin.scheduler.idle_watch import IdleWatch
from tests.plugin.tasks import Diary
from tests.plugin.watch import Attendance, eventually, nothing_runs

# Workers started in other ways than by fork or spawn from here cannot import the tests.
cloudpickle.register_pickle_by_value(tests.plugin.tasks)
cloudpickle.register_pickle_by_value(tests.plugin.watch)


@contextmanager
def _cluster(**kwargs: Any) -> Iterator[LocalCluster]:
    options = {
        "processes": True,
        "n_workers": 2,
        "threads_per_worker": 2,
        "dashboard_address": ":0",
        "silence_logs": False,  # it would silence pytest's handlers too
        **kwargs,
    }
    # A daemonic process may not have a pool of processes.
    with dask.config.set({"distributed.worker.daemon": False}), LocalCluster(**options) as cluster:
        yield cluster


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    return Diary(tmp_path / "diary")


@pytest.fixture
def new_cluster() -> Any:
    """Makes a cluster for one test, of two workers with two threads each unless given otherwise."""
    return _cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """One cluster for a file's tests; each leaves it as it was."""
    with _cluster(resources={"slot": 1}) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    """A client of a cluster that has the plugin, and nothing to do."""
    with Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin())
        eventually(lambda: nothing_runs(client))
        yield client


@pytest.fixture
def watch(cluster: LocalCluster, client: Client) -> Iterator[IdleWatch]:
    """The watch on the scheduler, which is in this process."""
    watch: IdleWatch = cluster.scheduler.plugins[PLUGIN]._meter.accounts.idle
    yield watch
    assert watch.guard.off is None


@pytest.fixture
def mortal_cluster() -> Iterator[LocalCluster]:
    """A cluster that the test may ruin."""
    with _cluster() as cluster:
        yield cluster


@pytest.fixture
def attendance(mortal_cluster: LocalCluster) -> Attendance:
    """When the workers of the mortal cluster come and go, from just before the plugin does."""
    attendance = Attendance(mortal_cluster.scheduler)
    mortal_cluster.scheduler.add_plugin(attendance)
    return attendance


@pytest.fixture
def mortal_client(mortal_cluster: LocalCluster, attendance: Attendance) -> Iterator[Client]:
    """A client of the mortal cluster, which has the plugin."""
    with Client(mortal_cluster) as client:
        client.register_plugin(EfficiencyPlugin())
        attendance.metered = dict.fromkeys(attendance.joined, time.monotonic())
        yield client
