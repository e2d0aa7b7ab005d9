"""Why slots are idle, on clusters whose work is made to leave them idle for one cause."""

from __future__ import annotations

import os
import time
from typing import Any

import dask
import pytest
from distributed import Client
from tornado.ioloop import PeriodicCallback

from dask_efficiency import EfficiencyPlugin, EfficiencyReport, efficiency_report
from dask_efficiency.report.conditions_of import conditions_of
from dask_efficiency.report.kinds import advice
from tests.plugin.tasks import nap
from tests.plugin.watch import addresses

pytestmark = pytest.mark.cluster


def main_cause(report: EfficiencyReport) -> str:
    """The cause of the most idle time."""
    causes = report.idle_causes
    assert sum(causes.values()) == pytest.approx(report.breakdown["idle"])
    return next(iter(causes))


def share(report: EfficiencyReport, cause: str) -> float:
    """A cause's part of the idle time."""
    return report.idle_causes.get(cause, 0.0) / report.breakdown["idle"]


def test_slots_of_short_tasks_wait_for_a_busy_scheduler(cluster, client):
    busy = PeriodicCallback(lambda: time.sleep(0.1), 10)  # the loop cannot look either, and so knows that it is late
    client.sync(started, busy)
    with efficiency_report(client=client) as found:
        client.gather(client.map(abs, range(40), pure=False))
    client.sync(stopped, busy)
    causes = found.report.idle_causes
    # How long the scheduler takes to take in so many tasks depends on how busy this machine is: not judged here.
    causes.pop("graph", None)
    assert next(iter(causes)) == "scheduler"


async def started(callback: PeriodicCallback) -> None:
    callback.start()


async def stopped(callback: PeriodicCallback) -> None:
    callback.stop()


def test_a_chain_lacks_parallelism_and_its_prefix_is_named(client: Client) -> None:
    with efficiency_report(client=client) as found:
        link = client.submit(nap, 0.4, key="link-0")
        for i in range(1, 5):
            link = client.submit(nap, 0.4, link, key=f"link-{i}")
        link.result()
    # Between two links all four slots wait for messages, which may take a busy machine a while; in a link, three slots
    # have nothing to wait for but the chain.
    assert share(found.report, "parallelism") > 0.5
    waited_for = found.report.waited_for
    assert waited_for["link"] > 0.8 * sum(waited_for.values())


def test_free_slots_are_restricted_if_tasks_are_pinned_to_another_worker(client: Client) -> None:
    with efficiency_report(client=client) as found:
        client.gather(client.map(nap, [0.25] * 16, pure=False, workers=addresses(client)[:1]))
    assert main_cause(found.report) == "restricted"


def test_tasks_that_are_not_stolen_leave_an_imbalance(new_cluster: Any) -> None:
    without_stealing = dask.config.set({"distributed.scheduler.work-stealing": False})
    with without_stealing, new_cluster() as cluster, Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin())
        with efficiency_report(client=client) as found:
            here = addresses(client)[:1]
            client.gather(client.map(nap, [0.25] * 16, pure=False, workers=here, allow_other_workers=True))
        assert main_cause(found.report) == "imbalance"


class SlowToLoad:
    """Takes a while to unpickle in this process, which is the scheduler's."""

    def __reduce__(self) -> Any:
        return loaded_slowly, (os.getpid(),)


def loaded_slowly(scheduler: int) -> None:
    if os.getpid() == scheduler:
        time.sleep(1.5)


def test_slots_are_free_for_a_graph_that_blocks_the_event_loop(client: Client) -> None:
    with efficiency_report(client=client) as found:
        client.submit(type, SlowToLoad(), pure=False).result()
    assert main_cause(found.report) == "graph"


def message_every(dask_worker: Any, seconds: float) -> None:
    """The worker tells its results so rarely: as if the way to the scheduler were long."""
    dask_worker.batched_stream.interval = seconds


def test_slots_wait_for_round_trips_and_the_saturation_that_is_advised_ends_it(new_cluster: Any) -> None:
    def report_at(saturation: float) -> EfficiencyReport:
        with (
            dask.config.set({"distributed.scheduler.worker-saturation": saturation}),
            new_cluster() as cluster,
            Client(cluster) as client,
        ):
            client.register_plugin(EfficiencyPlugin())
            client.run(message_every, seconds=0.4)
            with efficiency_report(client=client, trace=True) as found:
                client.gather(client.map(nap, [0.02] * 40, pure=False))
            return found.report

    before = report_at(1.0)
    assert share(before, "round-trips") > 0.3  # the rest, where this machine is so busy that the scheduler is
    needed = conditions_of(before).saturation_needed
    if "idle/round-trips" in before.savings:  # which a replay of a run on a crowded host may not tell
        assert f"worker-saturation to {needed:.1f}, from 1:" in advice("idle/round-trips", conditions_of(before))
    after = report_at(needed)
    waited = [report.idle_causes.get("round-trips", 0.0) for report in (before, after)]
    assert waited[1] < waited[0] / 2, (needed, waited)
