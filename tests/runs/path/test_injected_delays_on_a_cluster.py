"""Catch-all kinds can be gamed: delays of a known length have to land on the kind that they are of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import dask
import numpy as np
import pytest
from dask.delayed import Delayed, delayed
from distributed import Client, LocalCluster, wait

import tests.runs.path.delays
from dask_efficiency import CriticalPath, EfficiencyPlugin, critical_path, efficiency_report
from tests.plugin.watch import addresses, ahead_ns, eventually, states
from tests.runs.path.delays import (
    BLOCK_SECONDS,
    ask_for_a_block,
    block_scheduler,
    hold_the_gil,
    kept_waiting,
    megabytes,
    slow_disk,
    slow_link,
    step,
    wait_and_end,
)

pytestmark = pytest.mark.cluster

#: How much of an injected delay has to be found on its kind.
FOUND = 0.9

cloudpickle.register_pickle_by_value(tests.runs.path.delays)


@pytest.fixture
def client() -> Iterator[Client]:
    """Two workers of one thread each, which write everything that is larger than 2 MB to disk."""
    settings = {
        "distributed.worker.memory.target": 0.001,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
        "distributed.scheduler.work-stealing": False,
    }
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            memory_limit="2 GiB",
            dashboard_address=":0",
            silence_logs=False,
        ) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(EfficiencyPlugin())
        # What is imported at the first task of a worker would block its loop.
        client.gather([client.submit(step, i, workers=[worker]) for i, worker in enumerate(addresses(client))])
        yield client


def chain(length: int, function: Callable[..., Any] = step) -> Delayed:
    found = delayed(function, pure=False)()
    for _ in range(length - 1):
        found = delayed(function, pure=False)(found)
    return found


def path_of(client: Client, graph: Delayed, **placed: Any) -> CriticalPath:
    """Run it where it was told to, and follow its path."""
    with efficiency_report(client, trace=True) as report:
        client.compute(graph, **placed).result()
    assert report.trace is not None
    path = critical_path(report.trace)
    assert path.segments.start[0] == path.scope.start
    assert path.segments.stop[-1] == path.scope.stop
    assert (path.segments.start[1:] == path.segments.stop[:-1]).all()
    assert path.unattributed < 0.01
    return path


def test_a_blocked_event_loop_of_a_worker_is_worker_loop(client: Client) -> None:
    [first, _] = addresses(client)
    graph = delayed(step, pure=False)(delayed(ask_for_a_block, pure=False)(chain(10)))
    path = path_of(client, graph, workers=[first], optimize_graph=False)
    (waited,) = client.run(kept_waiting, workers=[first]).values()
    assert path.seconds("kind")["worker-loop"] >= FOUND * waited


def test_a_blocked_event_loop_of_the_scheduler_is_scheduler_transition(client: Client, tmp_path: Path) -> None:
    file = str(tmp_path / "blocked")
    [first, _] = addresses(client)
    with efficiency_report(client, trace=True) as report:
        waits = client.submit(wait_and_end, file, key="waits", workers=[first])
        last = client.submit(step, waits, workers=[first])
        eventually(lambda: states(client, "waits") == {"executing"})
        unblocked = client.run_on_scheduler(block_scheduler, file=file)
        last.result()
    trace = report.trace
    assert trace is not None
    # The worker had heard of the task's end by then, and had the scheduler still to hear of it.
    (run,) = np.flatnonzero(trace.runs.task == list(trace.keys).index("waits"))
    waited = unblocked - (trace.runs.ended[run] - ahead_ns()) / 1e9
    found = critical_path(trace).seconds("kind").get("scheduler-transition", 0.0)
    # On a busy machine the worker's loop may have had no core meanwhile, and that is what it is then.
    mine = trace.blocked.worker == trace.runs.worker[run]
    assert found >= FOUND * waited - (trace.blocked.stop - trace.blocked.start)[mine].sum() / 1e9


def test_a_worker_whose_gil_is_held_is_not_transfer(client: Client) -> None:
    [first, second] = addresses(client)
    with efficiency_report(client, trace=True) as report:
        there = client.submit(step, workers=[second], pure=False)
        wait(there)
        client.run(hold_the_gil, workers=[second])
        client.submit(step, there, workers=[first], pure=False).result()
    assert report.trace is not None
    assert critical_path(report.trace).seconds("kind")["worker-loop"] >= FOUND * BLOCK_SECONDS


def test_a_slow_link_is_transfer(client: Client) -> None:
    [first, second] = addresses(client)
    client.run(slow_link, seconds=0.7, workers=[first])
    there = client.submit(step, 1, workers=[first], pure=False)
    with efficiency_report(client, trace=True) as report:
        client.submit(step, there, workers=[second], pure=False).result()
    assert report.trace is not None
    found = critical_path(report.trace).seconds("kind")
    # On a busy machine a loop that is in the middle of it may wait for a core.
    assert found["transfer"] >= FOUND * 0.7 - found["worker-loop"]


def test_a_slow_disk_is_spill(client: Client) -> None:
    client.run(slow_disk, seconds=0.2)
    path = path_of(client, chain(6, megabytes), optimize_graph=False)
    # All but the last result are written while the chain waits for it.
    assert path.seconds("kind")["spill"] >= FOUND * 5 * 0.2
