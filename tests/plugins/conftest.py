"""Clusters for the tests of the plugin: real processes, and as few of them as will do."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cloudpickle
import dask
import pytest
from _pytest.runner import runtestprotocol
from distributed import Client, LocalCluster

import tests.plugins.tasks
import tests.plugins.watch
from dask_efficiency import EfficiencyPlugin
from tests.plugins.watch import ABSOLUTE, Attendance, eventually, nothing_runs

#: Runs of a test of a known answer on a machine that is too busy to give one.
ATTEMPTS = 4


class Canary:
    """How late this machine wakes a thread that slept for a millisecond, at worst, in seconds.

    Known answers hold to within :data:`~tests.plugins.watch.ABSOLUTE` of hand-over between threads.
    Where threads that have nothing to do with the cluster are woken later than that, a reading
    says nothing of the accounts.
    """

    def __init__(self) -> None:
        self.worst = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Canary:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.is_set():
            asleep = time.monotonic()
            time.sleep(0.001)
            self.worst = max(self.worst, time.monotonic() - asleep - 0.001)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Repeat a known answer's failed test while the machine is too busy; elsewhere one failure is one too many."""
    if "known_answer" not in item.keywords:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for attempt in range(1, ATTEMPTS + 1):
        last = attempt == ATTEMPTS
        with Canary() as canary:
            reports = runtestprotocol(item, nextitem=nextitem, log=False)
        if last or canary.worst < ABSOLUTE or not any(report.failed for report in reports):
            break
        print(f"\n{item.nodeid}: again, for the machine woke a thread {1000 * canary.worst:.0f} ms late")
        item._initrequest()  # type: ignore[attr-defined]  # as pytest-rerunfailures does: fresh fixtures
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


# Workers started in other ways than by fork or spawn from here cannot import the tests.
cloudpickle.register_pickle_by_value(tests.plugins.tasks)
cloudpickle.register_pickle_by_value(tests.plugins.watch)


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
def new_cluster() -> Any:
    """Makes a cluster for one test, of two workers with two threads each if not told otherwise."""
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
        yield client
