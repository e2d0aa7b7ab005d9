import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from dask_efficiency.gpu import calls
from dask_efficiency.gpu.calls import DRIVER_CALLS, RUNTIME_CALLS
from dask_efficiency.gpu.cupti import CuptiMeter, callbacks
from dask_efficiency.gpu.meter import BLOCKS, COPY, FILL, KERNEL, RETURNS, SPINS, GpuBatch, MeterRefused


@pytest.fixture
def meter(stub: ModuleType) -> Iterator[CuptiMeter]:
    meter = CuptiMeter()
    yield meter
    meter.close()


@pytest.fixture
def no_launch_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """No launch that the system interrupts is taken for one that waited."""
    monkeypatch.setattr(calls, "LONG", 1 << 62)


def until(meter: CuptiMeter, instant: int) -> GpuBatch:
    """Flush until everything up to an instant is known, and put the batches together."""
    batches = [meter.flush()]
    while batches[-1].known_until < instant:
        assert len(batches) < 6_000
        time.sleep(0.01)
        batches.append(meter.flush())
    return together(batches)


def together(batches: list[GpuBatch]) -> GpuBatch:
    names: list[str] = []
    operations = []
    for batch in batches:
        part = batch.operations.copy()
        part["name"][part["name"] >= 0] += len(names)
        names += batch.names
        operations.append(part)
    calls = np.concatenate([batch.calls for batch in batches])
    return GpuBatch(np.concatenate(operations), calls, names, known_until=batches[-1].known_until)


@pytest.mark.usefixtures("no_launch_is_long")
def test_a_kernel_has_its_times_its_name_and_its_call(stub: ModuleType, meter: CuptiMeter):
    span = stub.launch(0.02, name="_ZN2at6native11fill_kernelIfEEvPT_i", device=0, stream=9)
    batch = until(meter, span.end)
    (operation,) = batch.operations
    (call,) = batch.calls
    # The stub converts from the wall clock once, the meter by the best of some readings.
    assert abs(int(operation["start"]) - span.start) < 1_000_000
    assert operation["end"] - operation["start"] == 20_000_000
    assert (operation["device"], operation["stream"], operation["activity"]) == (0, 9, KERNEL)
    assert batch.names[operation["name"]] == "fill_kernel<float>"
    assert operation["correlation"] == call["correlation"] != 0
    assert call["thread"] == threading.get_ident() & 0xFFFFFFFF
    assert call["waits"] == RETURNS
    assert batch.known_until >= span.end
    assert (meter.dropped, meter.gaps) == (0, 0)


def test_copies_fills_and_graphs_are_distinguished(stub: ModuleType, meter: CuptiMeter):
    stub.copy(0.001, wait=False)
    stub.copy(0.001, wait=False, kind=stub.MEMSET)
    span = stub.launch(0.001, kernels=5, cbid=stub.GRAPH_LAUNCH)
    batch = until(meter, span.end)
    kinds = batch.operations["activity"]
    assert [(kinds == kind).sum() for kind in (COPY, FILL, KERNEL)] == [1, 1, 5]
    assert len(set(batch.operations["correlation"][kinds == KERNEL])) == 1


@pytest.mark.usefixtures("no_launch_is_long")
@pytest.mark.parametrize(("schedule", "waits"), [(0, SPINS), (1, SPINS), (2, SPINS), (4, BLOCKS)])
def test_waiting_burns_cpu_unless_the_device_blocks(stub_directory: Path, stub: ModuleType, schedule: int, waits: int):
    stub.load(stub_directory, schedule=schedule)
    meter = CuptiMeter()
    span = stub.launch(0.01)
    stub.sync()
    stub.copy(0.001)
    batch = meter.close()
    assert batch.calls["waits"].tolist() == [RETURNS, waits, waits]
    assert batch.calls["end"][1] >= span.end - 1_000_000


def test_while_a_kernel_runs_nothing_is_known_beyond_its_launch(stub: ModuleType, meter: CuptiMeter):
    short = stub.launch(0.001)
    until(meter, short.end)
    for seconds in (0.3, 3.0, 10.0):  # one of them runs for longer than this process waits for a core
        before = time.monotonic_ns()
        span = stub.launch(seconds)
        batch = meter.flush()
        if time.monotonic_ns() < span.end:
            break
        until(meter, span.end)
    assert len(batch.operations) == 0
    assert batch.known_until < before
    batch = until(meter, span.end)
    assert len(batch.operations) == 1
    assert batch.operations["end"] - batch.operations["start"] == seconds * 1e9


def test_only_chosen_calls_are_recorded_if_the_version_can(stub: ModuleType, meter: CuptiMeter):
    assert "chosen calls" in meter.description
    assert not stub.cupti.stub_enabled(stub.RUNTIME)
    assert not stub.cupti.stub_enabled(stub.DRIVER)
    assert all(stub.cupti.stub_enabled_call(stub.DRIVER, number) for number in DRIVER_CALLS)
    # The stub knows no runtime calls from 500 on, as an older version might.
    assert all(stub.cupti.stub_enabled_call(stub.RUNTIME, number) == (number < 500) for number in RUNTIME_CALLS)


@pytest.mark.parametrize("function", ["cuptiActivityEnableRuntimeApi", "cuptiActivityEnableDriverApi"])
def test_all_calls_are_recorded_if_the_version_cannot_choose(stub: ModuleType, function: str):
    stub.fail(function, 27)
    meter = CuptiMeter()
    assert "all calls" in meter.description
    assert len(until(meter, stub.launch(0.001).end).calls) == 1
    meter.close()
    assert not stub.cupti.stub_enabled(stub.RUNTIME)


@pytest.mark.parametrize(
    ("arrange", "reason"),
    [
        (lambda stub: stub.cuda.stub_devices(1, 0, 0), "nothing has initialised CUDA"),
        (lambda stub: stub.cupti.stub_version(999999), "CUPTI 999999 is not known"),
        (lambda stub: stub.fail("cuptiSubscribe", 39), "another profiler has CUPTI: Nsight"),
        (lambda stub: stub.fail("cuptiActivityEnable", 35), "only administrators"),
        (lambda stub: stub.fail("cuptiActivityRegisterCallbacks", 15), "could not initialise"),
        (lambda stub: stub.fail("cuptiGetVersion", 999), r"CUPTI_ERROR_OF_THE_STUB \(999\), says cuptiGetVersion"),
    ],
)
def test_a_refusal_has_its_reason_and_leaves_nothing_enabled(
    stub: ModuleType, arrange: Callable[[ModuleType], object], reason: str
):
    arrange(stub)
    with pytest.raises(MeterRefused, match=reason):
        CuptiMeter()
    assert not any(stub.cupti.stub_enabled(kind) for kind in (1, 2, 4, 5, 10))
    assert not any(stub.cupti.stub_enabled_call(stub.RUNTIME, number) for number in RUNTIME_CALLS)


def test_without_the_compiled_callbacks_it_is_refused(
    stub: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr("dask_efficiency.gpu.cupti.meter.OnePool.pool", None)
    monkeypatch.setattr(callbacks, "LIBRARY", tmp_path / "libcallbacks.so.1")
    with pytest.raises(MeterRefused, match=r"installed without libcallbacks\.so\.1"):
        CuptiMeter()


def test_a_later_failure_is_a_refusal_with_its_reason(stub: ModuleType, meter: CuptiMeter):
    stub.fail("cuptiActivityFlushAll", 15)
    with pytest.raises(MeterRefused, match="could not initialise"):
        meter.flush()


def test_records_without_a_buffer_are_counted(stub: ModuleType, monkeypatch: pytest.MonkeyPatch):
    pool = callbacks.BufferPool(count=1, size=4096)
    monkeypatch.setattr("dask_efficiency.gpu.cupti.meter.OnePool.pool", pool)
    meter = CuptiMeter()
    for _ in range(100):
        span = stub.launch(0.0001)
    seen = len(until(meter, span.end).operations)
    meter.close()
    assert seen < 100
    assert meter.dropped == 200 - 2 * seen


def test_after_closing_nothing_is_recorded_and_closing_again_is_harmless(stub: ModuleType):
    meter = CuptiMeter()
    stub.launch(0.001)
    stub.sync()
    assert len(meter.close().operations) == 1
    assert not stub.cupti.stub_enabled(stub.KERNEL)
    stub.launch(0.001)
    assert len(meter.close().operations) == len(meter.flush().operations) == 0
    again = CuptiMeter()
    stub.launch(0.001)
    stub.sync()
    assert len(again.close().operations) == 1


def test_work_that_has_not_ended_at_the_close_is_counted_as_dropped(stub: ModuleType):
    meter = CuptiMeter()
    stub.launch(10)
    assert len(meter.close().operations) == 0
    assert meter.dropped == 1


def test_a_step_of_the_wall_clock_is_a_gap_and_times_go_on_monotonically(stub: ModuleType, meter: CuptiMeter):
    until(meter, stub.launch(0.001).end)
    stub.cupti.stub_shift_clock(-5_000_000_000)
    meter.flush()
    assert 0 < meter.gaps < 10_000_000_000
    gaps = meter.gaps
    stub.launch(0.001, stream=8)  # the stub's streams remember when they are free by the old clock
    before = time.monotonic_ns()
    stub.sync(stream=8)
    batch = until(meter, time.monotonic_ns())
    assert abs(int(batch.operations["start"][0]) - before) < 100_000_000
    assert meter.gaps == gaps


@pytest.fixture
def profiler(stub: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The profiler of torch, with the stub's other client as its Kineto."""
    import torch.autograd.profiler as module

    def prepare(config: Any, activities: Any, **_: Any) -> None:
        if any("CUDA" in str(activity) for activity in activities):
            stub.cupti.stub_other_begin()

    monkeypatch.setattr(module, "_prepare_profiler", prepare)
    monkeypatch.setattr(module, "_disable_profiler", lambda: stub.cupti.stub_other_end())
    return module


@contextmanager
def flagged(profiler: ModuleType) -> Iterator[None]:
    """Raise torch's flag of a running profile."""
    profiler._run_on_profiler_start()
    try:
        yield
    finally:
        profiler._run_on_profiler_stop()


def test_a_profiler_and_the_meter_get_their_own_records(stub: ModuleType, profiler: ModuleType, meter: CuptiMeter):
    stub.launch(0.001, name="before")
    stub.sync()
    profiler._prepare_profiler(None, {"ProfilerActivity.CUDA"}, activity_filter=None)
    stub.launch(0.001, name="during")
    stub.sync()
    batch = meter.flush()
    assert batch.names == ["before"]
    assert meter.flush().known_until == batch.known_until
    time.sleep(0.02)
    profiler._disable_profiler()
    assert stub.cupti.stub_other_records() == 3  # the kernel, its launch, and the wait
    assert stub.cupti.stub_other_unknown() == 0
    meter.flush()
    assert meter.gaps >= 20_000_000
    gaps = meter.gaps
    stub.launch(0.001, name="after")
    stub.sync()
    assert until(meter, time.monotonic_ns()).names == ["after"]
    assert (meter.gaps, meter.dropped) == (gaps, 0)


def test_a_profile_of_the_cpu_alone_changes_nothing(stub: ModuleType, profiler: ModuleType, meter: CuptiMeter):
    profiler._prepare_profiler(None, {"ProfilerActivity.CPU"})
    with flagged(profiler):
        stub.launch(0.001)
        stub.sync()
        assert len(until(meter, time.monotonic_ns()).operations) == 1
        assert meter.gaps == 0


def test_an_unannounced_profiler_is_noticed_by_torchs_flag(stub: ModuleType, profiler: ModuleType, meter: CuptiMeter):
    stub.launch(0.001)
    stub.cupti.stub_other_begin()
    with flagged(profiler):
        meter.flush()
        assert stub.cupti.stub_enabled(stub.KERNEL)  # the other's
        assert meter.gaps > 0
        with pytest.raises(MeterRefused, match=r"torch\.profiler is running"):
            CuptiMeter()
    stub.cupti.stub_other_end()
    assert stub.cupti.stub_other_unknown() == 1
    meter.flush()
    stub.launch(0.001)
    stub.sync()
    assert len(until(meter, time.monotonic_ns()).operations) == 1


def test_closing_puts_the_functions_of_torch_back(stub: ModuleType, profiler: ModuleType):
    originals = profiler._prepare_profiler, profiler._disable_profiler
    meter = CuptiMeter()
    assert profiler._prepare_profiler is not originals[0]
    meter.close()
    assert (profiler._prepare_profiler, profiler._disable_profiler) == originals


def test_closing_while_a_profiler_runs_leaves_it_its_records(stub: ModuleType, profiler: ModuleType, meter: CuptiMeter):
    profiler._prepare_profiler(None, {"ProfilerActivity.CUDA"})
    meter.close()
    assert stub.cupti.stub_enabled(stub.KERNEL)
    profiler._disable_profiler()


def test_the_monitor_of_torch_ends_the_metering(stub: ModuleType, meter: CuptiMeter, monkeypatch: pytest.MonkeyPatch):
    module = ModuleType("torch.profiler._cupti_monitor")
    module.get_monitor = lambda: object()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.profiler._cupti_monitor", module)
    with pytest.raises(MeterRefused, match="CUPTI monitor"):
        meter.flush()
    assert stub.cupti.stub_enabled(stub.KERNEL)  # the monitor's, by now


def test_no_record_is_lost_of_threads_that_launch_with_and_without_the_gil(stub: ModuleType, meter: CuptiMeter):
    threads, launches = 8, 1500

    def work(number: int) -> int:
        for _ in range(launches):
            stub.launch(1e-6, stream=number, holding_the_gil=number % 2 == 0)
        return threading.get_ident() & 0xFFFFFFFF

    batches = []
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(work, number) for number in range(threads)]
        while not all(future.done() for future in futures):
            batches.append(meter.flush())
            time.sleep(0.002)
        idents = {future.result() for future in futures}
    batches.append(until(meter, time.monotonic_ns()))
    batch = together(batches)
    assert len(batch.operations) == len(batch.calls) == threads * launches
    assert len(set(batch.operations["correlation"])) == threads * launches
    assert set(batch.calls["thread"]) == idents
    assert meter.dropped == 0
    assert np.unique(batch.operations["stream"], return_counts=True)[1].tolist() == [launches] * threads


EXITS = {
    "by itself": "",
    "with a daemon thread that launches": """
def go_on():
    while True:
        stub.launch(1e-6)
threading.Thread(target=go_on, daemon=True).start()
time.sleep(0.1)
""",
    "with a daemon thread that flushes": """
def go_on():
    while True:
        meter.flush()
threading.Thread(target=go_on, daemon=True).start()
for _ in range(5000):
    stub.launch(1e-6)
""",
    "while a kernel runs": "stub.launch(30)",
    "after a child that was forked": """
import os, warnings
child = os.fork()
if not child:
    meter.close()
    sys.exit(not stub.cupti.stub_enabled(stub.KERNEL))
if os.waitpid(child, 0)[1]:
    sys.exit(1)
stub.launch(1e-6)
stub.sync()
assert len(meter.flush().operations) == 101
""",
    "by an exception": "raise SystemExit(0)",
    "when the meter is gone": "del meter\nimport gc; gc.collect()\nfor _ in range(3000): stub.launch(1e-5)",
}


@pytest.mark.parametrize("how", EXITS)
def test_the_process_ends_well(how: str, stub_directory: Path):
    program = f"""
import sys, threading, time
from tests.gpu import stub_gpu as stub
stub.load({str(stub_directory)!r})
from dask_efficiency.gpu.cupti import CuptiMeter
meter = CuptiMeter()
for _ in range(100):
    stub.launch(1e-6)
{EXITS[how]}
"""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning:__main__", "-c", program],
        timeout=200,
        capture_output=True,
        text=True,
        cwd=os.getcwd(),
    )
    assert (ended.returncode, ended.stderr) == (0, "")
