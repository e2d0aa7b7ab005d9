"""A worker's meter: when its heartbeats tell anything new."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable

import pytest
from distributed import Client, Scheduler, Worker
from distributed.worker_state_machine import TaskState

from dask_efficiency import EfficiencyPlugin
from dask_efficiency.accounts.gpu import GpuTotals, GpuUse
from dask_efficiency.gpu.meter import TaskId
from dask_efficiency.plugin.bootstrap import EfficiencyWorkerPlugin
from dask_efficiency.plugin.names import CLOSE, EVERYTHING, METRIC, OPEN
from dask_efficiency.plugin.worker import gpu as worker_gpu
from dask_efficiency.plugin.worker import meter as module
from dask_efficiency.plugin.worker.meter import WorkerMeter

ADDRESS = {"host": "127.0.0.1", "port": 0, "dashboard_address": "127.0.0.1:0"}


def metered(check: Callable[[Scheduler, Worker, WorkerMeter], Awaitable[None]]) -> None:
    """Run a check with a worker in this process."""

    async def run() -> None:
        async with (
            Scheduler(**ADDRESS) as scheduler,
            Worker(scheduler.address, nthreads=1, **ADDRESS) as worker,
            Client(scheduler.address, asynchronous=True) as client,
        ):
            await client.register_plugin(EfficiencyPlugin())
            await check(scheduler, worker, worker.plugins[EfficiencyWorkerPlugin.name].meter)

    asyncio.run(run())


def test_a_heartbeat_soon_after_a_new_one_repeats_it_and_an_answer_is_always_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def check(scheduler: Scheduler, worker: Worker, meter: WorkerMeter) -> None:
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

    metered(check)


def test_while_an_answer_waits_to_be_sent_no_heartbeat_is_ahead_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(scheduler: Scheduler, worker: Worker, meter: WorkerMeter) -> None:
        monkeypatch.setattr(module, "REPEAT_NS", 0)
        before = meter.heartbeat(worker)
        answering = asyncio.create_task(meter.handle(OPEN, "a window", delay=3600.0))
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

    metered(check)


def test_a_scheduler_that_misses_something_is_told_all_with_the_next_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(scheduler: Scheduler, worker: Worker, meter: WorkerMeter) -> None:
        monkeypatch.setattr(module, "REPEAT_NS", 0)
        while "s" not in (last := meter.heartbeat(worker)):
            pass
        monkeypatch.setattr(module, "REPEAT_NS", 1 << 62)
        assert meter.heartbeat(worker) == last
        await meter.handle(EVERYTHING)
        told = meter.heartbeat(worker)
        assert told["n"] == last["n"] + 1
        assert "s" not in told

    metered(check)


def test_the_scheduler_takes_a_repeated_heartbeat_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(scheduler: Scheduler, worker: Worker, meter: WorkerMeter) -> None:
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

    metered(check)


class ClosingWatch:
    """It knows of no task what that had of the GPU before it is closed."""

    def __init__(self, *args: object) -> None:
        self.closed = False

    def use(self, task: TaskId, stop: int) -> GpuUse | None:
        return GpuUse(kernel=1000) if self.closed else None

    def totals(self) -> GpuTotals:
        return GpuTotals("cupti", "fake")

    async def catch_up(self) -> None: ...

    def close(self) -> None:
        self.closed = True


def test_a_meter_that_is_taken_away_asks_the_watch_that_saw_its_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_gpu, "new_watch", ClosingWatch)

    async def check(scheduler: Scheduler, worker: Worker, meter: WorkerMeter) -> None:
        meter.threads.windows()
        await Client.current().submit(time.sleep, 0.01)
        meter.detach()
        balance = meter._ledger.balance(at=time.monotonic_ns())
        assert (balance.finalized["gpu"], balance.running, balance.tasks) == (1000, 0, {"succeeded": 1})

    metered(check)


def test_a_meter_holds_no_task_of_dasks_that_is_gone() -> None:
    async def check(scheduler: Scheduler, worker: Worker, meter: WorkerMeter) -> None:
        worker.periodic_callbacks["heartbeat"].stop()
        others = set(TaskState._instances)
        async with Client(scheduler.address, asynchronous=True) as client:
            await client.gather(client.map(abs, range(20), pure=False))
        while worker.state.tasks:  # noqa: ASYNC110  # no event says so
            await asyncio.sleep(0.01)
        assert len(meter.hooks._log) >= 2 * 20  # nobody has read what happened to them
        gc.collect()
        assert set(TaskState._instances) <= others

    metered(check)


def test_a_meter_that_fails_when_another_has_its_place_stops_only_itself() -> None:
    async def check(scheduler: Scheduler, worker: Worker, meter: WorkerMeter) -> None:
        stopped: list[str] = []
        meter.stop_measuring = lambda: stopped.append(meter.incarnation)  # type: ignore[method-assign]
        module.stop(worker, "of another")
        assert stopped == []
        module.stop(worker, meter.incarnation)
        assert stopped == [meter.incarnation]

    metered(check)
