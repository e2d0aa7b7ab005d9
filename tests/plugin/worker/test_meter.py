"""Heartbeats of a worker's meter, and its end."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from distributed import Client, Scheduler, Worker
from distributed.worker_state_machine import TaskState

from dask_efficiency import EfficiencyPlugin
from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.accounts.gpu import GpuTotals, GpuUse
from dask_efficiency.accounts.wire.heartbeats import EVERYTHING as EVERYTHING_EACH
from dask_efficiency.accounts.wire.heartbeats import REPEATS
from dask_efficiency.accounts.worker.answer import decode_answer, metered_in
from dask_efficiency.gpu.meter import TaskId
from dask_efficiency.plugin.bootstrap import EfficiencyWorkerPlugin
from dask_efficiency.plugin.names import (
    ASK_FINAL_SNAPSHOT,
    CLOSE,
    EVERYTHING,
    FLUSH,
    LEFT_OUT,
    MAX_DELAY_SECONDS,
    METRIC,
    OPEN,
    RECORD,
    SNAPSHOT,
)
from dask_efficiency.plugin.worker import gpu as worker_gpu
from dask_efficiency.plugin.worker import meter as module
from dask_efficiency.plugin.worker.meter import WorkerMeter
from tests.payloads import through_msgpack
from tests.plugin.loops import metered_cluster, within


@asynccontextmanager
async def metered() -> AsyncIterator[tuple[Scheduler, Worker, WorkerMeter]]:
    """A metered worker in this process."""
    async with metered_cluster(1) as (scheduler, worker, _):
        yield scheduler, worker, worker.plugins[EfficiencyWorkerPlugin.name].meter


@within(metered)
async def test_a_heartbeat_soon_after_another_repeats_it_and_answers_are_new(scheduler, worker, meter, *, monkeypatch):
    monkeypatch.setattr(module, "REPEAT_NS", 0)
    former, first = meter.heartbeat(worker), meter.heartbeat(worker)
    assert first["n"] == former["n"] + 1
    monkeypatch.setattr(module, "REPEAT_NS", 1 << 62)
    again = meter.heartbeat(worker)
    assert again == first
    assert again is not first
    opened = await meter.handle(OPEN, "a window")
    assert opened["snapshot"]["n"] == first["n"] + 1
    assert meter.heartbeat(worker) == first
    closed = await meter.handle(CLOSE, "a window")
    assert closed["snapshot"]["n"] == first["n"] + 2
    assert closed["window"]
    monkeypatch.setattr(module, "REPEAT_NS", 0)
    assert meter.heartbeat(worker)["n"] == first["n"] + 3


@within(metered)
async def test_no_heartbeat_is_ahead_of_an_answer_that_waits_to_be_sent(scheduler, worker, meter, *, monkeypatch):
    worker.periodic_callbacks["heartbeat"].stop()
    monkeypatch.setattr(module, "REPEAT_NS", 0)
    before = meter.heartbeat(worker)
    answering = asyncio.create_task(meter.handle(OPEN, "a window", delay=MAX_DELAY_SECONDS))
    while not meter._answers:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert meter.heartbeat(worker) == before
    answering.cancel()  # as when the connection breaks
    with pytest.raises(asyncio.CancelledError):
        await answering
    assert meter.heartbeat(worker)["n"] == before["n"] + 2
    answer = await meter.handle(CLOSE, "a window", delay=1e-6)
    assert answer["window"]
    assert answer["snapshot"]["n"] == before["n"] + 3


@within(metered)
async def test_a_scheduler_that_missed_something_gets_everything_with_the_next_heartbeat(
    scheduler, worker, meter, *, monkeypatch
):
    monkeypatch.setattr(module, "REPEAT_NS", 0)
    while "s" not in (last := meter.heartbeat(worker)):
        pass
    monkeypatch.setattr(module, "REPEAT_NS", 1 << 62)
    assert meter.heartbeat(worker) == last
    await meter.handle(EVERYTHING)
    everything = meter.heartbeat(worker)
    assert everything["n"] == last["n"] + 1
    assert "s" not in everything


@within(metered)
async def test_the_scheduler_takes_a_repeated_heartbeat_once(scheduler, worker, meter, *, monkeypatch):
    accounts = scheduler.plugins[EfficiencyPlugin.name]._meter.accounts  # type: ignore[union-attr]
    monkeypatch.setattr(module, "REPEAT_NS", 0)
    ws = scheduler.workers[worker.address]
    taken: list[object] = []
    receive = accounts.cluster.receive
    monkeypatch.setattr(accounts.cluster, "receive", lambda *args, **at: (taken.append(args), receive(*args, **at)))
    payload = meter.heartbeat(worker)
    for sent in (payload, dict(payload), meter.heartbeat(worker)):
        ws.metrics = {METRIC: sent}
        accounts.poll()
    assert [given["n"] for _, given in taken] == [payload["n"], payload["n"] + 1]
    assert accounts.cluster.stale == 0


@within(metered)
async def test_the_scheduler_asks_for_everything_after_too_many_lost_heartbeats(
    scheduler, worker, meter, *, monkeypatch
):
    monkeypatch.setattr(module, "REPEAT_NS", 0)
    worker.periodic_callbacks["heartbeat"].stop()
    accounts = scheduler.plugins[EfficiencyPlugin.name]._meter.accounts  # type: ignore[union-attr]
    presence = accounts.cluster.present[worker.address]

    async def is_read() -> bool:
        """Send the next heartbeat."""
        await worker.heartbeat()
        accounts.poll()
        return presence.received is not None and not presence.missed

    while not (await is_read() and presence.received.seq > 2 * REPEATS):
        pass
    *_, lost = [meter.heartbeat(worker) for _ in range(REPEATS + 1)]
    assert not await is_read()
    assert accounts.cluster.missed == 1
    while not await is_read():
        pass
    assert lost["n"] < presence.received.seq < EVERYTHING_EACH  # it did not come by itself


@within(metered)
async def test_a_worker_that_does_not_close_has_no_final_snapshot(scheduler, worker, meter):
    assert await meter.handle(ASK_FINAL_SNAPSHOT) == {}
    assert (await meter.handle(SNAPSHOT))["snapshot"]


@pytest.mark.parametrize(
    "asked",
    [
        *({"action": OPEN, "window": window} for window in (None, 7, ["w"], "x" * 10_000, "\ud800")),
        *({"action": OPEN, "window": "w", "delay": delay} for delay in (1e9, -1, math.nan, "1", None, True)),
        *({"action": CLOSE, "window": "w", "limit": limit} for limit in (-1, 1.5, "1", None, 1 << 70)),
        *({"action": action} for action in (7, None, ["open"])),
        *({"action": RECORD, "window": window} for window in (7, ["r"], "\ud800")),
        *({"action": RECORD, "profile": profile} for profile in (7, {"me": 7}, {7: {}}, {"me": {"a": -1}})),
    ],
)
@within(metered)
async def test_a_malformed_question_is_an_error_of_whoever_asked_and_costs_nothing_else(
    scheduler, worker, meter, *, monkeypatch, asked
):
    monkeypatch.setattr(module, "REPEAT_NS", 0)
    before = meter.heartbeat(worker)
    with pytest.raises(RefusedPayload):
        await meter.handle(**asked)
    assert meter.off is None
    assert meter._parts.failures() == []
    assert meter._ledger.windows == ()
    assert meter.heartbeat(worker)["n"] == before["n"] + 1
    assert await meter.handle(RECORD, "a recording") == {}
    assert (await meter.handle(FLUSH)).keys() == {"seq"}


@within(metered)
async def test_what_tasks_count_as_time_in_the_wrong_unit_ends_no_heartbeat(
    scheduler, worker, meter, *, monkeypatch, caplog
):
    monkeypatch.setattr(module, "REPEAT_NS", 0)
    await meter.handle(OPEN, "w")
    with caplog.at_level(logging.WARNING, "dask_efficiency"):
        for value in (time.time_ns(), math.nan, 7):
            worker.digest_metric(("execute", "span", "read", "read", "seconds"), value)
            worker.digest_metric(("execute", "span", "read", "disk-read", "seconds"), value)
            worker.digest_metric(("execute", "span", "read", "rows", "count"), 1)
            through_msgpack(meter.heartbeat(worker))
    answer = await meter.handle(CLOSE, "w")
    assert meter.off is None
    metered = metered_in(decode_answer(answer["window"]).facts)
    assert [value for key, value in metered.items() if key.label == "rows"] == [3]
    logged = [record.getMessage() for record in caplog.records if record.name == "dask_efficiency"]
    assert logged == [f"dask_efficiency: {what}" for what in answer[LEFT_OUT]]
    assert [what.split()[1] for what in answer[LEFT_OUT]] == ["read", "disk-read"]


class ClosingWatch:
    """A watch that knows the use of tasks once it is closed."""

    def __init__(self, *args: object) -> None:
        self.closed = False

    def use(self, task: TaskId, stop: int) -> GpuUse | None:
        return GpuUse(kernel=1000) if self.closed else None

    def totals(self) -> GpuTotals:
        return GpuTotals("cupti", "fake")

    async def catch_up(self) -> None: ...

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def closing_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_gpu, "new_watch", ClosingWatch)


@pytest.mark.usefixtures("closing_watch")
@within(metered)
async def test_a_meter_that_is_removed_finalizes_tasks_with_their_use_of_the_gpu(scheduler, worker, meter):
    meter.threads.windows()
    await Client.current().submit(time.sleep, 0.01)
    meter.detach()
    balance = meter._ledger.balance(at=time.monotonic_ns())
    assert (balance.finalized["gpu"], balance.running, balance.tasks) == (1000, 0, {"succeeded": 1})


@within(metered)
async def test_a_meter_keeps_no_task_of_dask_alive(scheduler, worker, meter):
    worker.periodic_callbacks["heartbeat"].stop()
    others = set(TaskState._instances)
    async with Client(scheduler.address, asynchronous=True) as client:
        await client.gather(client.map(abs, range(20), pure=False))
    while worker.state.tasks:  # noqa: ASYNC110  # no event says so
        await asyncio.sleep(0.01)
    assert len(meter.hooks._log) >= 2 * 20  # their entries are not read yet
    gc.collect()
    assert set(TaskState._instances) <= others


@within(metered)
async def test_a_failed_meter_does_not_stop_its_successor(scheduler, worker, meter):
    stopped: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(meter, "stop_measuring", lambda: stopped.append(meter.incarnation))
        module.stop(worker, "of another")
        assert stopped == []
        module.stop(worker, meter.incarnation)
        assert stopped == [meter.incarnation]
