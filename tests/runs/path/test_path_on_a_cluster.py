"""The path goes through what really happened, on real clusters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import dask
import pytest
from dask.delayed import Delayed
from distributed import Client, LocalCluster, wait

import tests.runs.path.workloads
from dask_efficiency import CriticalPath, EfficiencyPlugin, critical_path, efficiency_report
from tests.plugin.watch import addresses
from tests.runs.path.workloads import (
    asks_for_more,
    dies_at_first,
    eight_megabytes,
    fails,
    instant,
    nap,
    thirty_two_megabytes,
    tree,
    wide,
)

pytestmark = pytest.mark.cluster

cloudpickle.register_pickle_by_value(tests.runs.path.workloads)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 2, "memory_limit": 0, "silence_logs": False}
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 3}),
        LocalCluster(processes=True, dashboard_address=":0", **options) as cluster,
    ):
        yield cluster


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as client:
        client.wait_for_workers(2)
        client.register_plugin(EfficiencyPlugin())
        # What is imported at the first task of a worker would block its loop.
        client.gather(client.map(nap, range(4), pure=False))
        yield client


def path_of(client: Client, work: Callable[[], object], **question: Any) -> CriticalPath:
    with efficiency_report(client, trace=True) as report:
        work()
    assert report.trace is not None
    return checked(critical_path(report.trace, **question))


def checked(path: CriticalPath) -> CriticalPath:
    """It tiles, explains itself, and its replay takes as long."""
    segments = path.segments
    assert (segments.start[0], segments.stop[-1]) == (path.scope.start, path.scope.stop)
    assert (segments.start[1:] == segments.stop[:-1]).all()
    assert path.unattributed < 0.01
    return path


def computed(client: Client, graph: Delayed) -> Callable[[], object]:
    return lambda: client.compute(graph, optimize_graph=False).result()


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(lambda: tree(16, nap), id="tree"),
        pytest.param(lambda: tree(8, eight_megabytes), id="transfer-bound"),
        pytest.param(lambda: wide(500, instant), id="tiny"),
    ],
)
def test_the_segments_tile_explain_and_replay_as_long(client: Client, graph: Callable[[], Delayed]) -> None:
    path = path_of(client, computed(client, graph()))
    assert path.floor_seconds <= path.makespan_seconds
    assert path.slot_bound_seconds <= path.makespan_seconds
    assert path.what_if().makespan_seconds == pytest.approx(path.makespan_seconds, rel=0.02)


def test_a_failure_that_the_client_waited_for_is_on_the_path_before_what_it_did_next(client: Client) -> None:
    def work() -> None:
        with pytest.raises(ZeroDivisionError):
            client.submit(instant, client.submit(fails, seconds=0.4, pure=False)).result()
        client.submit(nap, seconds=0.1, pure=False).result()

    assert path_of(client, work).seconds_computing()["fails"] >= 0.4


def test_a_worker_that_dies_is_on_the_path_with_what_it_ran(client: Client, tmp_path: Path) -> None:
    file = str(tmp_path / "died")
    path = path_of(client, lambda: client.submit(dies_at_first, file).result())
    assert path.seconds("kind")["lost-worker"] >= 0.5
    assert path.seconds_computing()["dies_at_first"] >= 0.5


def test_a_task_that_waits_for_tasks_of_its_own_is_explained_by_them(client: Client) -> None:
    path = path_of(client, lambda: client.submit(asks_for_more, 0.6, pure=False).result())
    assert path.seconds_computing()["nap"] >= 0.6
    assert path.seconds_computing()["asks_for_more"] <= path.makespan_seconds - 0.6


def test_a_loop_that_is_busy_with_large_results_is_transfer(client: Client) -> None:
    first, second = addresses(client)
    large = client.map(thirty_two_megabytes, range(9), workers=[first], pure=False)
    wait(large)
    path = path_of(client, lambda: client.gather(client.map(instant, large, workers=[second], pure=False)))
    found = path.seconds("kind")
    transfer = found.pop("transfer") + found.pop("transfer-queue")
    blocked = path.trace.blocked
    moving = blocked.moving_ns.sum()
    assert moving > 0.02e9
    # A loop that has no core is blocked too, and this is as long as all the loops were for that and the like.
    otherwise = ((blocked.stop - blocked.start).sum() - moving) / 1e9
    assert transfer > max(found.values()) - otherwise


def test_a_run_that_is_cancelled_has_a_path_to_what_was_done(client: Client) -> None:
    def work() -> None:
        done = client.submit(nap, seconds=0.2, pure=False)
        given_up = client.map(nap, range(20), seconds=0.3, pure=False)
        done.result()
        client.cancel(given_up)
        time.sleep(0.5)

    path = path_of(client, work)
    assert path.seconds_computing()["nap"] >= 0.2
