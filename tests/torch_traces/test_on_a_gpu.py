import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from dask_efficiency.accounts.sensors import READINGS
from dask_efficiency.gpu import libcuda
from dask_efficiency.gpu.cupti import CuptiMeter
from dask_efficiency.gpu.ledger import GpuLedger
from dask_efficiency.gpu.meter import KERNEL, GpuBatch, TaskId, TaskWindow
from dask_efficiency.gpu.nvml import Nvml
from dask_efficiency.gpu.profilers import PROFILERS
from dask_efficiency.runs.path.kinds import KINDS, Kind
from dask_efficiency.runs.trace.run_trace import TaskProfile
from dask_efficiency.torch_traces.kineto.trace import Category
from dask_efficiency.torch_traces.path.build import build_graph
from dask_efficiency.torch_traces.path.join import read_profile
from dask_efficiency.torch_traces.path.tiling import tile
from dask_efficiency.torch_traces.profiler import TorchProfile

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def torch() -> Any:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("torch finds no GPU here")
    torch.ones(8, device="cuda").sum().item()
    return torch


@pytest.fixture
def meter(torch: Any) -> Iterator[CuptiMeter]:
    meter = CuptiMeter()
    yield meter
    meter.close()


def kernels(batch: GpuBatch) -> np.ndarray:
    return batch.operations[batch.operations["activity"] == KERNEL]


def test_every_kernel_comes_once_with_a_call_of_its_thread(torch: Any, meter: CuptiMeter):
    ones = torch.ones(1024, device="cuda")
    torch.cuda.synchronize()
    meter.flush()
    before = time.monotonic_ns()
    for _ in range(200):
        ones.add_(1)
    torch.cuda.synchronize()
    after = time.monotonic_ns()
    batch = meter.flush()
    found = kernels(batch)
    assert len(found) == 200
    assert found["start"].min() >= before - 1_000_000
    assert found["end"].max() <= after + 1_000_000
    assert set(found["correlation"]) <= set(batch.calls["correlation"])
    assert set(batch.calls["thread"]) == {threading.get_ident() & 0xFFFFFFFF}
    assert batch.known_until >= after
    assert meter.dropped == 0


def test_the_sum_of_a_tasks_kernels_is_that_of_events_around_them(torch: Any, meter: CuptiMeter):
    large = torch.ones(4096, 4096, device="cuda")
    torch.mm(large, large)
    torch.cuda.synchronize()
    meter.flush()
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(50):
        torch.mm(large, large)
    stop.record()
    torch.cuda.synchronize()
    found = kernels(meter.flush())
    ours = int((found["end"] - found["start"]).sum()) / 1e6
    assert 0.9 * start.elapsed_time(stop) < ours <= 1.01 * start.elapsed_time(stop)


def test_a_backward_pass_is_its_tasks(torch: Any, meter: CuptiMeter):
    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256, device="cuda") for _ in range(4)])
    data = torch.ones(64, 256, device="cuda")
    model(data).sum().backward()
    torch.cuda.synchronize()
    meter.flush()
    ledger = GpuLedger(at=time.monotonic_ns(), prefix_of=str)
    task = TaskId(threading.get_ident(), time.monotonic_ns())
    model(data).sum().backward()
    torch.cuda.synchronize()
    window = TaskWindow(task, time.monotonic_ns(), "train")
    ledger.add(meter.flush(), [window], devices=meter.devices, final=True)
    assert ledger.totals().coverage == 1


def test_a_graph_is_one_launch_of_many_kernels(torch: Any, meter: CuptiMeter):
    ones, graph = torch.ones(1024, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(10):
            ones.add_(1)
    torch.cuda.synchronize()
    meter.flush()
    graph.replay()
    torch.cuda.synchronize()
    found = kernels(meter.flush())
    assert len(found) == 10
    assert len(set(found["correlation"])) == 1


def test_threads_that_launch_at_once_lose_nothing(torch: Any, meter: CuptiMeter):
    def launch() -> None:
        ones = torch.ones(64, device="cuda")
        for _ in range(2000):
            ones.add_(1)

    found = 0
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(launch) for _ in range(8)]
        while not all(future.done() for future in futures):
            found += len(kernels(meter.flush()))
            time.sleep(0.01)
    torch.cuda.synchronize()
    found += len(kernels(meter.flush()))
    assert found == 8 * 2001
    assert meter.dropped == 0


def test_a_profiler_gets_its_kernels_and_we_get_ours_back(torch: Any, meter: CuptiMeter):
    ones = torch.ones(1024, device="cuda")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiled:
        for _ in range(20):
            ones.add_(1)
        torch.cuda.synchronize()
    theirs = [event for event in profiled.events() if event.device_type.name == "CUDA"]
    assert len(theirs) >= 20
    meter.flush()
    assert meter.gaps > 0
    for _ in range(30):
        ones.add_(1)
    torch.cuda.synchronize()
    now = time.monotonic_ns()
    found = kernels(meter.flush())
    assert len(found) == 30
    assert abs(int(found["end"].max()) - now) < 100_000_000


def test_a_profiled_task_has_its_own_kernels_while_the_meter_gives_way(torch: Any, meter: CuptiMeter):
    ones = torch.ones(1024, device="cuda")

    def beside() -> None:
        torch.cuda.set_device(0)
        for _ in range(50):
            torch.ones(64, device="cuda").mul_(2)

    PROFILERS.hold()
    profile = TorchProfile()
    other = threading.Thread(target=beside)
    other.start()
    for _ in range(20):
        ones.add_(1)
    torch.cuda.synchronize()
    other.join()
    profile.stop()
    PROFILERS.release()
    meter.flush()
    assert meter.gaps > 0
    assert profile.stopped is not None
    thread, started = threading.get_native_id(), profile.started
    found = read_profile(TaskProfile(0, thread, profile.start, profile.stopped, started, profile.export()), "a task")
    assert found is not None
    events = found.trace.events.take(found.region.rows)
    mine = events.take(events.category == Category.KERNEL)
    assert len(mine) == 20
    assert found.gpu_ns == int((mine.stop - mine.start).sum())
    assert started - 1_000_000 <= mine.start.min() <= mine.stop.max() <= time.time_ns()
    tiled = tile(build_graph(found.trace, found.region))
    assert (tiled.start[1:] == tiled.stop[:-1]).all()
    assert (tiled.start[0], tiled.stop[-1]) == (found.region.start, found.region.stop)
    assert KINDS.index(Kind.GPU_COMPUTE) in tiled.kind
    for _ in range(30):
        ones.add_(1)
    torch.cuda.synchronize()
    assert len(kernels(meter.flush())) == 30


def test_sensors_answer_each_reading(torch: Any):
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    driver = libcuda.loaded_driver()
    assert driver is not None
    (uuid, *_) = [device.uuid for device in libcuda.devices(driver)]
    readings = Nvml([uuid]).read()[uuid]
    assert set(readings) <= set(READINGS)
    assert 0 < readings["memory_used_bytes"] <= readings["memory_total_bytes"]
    assert 0 < readings["sm_clock_hertz"] <= 1.01 * readings["sm_clock_max_hertz"]
