import asyncio
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.accounts.gpu import GpuUse
from dask_efficiency.gpu.meter import TaskId, TaskWindow
from dask_efficiency.gpu.profilers import PROFILERS
from dask_efficiency.plugin.worker import gpu_watch
from dask_efficiency.plugin.worker.gpu_watch import GpuWatch
from tests.gpu.conftest import stub, stub_directory
from tests.plugin.watch import eventually
from tests.thread_marks import Marking

__all__ = ["stub", "stub_directory"]


class Threads:
    """Task threads of a worker; the window of each task is noted."""

    def __init__(self, count: int = 1) -> None:
        self.pool = ThreadPoolExecutor(count)
        self.live: dict[int, tuple[int, str]] = {}
        self.done: deque[TaskWindow] = deque()
        self.around: Any = None

    def windows(self) -> list[TaskWindow]:
        running = [TaskWindow(TaskId(ident, start), -1, key) for ident, (start, key) in list(self.live.items())]
        return running + [self.done.popleft() for _ in range(len(self.done))]

    def surround(self, owner: str, around: Any) -> None:
        assert owner == "gpu"
        self.around = around

    def run(self, work: Callable[[], object], key: str = "x-1") -> tuple[TaskId, int]:
        """Run a task, and return its id and end."""
        return self.pool.submit(self._run, work, key).result()

    def _run(self, work: Callable[[], object], key: str) -> tuple[TaskId, int]:
        task = TaskId(threading.get_ident(), time.monotonic_ns())
        self.live[task.thread] = task.start, key
        after = self.around(task) if self.around else None
        work()
        if after:
            after()
        stop = time.monotonic_ns()
        self.done.append(TaskWindow(task, stop, key))
        del self.live[task.thread]
        return task, stop


@pytest.fixture
def threads() -> Iterator[Threads]:
    threads = Threads(4)
    yield threads
    threads.pool.shutdown()


@pytest.fixture
def watching(stub: ModuleType, threads: Threads, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., GpuWatch]]:
    """Makes watches that are closed in the end, in a process that seems to have loaded a framework."""
    monkeypatch.setitem(sys.modules, "cupy_backends", ModuleType("cupy_backends"))
    monkeypatch.setattr(gpu_watch, "INTERVAL_SECONDS", 0.02)
    watches = []

    def make(option: str = "auto", **kwargs: Any) -> GpuWatch:
        options = {"threads": threads, "not_tasks": frozenset, "task_threads": 1, **kwargs}
        watches.append(GpuWatch(option, **options))
        return watches[-1]

    yield make
    for watch in watches:
        watch.close(60)
        assert not watch._thread.is_alive()


def armed(watch: GpuWatch) -> GpuWatch:
    eventually(lambda: watch.armed)
    return watch


def use_of(watch: GpuWatch, task: TaskId, stop: int) -> GpuUse:
    use = eventually(lambda: watch.use(task, stop))
    assert isinstance(use, GpuUse)
    return use


def test_a_tasks_kernels_and_waits_are_its_own_to_the_nanosecond(stub, threads, watching):
    watch = armed(watching())

    waited = []

    def train() -> None:
        stub.launch(0.03, name="gemm")
        last = stub.launch(0.01, name="relu")
        clocks = Marking()
        stub.sync()
        waited.append(last.end - clocks.start - clocks.read().core_wait)

    task, stop = threads.run(train, "train-1")
    use = use_of(watch, task, stop)
    assert watch.use(task, stop) == GpuUse()  # it is reported once
    # All that ran while it waited, and at most all; the stub tells its times to a millisecond.
    assert waited[0] - 1_000_000 < use.kernel <= 40_000_000
    assert (use.contention, use.copy) == (0, 0)
    assert use.spun == sum(use[:4])
    watch.close(60)
    totals = watch.totals()
    (device,) = totals.devices
    assert (totals.meter, totals.coverage, totals.dropped, totals.gaps) == ("cupti", 1.0, 0, 0)
    assert device.kernels == 40_000_000
    assert dict(device.shares) == {"train": 40_000_000}
    assert device.kernels + device.copies + device.idle == device.elapsed
    assert {(k.prefix, k.name): (k.launches, k.ns) for k in totals.kernels} == {
        ("train", "gemm"): (1, 30_000_000),
        ("train", "relu"): (1, 10_000_000),
    }
    assert totals.cost > 0


def test_the_use_of_a_task_that_had_not_ended_by_the_last_flush_is_unknown(stub, watching):
    windows: list[TaskWindow] = []
    watch = armed(watching(threads=SimpleNamespace(windows=lambda: list(windows), surround=lambda *_: None)))
    late, ended = TaskId(1, time.monotonic_ns()), TaskId(2, time.monotonic_ns())
    stop = time.monotonic_ns()
    # The first one's thread is done, and its window is about to be noted.
    windows[:] = [TaskWindow(late, -1, "x-1"), TaskWindow(ended, -1, "x-2"), TaskWindow(ended, stop, "x-2")]
    assert use_of(watch, ended, stop) == GpuUse()
    assert watch.use(late, stop) is None
    windows[0] = TaskWindow(late, stop, "x-1")
    assert eventually(lambda: watch.use(late, stop) is not None)


def test_a_watch_knows_no_use_of_the_tasks_of_another_watch(stub, threads, watching):
    first = armed(watching())
    task, stop = threads.run(lambda: (stub.launch(0.3), stub.sync()))
    first.close(60)
    second = watching()
    use_of(second, *eventually(lambda: second.armed and threads.run(lambda: None)))
    assert second.use(task, stop) is None
    assert use_of(first, task, stop).kernel > 0


def test_metering_begins_after_a_profile_of_ours_that_has_cupti(stub, watching, monkeypatch):
    looks = []
    monkeypatch.setattr(gpu_watch, "_cuda_in_use", lambda: looks.append(1) or True)
    monkeypatch.setattr(PROFILERS, "_entered", object())
    turns = []
    resting = PROFILERS.resting
    monkeypatch.setattr(PROFILERS, "resting", lambda: turns.append(1) or resting())
    watch = watching()
    eventually(lambda: len(turns) > 2)
    assert not looks
    assert not watch.armed
    monkeypatch.setattr(PROFILERS, "_entered", None)
    eventually(lambda: watch.armed)
    assert watch.totals().meter == "cupti"


def test_nothing_is_metered_until_a_framework_has_initialised_cuda(stub, threads, watching, monkeypatch):
    stub.cuda.stub_devices(1, 0, 0)
    watch = watching()
    time.sleep(0.1)
    assert not watch.armed
    assert (watch.totals().meter, watch.totals().description) == ("none", "")
    with monkeypatch.context() as patch:
        patch.setattr(gpu_watch, "FRAMEWORKS", ("no_such_module",))
        time.sleep(0.1)
        looked = []
        patch.setattr("dask_efficiency.gpu.libcuda.loaded_driver", lambda: looked.append(1))
        time.sleep(0.1)
        assert not looked
    stub.cuda.stub_devices(1, 1, 0)
    eventually(lambda: watch.armed)


def test_off_means_no_thread(watching):
    before = threading.active_count()
    watching("off")
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("option", "reasons"),
    [
        ("auto", ["another profiler", "this one has 4"]),
        ("torch-events", ["this one has 4"]),
        ("x", ["no meter is called"]),
    ],
)
def test_a_refused_meter_is_reported_with_every_reason(stub, watching, option, reasons):
    stub.fail("cuptiSubscribe", 39)
    watch = watching(option, task_threads=4)
    description = eventually(lambda: watch.totals().description)
    assert watch.totals().meter == "none"
    assert len(description.split("; ")) == len(reasons)
    assert all(reason in description for reason in reasons)
    assert not stub.cupti.stub_enabled(stub.KERNEL)


def test_without_compiled_callbacks_events_of_torch_are_used_and_the_reason_is_reported(
    stub, watching, monkeypatch, tmp_path, caplog
):
    torch = SimpleNamespace(__version__="9.9", cuda=SimpleNamespace(is_initialized=lambda: True))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr("dask_efficiency.gpu.cupti.meter.OnePool.pool", None)
    monkeypatch.setattr("dask_efficiency.gpu.cupti.callbacks.LIBRARY", tmp_path / "libcallbacks.so.1")
    with caplog.at_level(logging.INFO, "dask_efficiency"):
        watch = armed(watching())
    assert watch.totals().meter == "torch-events"
    assert "an upper bound; CUPTI cannot be used: dask-efficiency was installed without" in watch.totals().description
    assert "CUPTI cannot be used" in caplog.text
    watch.close(60)
    only_cupti = watching("cupti")
    assert "installed without libcallbacks.so.1" in eventually(lambda: only_cupti.totals().description)
    assert only_cupti.totals().meter == "none"


def test_a_later_refusal_keeps_the_accounts(stub, threads, watching):
    watch = armed(watching())
    use_of(watch, *threads.run(lambda: (stub.launch(0.01), stub.sync())))
    eventually(lambda: watch.totals().devices[0].kernels == 10_000_000)
    stub.fail("cuptiActivityFlushAll", 15)
    eventually(lambda: not watch.armed)
    totals = watch.totals()
    assert "could not initialise" in totals.description
    assert totals.devices[0].kernels == 10_000_000
    assert not stub.cupti.stub_enabled(stub.KERNEL)


def test_a_failure_is_logged_once_and_ends_the_metering(stub, watching, caplog):
    def fail() -> list[TaskWindow]:
        raise ZeroDivisionError("of the test's")

    with caplog.at_level(logging.ERROR, "dask_efficiency"):
        watch = watching(threads=SimpleNamespace(windows=fail, surround=lambda *_: None))
        eventually(lambda: watch.totals().description)
        watch._thread.join(60)
    assert watch.totals().description == "failed: ZeroDivisionError: of the test's"
    assert len(caplog.records) == 1
    assert not stub.cupti.stub_enabled(stub.KERNEL)
    asyncio.run(watch.catch_up())


def test_catching_up_flushes_all_that_has_happened_before(stub, threads, watching, monkeypatch):
    watch = armed(watching())
    monkeypatch.setattr(gpu_watch, "INTERVAL_SECONDS", 3600)
    asyncio.run(asyncio.wait_for(watch.catch_up(seconds=100), 50))

    async def ask() -> GpuUse | None:
        task, stop = threads.run(lambda: (stub.launch(0.3), stub.sync()))
        assert watch.use(task, stop) is None
        await asyncio.wait_for(watch.catch_up(seconds=100), 50)
        return watch.use(task, stop)

    use = asyncio.run(ask())
    assert use.kernel > 0


def test_catching_up_ends_even_if_the_watch_hangs(stub, watching, monkeypatch):
    watch = armed(watching())
    release = threading.Event()
    flush = type(watch._meter).flush
    monkeypatch.setattr(type(watch._meter), "flush", lambda self: (release.wait(30), flush(self))[1])
    asyncio.run(watch.catch_up(seconds=0.05))
    release.set()


def test_the_second_watch_of_a_process_reports_the_first_and_meters_once_that_has_ended(stub, watching):
    first, second = armed(watching()), watching()
    assert second.totals().description == "another worker of this process meters its GPUs"
    first.close(60)
    assert armed(second).totals().meter == "cupti"


def test_work_of_other_threads_is_unattributed(stub, threads, watching):
    main = threading.get_ident()
    watch = watching(not_tasks=lambda: {threading.get_ident(), main})
    eventually(lambda: watch.armed)

    def work() -> None:
        stub.launch(0.02)
        stub.sync()

    future = threads.pool.submit(threads._run, work, "x-1")
    stub.launch(0.005, stream=3)
    future.result()
    watch.close(60)
    (device,) = watch.totals().devices
    assert device.unattributed > 0
    assert watch.totals().kernel_ns - watch.totals().attributed_ns == 5_000_000


def test_sensors_are_read_even_if_nothing_can_be_metered(stub, watching, monkeypatch):
    class Sensors:
        def __init__(self, uuids: list[str]) -> None:
            self.uuids = uuids

        def read(self) -> dict[str, dict[str, float]]:
            return {uuid: {"power_watts": 100.0} for uuid in self.uuids}

        def close(self) -> None: ...

    monkeypatch.setattr(gpu_watch, "Nvml", Sensors)
    stub.fail("cuptiSubscribe", 39)
    watch = watching()
    readings = eventually(lambda: watch.totals().readings)
    assert readings == {"GPU-00010203-0405-0607-0809-0a0b0c0d0e0f": {"power_watts": 100.0}}
    assert watch.totals().meter == "none"
    assert watch._thread.is_alive()


@pytest.fixture
def profiler(stub, monkeypatch):
    """Profiler of torch that takes CUPTI, as it does on a GPU."""
    import torch.autograd.profiler as profiler

    monkeypatch.setattr(profiler, "_prepare_profiler", lambda *_: stub.cupti.stub_other_begin())
    monkeypatch.setattr(profiler, "_disable_profiler", lambda *_: stub.cupti.stub_other_end())
    return profiler


@pytest.mark.needs("torch")
def test_records_that_were_lost_to_a_profiler_are_not_waited_for(stub, profiler, threads, watching):
    watch = armed(watching())

    def profiled() -> None:
        stub.launch(1000, stream=3)
        profiler._prepare_profiler(None, {"CUDA"})
        stub.launch(0.02, stream=5)
        stub.sync(stream=5)
        profiler._disable_profiler()

    threads.run(profiled, "profiled-1")
    eventually(lambda: watch.totals().gaps > 20_000_000)
    eventually(lambda: stub.cupti.stub_enabled_call(stub.RUNTIME, stub.LAUNCH))
    threads.run(lambda: (stub.launch(0.01, stream=5), stub.sync(stream=5)), "after-1")
    eventually(lambda: watch.totals().devices[0].kernels == 10_000_000)
    watch.close(60)
    assert {k.prefix: k.ns for k in watch.totals().kernels} == {"after": 10_000_000}
