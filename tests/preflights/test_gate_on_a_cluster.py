from __future__ import annotations

import logging
from typing import Any

import pytest
from distributed import Client, Event, LocalCluster, Worker

import dask_efficiency
from dask_efficiency import EfficiencyPlugin
from dask_efficiency.accounts.slow_worker import Cause
from dask_efficiency.preflights.scheduler import plan
from dask_efficiency.preflights.scheduler import preflight as scheduler_preflight
from dask_efficiency.preflights.worker import WorkerPreflight
from tests.plugin.watch import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

OPTIONS = {"threads_per_worker": 1, "processes": False, "dashboard_address": ":0", "silence_logs": False}
RATES = {"cpu": 3e10, "memory_bandwidth": 8e9, "disk": 2e8, "python": 5e6}


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of workers that pretend to have a slow disk; nothing is measured. All is in this process."""
    slow: list[str] = []

    async def measure(self: WorkerPreflight, asked: Any) -> dict[str, Any]:
        factor = 10.0 if str(self._worker.name) in slow else 1.0
        rates = {**RATES, "disk": RATES["disk"] / factor}
        return {"measured": {name: {"value": rates[name], "count": 3} for name in asked["components"] if name in rates}}

    async def pair(self: WorkerPreflight, asked: Any) -> dict[str, Any]:
        return {"send": 1e-9, "receive": 1e-9, "latency": 1e-3}

    monkeypatch.setattr(WorkerPreflight, "_measure", measure)
    monkeypatch.setattr(WorkerPreflight, "_pair", pair)
    monkeypatch.setattr(scheduler_preflight, "READY_SECONDS", 60.0)
    return slow


def wait_for(name: str) -> None:
    Event(name).wait()


def events(client: Client, action: str) -> list[str]:
    return [event["worker"] for _, event in client.get_events("dask-efficiency") if event["action"] == action]


def stragglers_of(client: Client) -> list[str]:
    return [finding.worker for finding in dask_efficiency.stragglers(client)]


def tell(scheduler: Any, finding: Any) -> None:
    scheduler.log_event("findings", [finding.worker, str(finding.cause)])


def test_a_slow_worker_that_joins_is_flagged_before_it_has_tasks(pretended, caplog) -> None:
    pretended.append("slow")
    with (
        caplog.at_level(logging.WARNING, logger="dask_efficiency"),
        LocalCluster(n_workers=3, memory_limit=0, **OPTIONS) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(EfficiencyPlugin(preflight=True, on_straggler=tell))
        joined = client.sync(_start_worker, cluster.scheduler_address, "slow")
        try:
            eventually(lambda: events(client, "preflight") == ["slow"], seconds=60)
            assert "Preflight: Slow worker, " in caplog.text
            assert not events(client, "preflight-not-tested")
            assert stragglers_of(client) == ["slow"]
            assert [event for _, event in client.get_events("findings")] == [["slow", Cause.DISK]]
        finally:
            client.sync(joined.close)
        eventually(lambda: not stragglers_of(client))


def test_a_slow_worker_is_named_and_retired_if_asked_for(pretended: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "REPETITION_SECONDS", 0.001)
    pretended.append("1")
    with LocalCluster(n_workers=3, **OPTIONS) as cluster, Client(cluster) as client:
        found = dask_efficiency.preflight(client, device="cpu", retire=True)
        assert ("1", Cause.DISK) in {(finding.worker, finding.cause) for finding in found.slow_workers}
        assert "1" in found.retired
        eventually(lambda: "1" not in {str(ws.name) for ws in cluster.scheduler.workers.values()})
        assert len(cluster.scheduler.workers) == 2


def test_a_worker_that_has_tasks_by_then_is_reported_as_not_tested(pretended: list[str]) -> None:
    with LocalCluster(n_workers=1, memory_limit=0, **OPTIONS) as cluster, Client(cluster) as client:
        future = client.submit(wait_for, "end", pure=False)
        eventually(lambda: any(client.processing().values()))
        client.register_plugin(EfficiencyPlugin(preflight=True))
        eventually(lambda: events(client, "preflight-not-tested") == ["0"], seconds=60)
        Event("end", client=client).set()
        future.result()


async def _start_worker(address: str, name: str) -> Any:
    return await Worker(address, name=name, nthreads=1, memory_limit=0, dashboard_address=None)
