"""A worker that is stopped in turns is found, announced in every way, and retired if one asks for that."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from distributed import Client

import dask_efficiency
from dask_efficiency import EfficiencyPlugin, efficiency_report
from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.plugin.scheduler import straggler_watch
from tests.plugin.tasks import spin
from tests.plugin.watch import addresses, eventually, name_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


@contextmanager
def stopped_in_turns(pid: int, *, seconds: float = 0.15) -> Iterator[None]:
    """Lets a process run for half of the time."""
    over = threading.Event()

    def send(number: int) -> None:
        with suppress(ProcessLookupError):  # it may have been retired
            os.kill(pid, number)

    def turns() -> None:
        while not over.is_set():
            send(signal.SIGSTOP)
            over.wait(seconds)
            send(signal.SIGCONT)
            over.wait(seconds)

    thread = threading.Thread(target=turns)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        send(signal.SIGCONT)


def test_a_worker_that_is_stopped_in_turns_is_found_announced_and_retired(new_cluster, caplog, monkeypatch):
    # Two heartbeats, which are fewer seconds until enough intervals are over; the scheduler is in this process.
    monkeypatch.setattr(straggler_watch, "INTERVAL_SECONDS", 1.0)
    with new_cluster(n_workers=4, threads_per_worker=1) as cluster, Client(cluster) as client:
        published: list[Any] = []
        client.subscribe_topic("dask-efficiency", lambda event: published.append(event[1]))
        victim = addresses(client)[2]
        name = name_of(client, victim)
        pid = client.run(os.getpid, workers=[victim])[victim]

        async def act(scheduler: Any, finding: SlowWorker) -> None:
            # The others of a busy machine may be slow too, now and then.
            if finding.worker == name:
                await scheduler.retire_workers(names=[finding.worker])
            raise RuntimeError("after that")

        client.register_plugin(EfficiencyPlugin(on_straggler=act))
        with (
            caplog.at_level(logging.WARNING, "dask_efficiency"),
            stopped_in_turns(pid),
            efficiency_report(client, trace=True) as report,
        ):
            while victim in addresses(client):
                client.gather(client.map(spin, [0.03] * 40, pure=False))
        events = [event for _, event in client.get_events("dask-efficiency")]
        mine = next(event for event in events if event["worker"] == name)
        assert mine["action"] == "straggler"
        found = SlowWorker.from_dict(mine)
        assert found.worker == name
        assert found.effect > 1.2
        assert found.evidence[0].value > found.evidence[0].high
        assert eventually(lambda: [event for event in published if event["worker"] == name])
        assert f"Worker {name}" in caplog.text
        assert name in {finding.worker for finding in report.stragglers}
        assert all(finding.seconds_lost is not None for finding in report.stragglers)
        # It is gone, and a function that fails harms nothing.
        assert name not in {finding.worker for finding in dask_efficiency.stragglers(client)}
        assert "on_straggler failed" in caplog.text
        assert client.submit(sum, [1, 2]).result() == 3


@pytest.mark.parametrize("method", ["encode", "counter"])
def test_task_rates_that_cannot_be_read_cost_no_accounts(new_cluster, method):
    def break_it(dask_worker: Any) -> None:
        setattr(dask_worker.plugins["dask-efficiency-worker"].meter._process_metrics, method, None)

    with new_cluster(n_workers=1) as cluster, Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin())
        client.run(break_it)
        with efficiency_report(client) as report:
            client.gather(client.map(spin, [0.05] * 20, pure=False))
        assert report.tasks["succeeded"] == 20
        assert not report.not_measured
        assert "unmeasured" not in report.breakdown
