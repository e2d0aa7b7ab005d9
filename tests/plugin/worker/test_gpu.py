from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.accounts.gpu import DeviceTotals, GpuTotals, GpuUse
from dask_efficiency.gpu.meter import TaskId
from dask_efficiency.plugin.worker import gpu as worker_gpu
from dask_efficiency.plugin.worker.gpu import WorkerGpu, threads_of_no_task
from dask_efficiency.plugin.worker.threads import TaskThreads

TASK = TaskId(1, 2)


class FakeWatch:
    """A watch with given totals, which may fail."""

    def __init__(self, kernels: int = 0) -> None:
        device = DeviceTotals("GPU-0", elapsed=kernels, kernels=kernels, unattributed=kernels)
        self.says = GpuTotals("cupti", "fake", (device,)) if kernels else GpuTotals()
        self.fails = False
        self.closed = 0

    def use(self, task: TaskId, stop: int) -> GpuUse | None:
        self.may_fail()
        return GpuUse(kernel=7)

    def totals(self) -> GpuTotals:
        self.may_fail()
        return self.says

    async def catch_up(self) -> None:
        self.may_fail()

    def may_fail(self) -> None:
        if self.fails:
            raise RuntimeError("injected")

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def watches(monkeypatch) -> list[FakeWatch]:
    """Those that will be made, the next one last."""
    made = [FakeWatch(300), FakeWatch(100)]
    monkeypatch.setattr(worker_gpu, "new_watch", lambda *_: made.pop())
    return made


@pytest.fixture
def worker() -> Any:
    return SimpleNamespace(
        address="tcp://a",
        executors={},
        state=SimpleNamespace(threads={}, stimulus_log=[None], executing=set()),
        active_threads={},
        active_threads_lock=threading.Lock(),
    )


@pytest.fixture
def threads(worker) -> TaskThreads:
    return TaskThreads(worker)


@pytest.fixture
def gpu(worker, threads) -> WorkerGpu:
    return WorkerGpu(worker, threads)


def kernels(gpu: WorkerGpu) -> int:
    totals = gpu.totals(unknown_tasks=0)
    return sum(device.kernels for device in totals.devices)


def test_nothing_is_watched_if_the_option_is_off(gpu, watches):
    gpu.start("off")
    assert len(watches) == 2
    assert gpu.totals(unknown_tasks=0) is None
    assert gpu.use(TASK, 3) is None
    asyncio.run(gpu.catch_up())
    gpu.stop()


def test_there_are_no_totals_until_a_gpu_is_used_or_the_meter_is_refused(gpu, watches):
    watch = watches[-1]
    watch.says = GpuTotals()
    gpu.start("auto")
    assert gpu.totals(unknown_tasks=0) is None
    watch.says = GpuTotals("none", "another profiler is attached")
    totals = gpu.totals(unknown_tasks=3)
    assert (totals.meter, totals.description, totals.unknown_tasks) == ("none", "another profiler is attached", 3)


def test_accounts_go_on_with_the_next_watch_and_a_stopped_one_can_still_be_asked(gpu, watches):
    gpu.start("auto")
    assert kernels(gpu) == 100
    gpu.stop()
    gpu.stop()
    assert kernels(gpu) == 100
    assert gpu.use(TASK, 3) == GpuUse(kernel=7)
    gpu.start("auto")
    assert kernels(gpu) == 100 + 300
    gpu.start("auto")
    assert kernels(gpu) == 100 + 300


@pytest.mark.parametrize("asking", ["use", "totals", "catch_up"])
def test_a_failure_is_logged_once_and_the_last_report_stays(gpu, threads, watches, caplog, asking):
    watch = watches[-1]
    gpu.start("auto")
    threads.windows()
    assert kernels(gpu) == 100
    watch.fails = True
    for _ in range(2):
        if asking == "use":
            assert gpu.use(TASK, 3) is None
        elif asking == "catch_up":
            asyncio.run(gpu.catch_up())
        assert kernels(gpu) == 100
    totals = gpu.totals(unknown_tasks=0)
    assert (totals.meter, "injected" in totals.description) == ("none", True)
    assert threads.ended is None
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    gpu.start("auto")
    assert kernels(gpu) == 100


def test_windows_end_when_the_meter_is_refused(gpu, threads, watches):
    watch = watches[-1]
    gpu.start("auto")
    threads.windows()
    for says, watched in ((GpuTotals(), True), (GpuTotals("none", "another profiler is attached"), False)):
        watch.says = says  # at first it is about to meter, and reads windows already
        gpu.totals(unknown_tasks=0)
        assert (threads.ended is not None) is watched


def test_threads_of_dask_are_no_tasks():
    go_on = threading.Event()
    thread = threading.Thread(target=go_on.wait, name="Dask-Offload-0")
    task = threading.Thread(target=go_on.wait, name="Dask-Default-Threads-1-0")
    for each in (thread, task):
        each.start()
    found = threads_of_no_task(17)
    go_on.set()
    assert {17, thread.ident} <= found
    assert task.ident not in found
