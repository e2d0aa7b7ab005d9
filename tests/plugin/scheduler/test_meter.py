"""The meter on the scheduler reads no heartbeats while a client is sent its first message."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from dask_efficiency.plugin.scheduler import meter
from dask_efficiency.plugin.scheduler.meter import QUIET_NS, ClusterMeter


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
