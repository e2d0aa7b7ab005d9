"""Whatever goes wrong in the meter, or arrives from a worker: the computation ends with the right result."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Iterator
from functools import reduce
from typing import Any

import dask
import distributed.worker
import pytest
from distributed import Client, LocalCluster
from distributed.metrics import context_meter

from dask_efficiency import EfficiencyPlugin, efficiency_report, snapshot, unregister
from tests.plugin.loops import metered_cluster
from tests.plugin.tasks import increment, nap, spin
from tests.plugin.watch import addresses, between, eventually, name_of, near, nothing_runs, timed_report

pytestmark = pytest.mark.cluster


class Injected(Exception):
    """Thrown by the tests, into the package."""


def boom(*args: Any, **kwargs: Any) -> Any:
    raise Injected("injected")


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    """A client of a cluster with a fresh registration, whatever the last test did to its own."""
    with Client(cluster) as client:
        unregister(client)
        client.register_plugin(EfficiencyPlugin())
        yield client
        unregister(client)
        eventually(lambda: nothing_runs(client))


def meter_of(dask_worker: Any) -> Any:
    return dask_worker.plugins["dask-efficiency-worker"].meter


def compute(client: Client) -> None:
    """Twenty tasks on all workers end with the right results."""
    assert client.gather(client.map(increment, range(20), pure=False)) == list(range(1, 21))


# -- on the worker ---------------------------------------------------------------------------


def read(number: int) -> int:
    """A task that notes a time in the wrong unit, and a loss that diverged."""
    # A float, as Dask itself can carry whole numbers below 2**64 only.
    context_meter.digest_metric("read", float(time.time_ns()), "seconds")
    context_meter.digest_metric("loss", math.nan, "loss")
    context_meter.digest_metric("rows", 1, "count")
    return number


def test_what_tasks_count_by_mistake_ends_no_computation_and_is_named_in_the_report(new_cluster):
    with new_cluster() as cluster, Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin())
        there = addresses(client)
        with efficiency_report() as report:
            assert sum(client.gather(client.map(read, range(40), pure=False))) == 780
        assert addresses(client) == there
    assert not report.not_measured
    counted = report.to_frame("metered").groupby("label")["value"].sum()
    assert counted["rows"] == 40
    assert sum(counted.get(label, 0) for label in ("read", "loss")) == 0
    notes = [note for note in report.notes if "is left out" in note]
    assert [note.split()[:2] for note in sorted(notes)] == [["label", "loss"], ["label", "read"]]
    assert all(" (on tcp://" in note for note in notes)


def collect_logs(dask_worker: Any) -> None:
    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            self.records.append(record.getMessage())

    handler = Collector()
    handler.records = dask_worker.collected = []
    logger = logging.getLogger("dask_efficiency")
    logger.addHandler(handler)
    logger.propagate = False
    dask_worker.collector = handler


def collected_logs(dask_worker: Any) -> list[str]:
    logging.getLogger("dask_efficiency").removeHandler(dask_worker.collector)
    return list(dask_worker.collected)


def break_meter(dask_worker: Any, path: str) -> None:
    """Have a method of a worker's meter raise."""
    meter = meter_of(dask_worker)
    if path == "_pending._spill":  # read where the data tell nothing of themselves
        meter.spills.watching = False
    replace(meter, path)
    if path == "threads.elsewhere":
        meter.threads.detach()


def replace(meter: Any, path: str, by: Any = boom) -> None:
    *owners, name = path.split(".")
    setattr(reduce(getattr, owners, meter), name, by)


def is_replaced(dask_worker: Any) -> bool:
    return hasattr(distributed.worker._run_task, "__wrapped__")


@pytest.mark.parametrize(
    "path",
    [
        *("hooks._take", "_ledger.finalize_many", "_pending._spill", "_ledger.balance", "_ledger.close_window"),
        "threads.elsewhere",
    ],
)
def test_a_failure_on_a_worker_is_logged_once_and_switches_its_meter_off(client, path):
    first, second = addresses(client)
    name = name_of(client, first)
    client.run(collect_logs, workers=[first])
    with timed_report(client) as (report, window):
        client.run(break_meter, path=path, workers=[first])
        for address in (first, second):
            futures = client.map(increment, range(20), workers=[address], pure=False)
            assert client.gather(futures) == list(range(1, 21))
        result = client.submit(spin, 0.1, workers=[second], pure=False).result()
    (logged,) = client.run(collected_logs, workers=[first])[first]
    assert "switched its meter" in logged
    life = snapshot(client)
    assert "Injected" in life.not_measured[name] or "TypeError" in life.not_measured[name]
    assert name in report.not_measured
    assert report.by_worker[name]["unmeasured"] > 0
    assert report.breakdown.total == between(4 * window.least, 4 * window.most)
    # The other worker is measured as before, and this one has nothing of ours in its way any more.
    assert report.by_worker[name_of(client, second)]["thread-cpu"] >= result["cpu"]
    assert client.run(is_replaced, workers=[first]) == {first: False}
    before = life.by_worker[name]["unmeasured"]
    compute(client)
    assert snapshot(client).by_worker[name]["unmeasured"] > before
    # A fresh registration measures it again.
    unregister(client)
    client.register_plugin(EfficiencyPlugin())
    compute(client)
    assert not snapshot(client).not_measured


@pytest.mark.parametrize(("path", "fails_at_once"), [("hooks._take", True), ("_ledger.finalize_all", False)])
def test_a_worker_whose_meter_fails_closes_cleanly(mortal_client, attendance, path, fails_at_once):
    client = mortal_client
    first = addresses(client)[0]
    client.run(break_meter, path=path, workers=[first])
    compute(client)
    if fails_at_once:
        eventually(lambda: attendance.names[first] in snapshot(client).not_measured)
    client.retire_workers([first])
    eventually(lambda: first in attendance.left)
    compute(client)
    if fails_at_once:
        report = snapshot(client)
        assert report.by_worker[attendance.names[first]]["unmeasured"] > 0
        assert report.breakdown["lost-worker"] == 0


# -- on the scheduler ------------------------------------------------------------------------


GIVEN, ACCRUE = "accounts.work._given", "accounts.cluster.accrue"


def break_scheduler(dask_scheduler: Any, path: str) -> None:
    replace(dask_scheduler.plugins[EfficiencyPlugin.name]._meter, path)


@pytest.mark.parametrize("path", [GIVEN, ACCRUE, "graph_taken_in", "accounts.cluster.receive"])
def test_a_failure_on_the_scheduler_is_logged_once_and_switches_the_meter_off(client, path, caplog):
    report = efficiency_report(client)
    report.__enter__()
    client.run_on_scheduler(break_scheduler, path=path)
    compute(client)
    eventually(lambda: client.run_on_scheduler(is_off))
    compute(client)
    with pytest.warns(RuntimeWarning, match="injected"):
        report.__exit__(None, None, None)
    errors = [record for record in caplog.records if record.name == "dask_efficiency" and record.levelname == "ERROR"]
    assert len(errors) == 1, caplog.records
    with pytest.raises(RuntimeError, match="injected"):
        _ = report.efficiency
    with pytest.raises(Exception, match="injected"):
        snapshot(client)
    compute(client)
    unregister(client)
    client.register_plugin(EfficiencyPlugin())
    compute(client)
    assert snapshot(client).breakdown.total > 0


def is_off(dask_scheduler: Any) -> bool:
    return dask_scheduler.plugins[EfficiencyPlugin.name]._meter.guard.off is not None


def test_a_report_after_a_failure_begins_anew_and_the_registration_stays(client):
    client.register_plugin(EfficiencyPlugin(price_per_worker_hour=7))
    client.run_on_scheduler(break_scheduler, path=GIVEN)
    compute(client)
    assert client.run_on_scheduler(is_off)
    with efficiency_report(client) as report:
        result = client.submit(spin, 0.2, pure=False).result()
    assert report.by_prefix["spin"]["thread-cpu"] == near(result["cpu"])
    assert report.price_per_worker_hour == 7
    assert snapshot(client).price_per_worker_hour == 7


def test_a_window_that_cannot_be_opened_does_not_keep_the_user_from_computing(client):
    client.run_on_scheduler(break_scheduler, path="_windows.open")
    report = efficiency_report(client)
    with pytest.warns(RuntimeWarning, match="injected"):
        report.__enter__()
    compute(client)
    report.__exit__(None, None, None)
    with pytest.raises(RuntimeError, match="injected"):
        _ = report.efficiency


def test_a_cluster_whose_meter_failed_closes_cleanly(new_cluster, tmp_path):
    with new_cluster(n_workers=1) as cluster, Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin(save_to=str(tmp_path / "life.json")))
        client.run_on_scheduler(break_scheduler, path=ACCRUE)
        compute(client)
        eventually(lambda: client.run_on_scheduler(is_off))


# -- what arrives from workers ---------------------------------------------------------------


def answer_with(dask_worker: Any, answer: Any, seconds: float = 0.0) -> None:
    async def handle(**kwargs: Any) -> Any:
        await asyncio.sleep(seconds)
        return answer

    dask_worker.handlers["efficiency"] = handle


def test_a_worker_that_does_not_answer_costs_the_timeout_and_counts_as_last_heard_of(client):
    client.register_plugin(EfficiencyPlugin(report_timeout="500ms"))
    first = addresses(client)[0]
    with timed_report(client) as (report, window):
        client.run(answer_with, answer=None, seconds=3600, workers=[first])
        client.submit(nap, 0.1, workers=[first], pure=False).result()
    assert "no answer in 0.5 s" in report.not_measured[name_of(client, first)]
    assert report.breakdown.total == between(4 * window.least, 4 * window.most)


# -- what Dask does with heartbeats ----------------------------------------------------------


def test_metering_needs_no_low_level_logs():
    async def run() -> Any:
        async with metered_cluster(2) as (_, worker, client):
            async with efficiency_report(client, trace=True) as report:
                assert await client.gather(client.map(increment, range(20))) == list(range(1, 21))
            assert not worker.state.stimulus_log
            return report

    with dask.config.set({"distributed.admin.low-level-log-length": 0}):
        report = asyncio.run(run())
    assert not report.not_measured
    assert report.tasks["succeeded"] == 20
    assert len(report.trace.runs) == 20
