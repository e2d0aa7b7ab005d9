"""The accounts of a scheduler with workers that say nothing: who is there, and who is given up on."""

from __future__ import annotations

import asyncio
import itertools
import time
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Scheduler
from distributed.core import Status
from distributed.scheduler import WorkerState

from dask_efficiency import EfficiencyPlugin
from dask_efficiency.cluster import SILENT_NS
from dask_efficiency.plugins.names import METRIC
from dask_efficiency.plugins.scheduler import accounts as module
from dask_efficiency.wire import encode_not_measured


def worker(number: int, scheduler: Scheduler, *, server: str = "") -> WorkerState:
    address = f"tcp://10.0.0.{number}:40000"
    return WorkerState(
        address=address,
        status=Status.running,
        pid=0,
        name=f"worker-{number}",
        nthreads=2,
        memory_limit=0,
        local_directory="",
        nanny=None,
        server_id=server or address,
        scheduler=scheduler,
    )


def test_one_that_joins_is_known_at_once_and_one_that_was_missed_at_the_next_poll(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def check() -> None:
        async with Scheduler(port=0, host="127.0.0.1", dashboard=False, dashboard_address=":0") as scheduler:
            plugin = EfficiencyPlugin()
            await scheduler.register_scheduler_plugin(plugin, name=plugin.name, idempotent=False)
            accounts: Any = plugin._meter.accounts  # type: ignore[union-attr]
            for number in (1, 2, 3):
                scheduler.workers[f"tcp://10.0.0.{number}:40000"] = worker(number, scheduler)
            plugin.add_worker(scheduler, "tcp://10.0.0.2:40000")
            assert [presence.name for presence in accounts.cluster.present.values()] == ["worker-2"]
            plugin.add_worker(scheduler, "tcp://10.0.0.2:40000")
            plugin.add_worker(scheduler, "tcp://10.0.0.99:40000")  # it is gone by now
            accounts.poll()
            names = [presence.name for presence in accounts.cluster.present.values()]
            assert names == ["worker-2", "worker-1", "worker-3"]
            # Another worker came to the same address.
            scheduler.workers["tcp://10.0.0.1:40000"] = worker(1, scheduler, server="another")
            former = accounts.cluster.present["tcp://10.0.0.1:40000"]
            accounts.poll()
            assert former.left is not None
            assert accounts.cluster.present["tcp://10.0.0.1:40000"] is not former
            # Of ten thousand, a heartbeat comes each 51 s.
            monkeypatch.setattr(module, "heartbeat_interval", lambda workers: 51.0)
            later = time.monotonic_ns() + 2 * SILENT_NS
            monkeypatch.setattr(module, "time", SimpleNamespace(**{**vars(time), "monotonic_ns": lambda: later}))
            accounts.poll()
            assert not any(presence.off for presence in accounts.cluster.present.values())
            monkeypatch.setattr(module, "heartbeat_interval", lambda workers: 6.0)
            accounts.poll()
            reasons = [presence.reason for presence in accounts.cluster.present.values()]
            assert reasons == ["no snapshot in 30 s"] * 3
            scheduler.workers.clear()
            await plugin._meter.stop()  # type: ignore[union-attr]

    asyncio.run(check())


def test_a_poll_that_leaves_off_is_gone_on_with_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        async with Scheduler(port=0, host="127.0.0.1", dashboard=False, dashboard_address=":0") as scheduler:
            plugin = EfficiencyPlugin()
            await scheduler.register_scheduler_plugin(plugin, name=plugin.name, idempotent=False)
            accounts: Any = plugin._meter.accounts  # type: ignore[union-attr]
            for number in (1, 2, 3):
                address = f"tcp://10.0.0.{number}:40000"
                scheduler.workers[address] = one = worker(number, scheduler)
                plugin.add_worker(scheduler, address)
                one.metrics = {METRIC: encode_not_measured("its meter failed")}
                one.last_seen = time.time()

            def off() -> int:
                return sum(presence.off for presence in accounts.cluster.present.values())

            assert accounts.poll(at_most=-1.0) is False
            assert off() == 0
            # Each look at the clock is a second later.
            clock = itertools.count()
            monkeypatch.setattr(module, "time", SimpleNamespace(**{**vars(time), "thread_time": lambda: next(clock)}))
            assert accounts.poll(at_most=1.5) is False
            assert off() == 1
            first, *_ = scheduler.workers.values()
            first.metrics = {METRIC: encode_not_measured("once more")}
            assert accounts.poll(at_most=10.0) is True
            assert off() == 3
            # What came of those that this round had looked at is for the next one.
            assert accounts.cluster.stale == 0
            # One that was cut off may be followed by one that takes all that is there, and a scrape has a limit.
            first.metrics = {METRIC: encode_not_measured("and again")}
            accounts.refresh()
            assert accounts.cluster.stale == 0
            assert accounts.poll() is True
            assert accounts.cluster.stale == 1
            scheduler.workers.clear()
            await plugin._meter.stop()  # type: ignore[union-attr]

    asyncio.run(check())
