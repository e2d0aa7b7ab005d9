"""A worker that is stopped in turns is found, told of in every way, and retired if one asks for that."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from distributed import Client

import dask_efficiency
from dask_efficiency import EfficiencyPlugin, efficiency_report
from dask_efficiency.straggler.finding import Finding
from dask_efficiency.straggler.offline import judge
from tests.plugins.tasks import spin
from tests.plugins.watch import addresses, eventually, name_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


@contextmanager
def stopped_in_turns(pid: int, *, seconds: float = 0.15) -> Iterator[None]:
    """Lets a process run for half of the time."""
    over = threading.Event()

    def turns() -> None:
        while not over.is_set():
            os.kill(pid, signal.SIGSTOP)
            over.wait(seconds)
            os.kill(pid, signal.SIGCONT)
            over.wait(seconds)

    thread = threading.Thread(target=turns)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        os.kill(pid, signal.SIGCONT)


def work_until(client: Client, condition: Any, *, seconds: float = 300) -> Any:
    until = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < until, f"waited {seconds} s in vain"
        client.gather(client.map(spin, [0.03] * 40, pure=False))
    return value


def told_of(client: Client, name: str) -> Finding | None:
    """What is found of a worker; the others of a busy machine may be slow too, now and then."""
    return next((finding for finding in dask_efficiency.stragglers(client) if finding.worker == name), None)


def test_a_worker_that_is_stopped_in_turns_is_found_and_told_of_in_every_way(new_cluster, caplog):
    with new_cluster(n_workers=4, threads_per_worker=1) as cluster, Client(cluster) as client:
        told: list[Any] = []
        client.subscribe_topic("dask-efficiency", lambda event: told.append(event[1]))
        client.register_plugin(EfficiencyPlugin())
        victim = addresses(client)[2]
        name = name_of(client, victim)
        pid = client.run(os.getpid, workers=[victim])[victim]
        with (
            caplog.at_level(logging.WARNING, "dask_efficiency"),
            stopped_in_turns(pid),
            efficiency_report(client, trace=True) as report,
        ):
            found = work_until(client, lambda: told_of(client, name))
        assert found.effect > 1.2
        assert found.evidence[0].value > found.evidence[0].high
        assert name in {finding.worker for finding in report.stragglers}
        assert all(finding.seconds_lost is not None for finding in report.stragglers)
        assert f"Straggler: worker {name!r}" in caplog.text
        events = [event for _, event in client.get_events("dask-efficiency")]
        mine = next(event for event in events if event["worker"] == name)
        assert mine["action"] == "straggler"
        assert Finding.from_dict(mine).worker == name
        assert eventually(lambda: [event for event in told if event["worker"] == name])


def test_a_callable_retires_the_straggler_and_one_that_fails_harms_nothing(new_cluster, caplog):
    with new_cluster(n_workers=4, threads_per_worker=1) as cluster, Client(cluster) as client:
        victim = addresses(client)[1]
        pid = client.run(os.getpid, workers=[victim])[victim]

        name = name_of(client, victim)

        async def act(scheduler: Any, finding: Finding) -> None:
            # The others of a busy machine may be slow too, now and then.
            if finding.worker == name:
                await scheduler.retire_workers(names=[finding.worker])
            raise RuntimeError("after that")

        client.register_plugin(EfficiencyPlugin(on_straggler=act))
        with caplog.at_level(logging.ERROR, "dask_efficiency"), stopped_in_turns(pid):
            work_until(client, lambda: victim not in addresses(client))
        assert "on_straggler failed" in caplog.text
        assert name not in {finding.worker for finding in dask_efficiency.stragglers(client)}
        assert client.submit(sum, [1, 2]).result() == 3


def partition(number: int) -> bytes:
    return bytes(20_000_000 if number == 100 else 1_000_000)


def worked_on(part: bytes) -> int:
    time.sleep(0.5 * len(part) / 1e6)
    return len(part)


def test_one_partition_that_is_20_times_as_large_is_named_and_no_worker_accused(new_cluster, tmp_path):
    with new_cluster(n_workers=4, threads_per_worker=2) as cluster, Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin())
        with efficiency_report(client, trace=True) as report:
            parts = client.map(partition, range(200), pure=False)
            works = client.map(worked_on, parts, pure=False)
            client.gather(works)
        assert report.stragglers == ()
        found = judge(report.trace)
        assert found.findings == ()
        assert works[100].key in {long.key for long in found.long_tasks}


def test_a_watch_that_fails_costs_no_accounts(new_cluster, caplog):
    def break_it(dask_scheduler: Any) -> None:
        stragglers = dask_scheduler.plugins[EfficiencyPlugin.name]._meter.accounts.stragglers
        stragglers._watch.poll = None

    with new_cluster(n_workers=1) as cluster, Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin())
        with caplog.at_level(logging.ERROR, "dask_efficiency"):
            client.run_on_scheduler(break_it)
            with efficiency_report(client) as report:
                client.gather(client.map(spin, [0.05] * 20, pure=False))
                time.sleep(1)
        assert report.tasks["succeeded"] == 20
        assert caplog.text.count("looks for stragglers no more") == 1


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
