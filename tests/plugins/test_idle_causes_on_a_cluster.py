"""Why slots are idle, on clusters whose work is made to leave them idle for one cause."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dask
import distributed
import pytest
from distributed import Client, LocalCluster

from dask_efficiency import EfficiencyPlugin
from dask_efficiency.idle import IdleWeights
from dask_efficiency.plugins.names import PLUGIN, SNAPSHOT
from dask_efficiency.plugins.scheduler.idle_watch import IdleWatch
from tests.plugins.tasks import nap
from tests.plugins.watch import CLOCKS, addresses, eventually, nothing_runs

pytestmark = pytest.mark.cluster


class Trial:
    """The idle time that workers of a cluster report, by cause, in seconds."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self.causes: dict[str, float] = {}
        self.idle = 0.0
        cluster.sync(self._start)

    async def _start(self) -> None:
        scheduler: Any = self._cluster.scheduler
        self.meter = scheduler.plugins[PLUGIN]._meter
        self.accounts = self.meter.accounts
        self.weights = IdleWeights(at=time.monotonic_ns())
        self.watch = IdleWatch(scheduler, self.accounts.work, self.accounts.cluster, self.weights)
        ledger = self.accounts.cluster
        record = ledger._record_snapshot

        def recording(presence: Any, snapshot: Any, at: int) -> None:
            before = presence.recorded.get("idle", 0)
            record(presence, snapshot, at)
            idle = presence.recorded.get("idle", 0) - before
            self.watch.catch_up()
            self._add(self.weights.split(presence, idle, at=presence.began + snapshot.balance.elapsed), idle)

        ledger._record_snapshot = recording
        await self._ask()
        self.watch.start()

    def _add(self, causes: dict[str, int], idle: int) -> None:
        assert sum(causes.values()) == idle
        self.idle += idle / 1e9
        for cause, ns in causes.items():
            self.causes[cause] = self.causes.get(cause, 0.0) + ns / 1e9

    async def _ask(self) -> None:
        self.accounts.take_answers(await self.meter._workers.ask(SNAPSHOT))
        self.accounts.poll()

    async def _close(self) -> None:
        await self._ask()
        assert self.watch.off is None
        self.watch.stop()
        del self.accounts.cluster._record_snapshot

    @contextmanager
    def measured(self) -> Iterator[Trial]:
        """What is reported in the block."""
        self._cluster.sync(self._ask)
        self.causes.clear()
        self.idle = 0.0
        yield self
        self._cluster.sync(self._ask)

    def close(self) -> None:
        self._cluster.sync(self._close)

    @property
    def main(self) -> str:
        """The cause of the most."""
        return max(self.causes, key=lambda cause: self.causes[cause])


Tried = tuple[Client, Trial]


@contextmanager
def tried_on(cluster: LocalCluster) -> Iterator[Tried]:
    with Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin())
        eventually(lambda: nothing_runs(client))
        trial = Trial(cluster)
        yield client, trial
        trial.close()


@pytest.fixture
def tried(cluster: LocalCluster) -> Iterator[Tried]:
    """Two workers with two threads each, and what they report."""
    with tried_on(cluster) as client_and_trial:
        yield client_and_trial


def share(trial: Trial, cause: str) -> float:
    """A cause's part of the idle time."""
    return trial.causes.get(cause, 0.0) / trial.idle


def test_workers_that_have_done_their_short_tasks_wait_for_the_scheduler(tried: Tried) -> None:
    client, trial = tried
    with trial.measured():
        client.gather(client.map(abs, range(500), pure=False))
    assert trial.main == "scheduler"


def test_a_chain_lacks_parallelism_and_its_prefix_is_named(tried: Tried) -> None:
    client, trial = tried
    before = dict(trial.watch.parallelism)
    with trial.measured():
        link = client.submit(nap, 0.1, key="link-0")
        for i in range(1, 20):
            link = client.submit(nap, 0.1, link, key=f"link-{i}")
        link.result()
    # One slot of four may wait for a message now and then; the others have nothing to wait for but the chain.
    assert share(trial, "parallelism") > 0.5
    gained = {prefix: ns - before.get(prefix, 0) for prefix, ns in trial.watch.parallelism.items()}
    assert gained["link"] > 0.8 * sum(gained.values())


def test_a_task_that_runs_alone_is_named_with_how_long_it_did(tried: Tried) -> None:
    client, trial = tried
    with trial.measured():
        naps = client.map(nap, [0.1] * 8, pure=False)
        began = time.monotonic()
        wall = client.submit(nap, 2.0, naps, key="train-1").result()["wall"]
        most = time.monotonic() - began
    assert share(trial, "parallelism") > 0.5
    assert trial.main == "parallelism"
    alone = trial.watch.alone["train-1"]
    assert alone.prefix == "train"
    assert wall / 2 < alone.ns / 1e9 < most
    assert max(trial.watch.alone.values(), key=lambda other: other.ns) is alone


def test_slots_beside_a_worker_to_which_tasks_are_pinned_are_restricted(tried: Tried) -> None:
    client, trial = tried
    with trial.measured():
        client.gather(client.map(nap, [0.25] * 16, pure=False, workers=addresses(client)[:1]))
    assert trial.main == "restricted"


def test_tasks_that_no_worker_may_run_restrict_all(tried: Tried) -> None:
    client, trial = tried
    with trial.measured():
        futures = client.map(nap, [0.1] * 4, pure=False, resources={"FPGA": 1})
        eventually(lambda: client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.unrunnable)) == 4)
        time.sleep(1)
        client.cancel(futures)
    assert trial.main == "restricted"


def test_tasks_that_are_not_stolen_leave_an_imbalance(new_cluster: Any) -> None:
    with (
        dask.config.set({"distributed.scheduler.work-stealing": False}),
        new_cluster() as cluster,
        tried_on(cluster) as (client, trial),
    ):
        with trial.measured():
            here = addresses(client)[:1]
            client.gather(client.map(nap, [0.25] * 16, pure=False, workers=here, allow_other_workers=True))
        assert trial.main == "imbalance"


def test_slots_are_free_for_a_graph_that_is_taken_in(tried: Tried, monkeypatch: pytest.MonkeyPatch) -> None:
    client, trial = tried
    materialize = distributed.scheduler._materialize_graph

    def slowly(*args: Any, **kwargs: Any) -> Any:
        time.sleep(1.5)
        return materialize(*args, **kwargs)

    monkeypatch.setattr(distributed.scheduler, "_materialize_graph", slowly)
    with trial.measured():
        client.submit(abs, -1, pure=False).result()
    assert trial.main == "graph"


class SlowToLoad:
    """Takes a while to unpickle in this process, which is the scheduler's."""

    def __reduce__(self) -> Any:
        return loaded_slowly, (os.getpid(),)


def loaded_slowly(scheduler: int) -> None:
    if os.getpid() == scheduler:
        time.sleep(1.5)


def test_slots_are_free_for_a_graph_that_blocks_the_event_loop(tried: Tried) -> None:
    client, trial = tried
    with trial.measured():
        client.submit(type, SlowToLoad(), pure=False).result()
    assert trial.main == "graph"


def test_while_a_client_thinks_no_slot_is_free_for_any_cause(tried: Tried) -> None:
    client, trial = tried
    work = trial.accounts.cluster.work
    parallelism = sum(trial.watch.parallelism.values())
    began, without = time.monotonic_ns(), work.without_work(at=time.monotonic_ns())
    with trial.measured():
        for _ in range(3):
            client.submit(nap, 0.1, pure=False).result()
            time.sleep(0.5)
        looks = trial.watch.cost_seconds
        time.sleep(0.5)
        assert trial.watch.cost_seconds == looks
    stop = time.monotonic_ns()
    outstanding = stop - began - (work.without_work(at=stop) - without)
    assert 0 < sum(trial.watch.parallelism.values()) - parallelism <= 4 * outstanding
    assert trial.idle <= 4 * outstanding / 1e9 + CLOCKS
