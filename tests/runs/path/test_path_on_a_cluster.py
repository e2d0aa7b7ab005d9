"""The path goes through what happened on real clusters, and injected delays land on the kind that they are of."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import dask
import numpy as np
import pytest
from dask.delayed import Delayed, delayed
from distributed import Client, LocalCluster, wait

from dask_efficiency import CriticalPath, EfficiencyPlugin, RunTrace, critical_path, efficiency_report
from tests.plugin.watch import addresses, ahead_ns, eventually, states
from tests.runs.path import workloads
from tests.runs.path.workloads import instant, nap, tree, wide

pytestmark = pytest.mark.cluster
#: Share of an injected delay that has to be found on its kind.
FOUND = 0.9

cloudpickle.register_pickle_by_value(workloads)


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


@pytest.fixture
def delayed_client() -> Iterator[Client]:
    """Two workers of one thread each, to be delayed, which write everything that is larger than 2 MB to disk."""
    settings = {f"distributed.worker.memory.{name}": value for name, value in (("target", 0.001), ("spill", False))}
    settings |= {"distributed.worker.memory.pause": False, "distributed.scheduler.work-stealing": False}
    options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "2 GiB", "silence_logs": False}
    with (
        dask.config.set(settings),
        LocalCluster(processes=True, dashboard_address=":0", **options) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(EfficiencyPlugin())
        client.gather([client.submit(nap, i, workers=[worker]) for i, worker in enumerate(addresses(client))])
        yield client


def traced(client: Client, work: Callable[[], object]) -> RunTrace:
    with efficiency_report(client, trace=True) as report:
        work()
    assert report.trace is not None
    return report.trace


def path_of(client: Client, work: Callable[[], object]) -> CriticalPath:
    """Path of what was done, whose segments tile the scope and leave next to nothing unexplained."""
    path = critical_path(traced(client, work))
    segments = path.segments
    assert (segments.start[0], segments.stop[-1]) == (path.scope.start, path.scope.stop)
    assert (segments.start[1:] == segments.stop[:-1]).all()
    assert path.unattributed < 0.01
    return path


def computed(client: Client, graph: Delayed, **placed: Any) -> Callable[[], object]:
    return lambda: client.compute(graph, optimize_graph=False, **placed).result()


def chain(length: int, function: Callable[..., Any] = nap) -> Delayed:
    found = delayed(function, pure=False)()
    for _ in range(length - 1):
        found = delayed(function, pure=False)(found)
    return found


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(lambda: tree(16, nap), id="tree"),
        pytest.param(lambda: tree(8, workloads.large, nbytes=8_000_000), id="transfer-bound"),
        pytest.param(lambda: wide(500, instant), id="tiny"),
    ],
)
def test_the_segments_tile_explain_and_replay_as_long(client: Client, graph: Callable[[], Delayed]) -> None:
    path = path_of(client, computed(client, graph()))
    assert path.floor_seconds <= path.makespan_seconds
    assert path.slot_bound_seconds <= path.makespan_seconds
    assert path.what_if().makespan_seconds == pytest.approx(path.makespan_seconds, rel=0.02)


def test_a_worker_that_dies_is_on_the_path_with_its_task(client: Client, tmp_path: Path) -> None:
    file = str(tmp_path / "died")
    path = path_of(client, lambda: client.submit(workloads.dies_at_first, file).result())
    assert path.seconds("kind")["lost-worker"] >= 0.5
    assert path.seconds_computing()["dies_at_first"] >= 0.5


def test_a_task_that_waits_for_tasks_of_its_own_is_explained_by_them(client: Client) -> None:
    path = path_of(client, lambda: client.submit(workloads.asks_for_more, 0.6, pure=False).result())
    assert path.seconds_computing()["nap"] >= 0.6
    assert path.seconds_computing()["asks_for_more"] <= path.makespan_seconds - 0.6


def test_a_loop_that_is_busy_with_large_results_is_transfer(client: Client) -> None:
    first, second = addresses(client)
    large = client.map(workloads.large, range(9), nbytes=32_000_000, workers=[first], pure=False)
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


def test_a_blocked_event_loop_of_a_worker_is_worker_loop(delayed_client: Client) -> None:
    client = delayed_client
    [first, _] = addresses(client)
    graph = delayed(nap, pure=False)(delayed(workloads.ask_for_a_block, pure=False)(chain(10)))
    path = path_of(client, computed(client, graph, workers=[first]))
    (waited,) = client.run(workloads.kept_waiting, workers=[first]).values()
    assert path.seconds("kind")["worker-loop"] >= FOUND * waited


def test_a_blocked_event_loop_of_the_scheduler_is_scheduler_transition(delayed_client: Client, tmp_path: Path) -> None:
    client, file = delayed_client, str(tmp_path / "blocked")
    [first, _] = addresses(client)
    unblocked = 0.0

    def work() -> None:
        nonlocal unblocked
        waits = client.submit(workloads.wait_and_end, file, key="waits", workers=[first])
        last = client.submit(nap, waits, workers=[first])
        eventually(lambda: states(client, "waits") == {"executing"})
        unblocked = client.run_on_scheduler(workloads.block_scheduler, file=file)
        last.result()

    trace = traced(client, work)
    # The worker had heard of the task's end by then, and had the scheduler still to hear of it.
    (run,) = np.flatnonzero(trace.runs.task == list(trace.keys).index("waits"))
    waited = unblocked - (trace.runs.ended[run] - ahead_ns()) / 1e9
    found = critical_path(trace).seconds("kind").get("scheduler-transition", 0.0)
    # On a busy machine the worker's loop may have had no core meanwhile, and that is what it is then.
    mine = trace.blocked.worker == trace.runs.worker[run]
    assert found >= FOUND * waited - (trace.blocked.stop - trace.blocked.start)[mine].sum() / 1e9


def test_a_slow_link_is_transfer(delayed_client: Client) -> None:
    client = delayed_client
    [first, second] = addresses(client)
    client.run(workloads.slow_link, seconds=0.7, workers=[first])
    there = client.submit(nap, 1, workers=[first], pure=False)
    trace = traced(client, lambda: client.submit(nap, there, workers=[second], pure=False).result())
    found = critical_path(trace).seconds("kind")
    # On a busy machine a loop that is in the middle of it may wait for a core.
    assert found["transfer"] >= FOUND * 0.7 - found["worker-loop"]


def test_a_slow_disk_is_spill(delayed_client: Client) -> None:
    delayed_client.run(workloads.slow_disk, seconds=0.2)
    path = path_of(delayed_client, computed(delayed_client, chain(6, partial(workloads.large, nbytes=4_000_000))))
    # All but the last result are written while the chain waits for it.
    assert path.seconds("kind")["spill"] >= FOUND * 5 * 0.2
