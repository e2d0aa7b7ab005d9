"""The meter on the scheduler: whom it waits for, and when it is quiet."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency import EfficiencyPlugin
from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.plugin import names
from dask_efficiency.plugin.scheduler import meter
from dask_efficiency.plugin.scheduler.meter import QUIET_NS, ClusterMeter
from tests.plugin.loops import within
from tests.plugin.scheduler.test_accounts import registered


def test_a_poll_waits_until_a_client_that_arrives_was_sent_its_first_message(monkeypatch: Any) -> None:
    clock = SimpleNamespace(now=5)
    monkeypatch.setattr(meter.time, "monotonic_ns", lambda: clock.now)
    later = asyncio.Event()
    fake: Any = SimpleNamespace(
        accounts=SimpleNamespace(idle=SimpleNamespace(quiet_until=0)),
        guard=lambda function: function(),
        _poll=later.set,
        plugin=None,
    )

    async def run() -> None:
        ClusterMeter.client_arrives(fake)
        assert fake.accounts.idle.quiet_until == 5 + QUIET_NS
        ClusterMeter._poll(fake)  # else it would ask the accounts, which are not there
        assert not later.is_set()
        clock.now += QUIET_NS
        await later.wait()

    asyncio.run(run())


@pytest.mark.parametrize(("closing", "given_up"), [(False, ["tcp://a"]), (True, [])])
def test_questions_to_a_worker_that_vanished_are_cancelled_unless_it_closes_in_order(closing, given_up):
    cluster, found = ClusterLedger(at=0), []
    cluster.worker_joined("tcp://a", "a", 2, at=0)
    if closing:
        cluster.worker_closing("tcp://a")

    def worker_left(address: str, at: int, stimulus_id: str) -> None:
        cluster.worker_left(address, at=10**9)

    meter: Any = SimpleNamespace(
        accounts=SimpleNamespace(cluster=cluster, worker_left=worker_left),
        workers=SimpleNamespace(vanished=found.append),
    )
    ClusterMeter.worker_left(meter, "tcp://a", "handle-worker-cleanup-1")
    assert found == given_up


async def register(scheduler: Any, plugin: EfficiencyPlugin) -> EfficiencyPlugin:
    await scheduler.register_scheduler_plugin(plugin, name=plugin.name, idempotent=False)
    return plugin


@within(registered)
async def test_a_registration_right_after_upstreams_removal_keeps_its_workers(scheduler, plugin) -> None:
    scheduler.remove_plugin(plugin.name)
    again = await register(scheduler, EfficiencyPlugin())
    assert plugin._meter.closed
    plugin._meter._poll()
    await asyncio.sleep(0.01)
    assert names.WORKER_PLUGIN in scheduler.worker_plugins
    await again._meter.stop()  # type: ignore[union-attr]


@within(registered)
async def test_a_lease_of_a_client_that_left_meanwhile_ends(scheduler, plugin) -> None:
    await plugin._meter.stop()
    await register(scheduler, EfficiencyPlugin.leased_to("gone"))
    while names.OP in scheduler.handlers:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert names.WORKER_PLUGIN not in scheduler.worker_plugins
