"""Claims: metering a GPU costs at most 1 % of wall time, and a task's kernel time is Kineto's within 1 %.

``python -m benchmarks.gpu`` answers, on a real GPU, what can only be answered there: how threads wait, what records
look like, who launches a backward pass, what torch.profiler leaves behind, and what metering costs on a loop of tiny
kernels and on one of large matrix products. Each question has a process of its own, so that one that crashes takes no
other along. ``--record FILE`` keeps raw activity buffers, for tests; ``--only costs,stress`` asks some questions;
``--buffer-kib 1024`` asks them with larger buffers. Without a GPU it says so. ``--stub DIRECTORY`` asks the questions
that need no torch of the tests' stub, to try this file out.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import figure
from dask_efficiency.gpu import libcuda
from dask_efficiency.gpu.cupti import CuptiMeter
from dask_efficiency.gpu.cupti.callbacks import BufferPool
from dask_efficiency.gpu.cupti.decode import CALL_OFFSETS, DRIVER, RUNTIME, Decoded
from dask_efficiency.gpu.cupti.meter import OnePool
from dask_efficiency.gpu.ledger import GpuLedger
from dask_efficiency.gpu.meter import KERNEL, RETURNS, GpuBatch, TaskId, TaskWindow

#: Goals.
COST_RATIO, KINETO_RATIO = 0.01, 0.01


class TorchWork:
    def __init__(self) -> None:
        import torch

        self.torch = torch
        torch.cuda.init()
        self.small = torch.ones(1024, device="cuda")
        self.large = torch.ones(4096, 4096, device="cuda")
        self.gemm()
        self.sync()

    def tiny(self) -> None:
        self.small.add_(1)

    def gemm(self) -> None:
        self.torch.mm(self.large, self.large)

    def sleep(self, seconds: float) -> None:
        """One kernel of about this length, asynchronous."""
        self.torch.cuda._sleep(int(seconds * 1.5e9))

    def sync(self) -> None:
        self.torch.cuda.synchronize()


class StubWork:
    def __init__(self, directory: str) -> None:
        from tests.gpu import stub_gpu as stub

        stub.load(directory)
        self.stub = stub

    def tiny(self) -> None:
        self.stub.launch(5e-6, name="tiny")

    def gemm(self) -> None:
        self.stub.launch(2e-3, name="gemm")

    def sleep(self, seconds: float) -> None:
        self.stub.launch(seconds, name="sleep")

    def sync(self) -> None:
        self.stub.sync()


Work = TorchWork | StubWork


class RawMeter(CuptiMeter):
    """Keeps the raw buffers, too."""

    def __init__(self) -> None:
        self.raw: list[bytes] = []
        self.names: dict[int, str] = {}
        super().__init__()

    def _decode(self, content: NDArray[np.uint8]) -> Decoded:
        self.raw.append(content.tobytes())
        decoded = super()._decode(content)
        pointers = decoded.pointers.tolist()
        self.names.update(zip(pointers, self._names.at(pointers), strict=True))
        return decoded

    def calls_by_number(self) -> Counter[tuple[str, int]]:
        """Records of calls by interface and number."""
        found: Counter[tuple[str, int]] = Counter()
        for kind, words in self.records():
            if kind in (RUNTIME, DRIVER):
                found["runtime" if kind == RUNTIME else "driver", int(words[CALL_OFFSETS["cbid"] // 4])] += 1
        return found

    def records(self) -> Iterator[tuple[int, NDArray[np.uint32]]]:
        sizes = {**self._layout.sizes, **self._sizes}
        for content in self.raw:
            words, at = np.frombuffer(content, np.uint32), 0
            while at < len(words) and int(words[at]) in sizes:
                step = sizes[int(words[at])] // 4
                yield int(words[at]), words[at : at + step]
                at += step

    def save(self, path: Path) -> None:
        """Buffers, the layout they have, and their names by address, for a test to read."""
        np.savez_compressed(
            path,
            buffers=np.frombuffer(b"".join(self.raw), np.uint8),
            lengths=np.array([len(content) for content in self.raw]),
            version=self._cupti.version,
            sizes=np.array(sorted({**self._layout.sizes, **self._sizes}.items())),
            addresses=np.array(list(self.names), np.uint64),
            names=np.array(list(self.names.values())),
        )


@contextmanager
def metered(interval: float = 0.5) -> Iterator[list[GpuBatch]]:
    """Flush from a thread of its own, as a worker does; the last batch comes at the end."""
    meter, batches, stop = CuptiMeter(), [], threading.Event()

    def go_on() -> None:
        while not stop.wait(interval):
            batches.append(meter.flush())

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield batches
    finally:
        stop.set()
        thread.join()
        batches.append(meter.close())


def flushed(meter: CuptiMeter, work: Work) -> GpuBatch:
    """All that was asked for so far."""
    work.sync()
    return meter.flush()


def union(operations: NDArray[np.void]) -> int:
    """Nanoseconds in which at least one ran."""
    ordered = np.sort(operations, order="start")
    reached = np.maximum.accumulate(ordered["end"])
    begins = np.maximum(ordered["start"][1:], reached[:-1])
    total = ordered["end"][:1] - ordered["start"][:1]
    return int(total.sum() + np.maximum(ordered["end"][1:] - begins, 0).sum())


def say(what: str, value: object, goal: str = "") -> None:
    print(f"  {what + ':':<66} {value}{'  (' + goal + ')' if goal else ''}", flush=True)


# -- the questions ------------------------------------------------------------------------------


def machine(work: Work) -> None:
    """The machine, its driver and CUPTI."""
    driver = libcuda.loaded_driver()
    assert driver is not None
    for device in libcuda.devices(driver):
        say(f"device {device.number}", device)
    if isinstance(work, TorchWork):
        say("torch", f"{work.torch.__version__}, CUDA {work.torch.version.cuda}")
    meter = CuptiMeter()
    say("meter", meter.description)
    say("library", meter._cupti.path)
    reading = meter._read_both_clocks()
    say(
        "CUPTI's clock less the wall clock, ns",
        reading.record - (time.time_ns() - time.monotonic_ns() + reading.monotonic),
    )
    work.tiny()
    flushed(meter, work)
    say("sizes of records that CUPTI itself tells, by kind", meter._sizes)
    say("sizes by the header", dict(meter._layout.sizes))
    meter.close()


def spin(work: Work) -> None:
    """CPU that waiting threads burn, and the flag that tells of it."""
    meter = CuptiMeter()
    work.sleep(0.5)
    cpu, wall = time.thread_time(), time.monotonic()
    work.sync()
    say("CPU seconds a second of waiting", round((time.thread_time() - cpu) / (time.monotonic() - wall), 3))
    batch = meter.close()
    waits = batch.calls[batch.calls["waits"] != RETURNS]
    say("what the flag says of each wait (1 blocks, 2 spins)", waits["waits"].tolist())


def calls(work: Work) -> None:
    """Which calls are recorded, with which ids, and from which threads."""
    meter = RawMeter()
    for _ in range(100):
        work.tiny()
    batch = flushed(meter, work)
    say("records of calls by number (211, 430: runtime launch; 307, 652: driver)", dict(meter.calls_by_number()))
    kernels = batch.operations[batch.operations["activity"] == KERNEL]
    asked = batch.calls[batch.calls["correlation"] != 0]
    per_kernel = Counter(int((asked["correlation"] == correlation).sum()) for correlation in kernels["correlation"])
    say("calls with the id of a kernel: how many kernels have how many", dict(per_kernel))
    say("kernels", len(kernels), "100")
    threads = set(batch.calls["thread"].tolist())
    say("all calls come from this thread, as Python numbers it", threads == {threading.get_ident() & 0xFFFFFFFF})
    say("names", sorted(set(batch.names)))
    meter.close()


def graphs(work: TorchWork) -> None:
    """Records of CUDA graphs."""
    torch = work.torch
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(20):
            work.small.add_(1)
    work.sync()
    meter = RawMeter()
    for _ in range(10):
        graph.replay()
    batch = flushed(meter, work)
    kernels = batch.operations[batch.operations["activity"] == KERNEL]
    say("kernels", len(kernels), "200")
    say("ids of correlation among them", len(set(kernels["correlation"])), "10")
    say("of those, with a call", len(set(kernels["correlation"]) & set(batch.calls["correlation"])), "10")
    say("records of calls", dict(meter.calls_by_number()))
    meter.close()


def backward(work: TorchWork) -> None:
    """Threads that launch a backward pass, and the task that the ledger gives it."""
    torch = work.torch
    layers = [torch.nn.Linear(512, 512, device="cuda") for _ in range(8)]
    model = torch.nn.Sequential(*layers)
    data = torch.ones(256, 512, device="cuda")
    model(data).sum().backward()
    work.sync()
    began = time.monotonic_ns()
    meter, ledger = CuptiMeter(), GpuLedger(at=began, prefix_of=str)
    task = TaskId(threading.get_ident(), time.monotonic_ns())
    for _ in range(10):
        model(data).sum().backward()
    work.sync()
    stop = time.monotonic_ns()
    batch = meter.close()
    say("kernels by thread", dict(Counter(batch.calls["thread"][batch.calls["correlation"] != 0].tolist())))
    ledger.add(batch, [TaskWindow(task, stop, "train")], devices=meter.devices, final=True)
    say("coverage: share of kernel time that is the task's", ledger.totals().coverage, "1.0")
    say("what its thread did", ledger.uses().get(task, "no call that waits"))


def stress(work: Work) -> None:
    """Kernels that are lost when eight threads launch, with flushes in between."""
    count, threads = 20_000, 8

    def launch() -> None:
        for _ in range(count):
            work.tiny()

    with metered(0.05) as batches, ThreadPoolExecutor(threads) as pool:
        began = time.monotonic()
        for future in [pool.submit(launch) for _ in range(threads)]:
            future.result()
        work.sync()
        took = time.monotonic() - began
    say("launches a second", round(threads * count / took))
    say("kernels", sum(int((b.operations["activity"] == KERNEL).sum()) for b in batches), str(threads * count))


def lag(work: Work) -> None:
    """Delay until the device's work is known while work is always queued, and errors of ``known_until``."""
    work.sync()
    began = time.monotonic()
    work.sleep(0.02)
    work.sync()
    pace = time.monotonic() - began
    with metered(0.25) as batches:
        for _ in range(3):
            work.sleep(0.02)
        for _ in range(250):
            work.sleep(0.02)
            time.sleep(pace)
        work.sync()
    late, known = 0, 0
    for batch in batches:
        late += int((batch.operations["end"] < known).sum())
        known = batch.known_until
    delays = np.diff([batch.known_until for batch in batches]) / 1e9
    say("seconds by which known_until advances: median, most", f"{np.median(delays):.3f}, {delays.max():.3f}", "0.25")
    say("operations that came after they were said to be known", late, "0")


def profiler(work: TorchWork) -> None:
    """Records of torch.profiler, and of ours after it."""
    from torch.profiler import ProfilerActivity, profile

    meter = CuptiMeter()
    for number in range(3):
        work.gemm()
        before = flushed(meter, work)
        with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiled:
            for _ in range(50):
                work.gemm()
            work.sync()
        kernels = [event for event in profiled.events() if event.device_type.name == "CUDA"]
        meter.flush()
        for _ in range(7):
            work.gemm()
        began = time.monotonic_ns()
        after = flushed(meter, work)
        say(
            f"round {number}: kernels before, of the profiler, after",
            f"{_kernels(before)}, {len(kernels)}, {_kernels(after)}",
        )
        ends = after.operations["end"]
        say("  newest end after, less now, ms", round((ends.max() - began) / 1e6, 3) if len(ends) else "none", "small")
        say("  gap, seconds", round(meter.gaps / 1e9, 3))
        say("  CUPTI's clock counts nanoseconds of the wall clock", meter._clock._in_nanoseconds)
    meter.close()


def kineto(work: TorchWork) -> None:
    """Kernel time of a workload compared with Kineto's, in sum and as a union."""
    from torch.profiler import ProfilerActivity, profile

    def workload() -> None:
        for _ in range(100):
            work.gemm()
            for _ in range(10):
                work.tiny()
        work.sync()

    ours: list[tuple[int, int]] = []
    theirs: list[tuple[int, int]] = []
    for _ in range(5):
        meter = CuptiMeter()
        workload()
        batch = meter.close()
        kernels = batch.operations[batch.operations["activity"] == KERNEL]
        ours.append((int((kernels["end"] - kernels["start"]).sum()), union(kernels)))
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            workload()
        spans = [
            (round(event.time_range.start * 1e3), round(event.time_range.end * 1e3))
            for event in profiled.events()
            if event.device_type.name == "CUDA" and not event.name.startswith("Mem")
        ]
        found = np.array(spans, dtype=[("start", np.int64), ("end", np.int64)])
        theirs.append((int((found["end"] - found["start"]).sum()), union(found)))
    for number, what in enumerate(("sum of kernels", "union of kernels")):
        ratio = statistics.median(pair[number] for pair in ours) / statistics.median(pair[number] for pair in theirs)
        say(f"{what}, ours to Kineto's", round(ratio, 4), f"within {KINETO_RATIO:.0%}")


def costs(work: Work) -> None:
    """Cost of metering, armed and after."""
    for name, one, count in (("tiny kernels", work.tiny, 30_000), ("matrix products", work.gemm, 300)):
        took: dict[str, list[float]] = defaultdict(list)
        for _ in range(7):
            for state in ("never or no more", "armed"):
                if state == "armed":
                    with metered():
                        took[state].append(_loop(work, one, count))
                else:
                    took[state].append(_loop(work, one, count))
        plain = statistics.median(took["never or no more"])
        pairs = zip(took["armed"], took["never or no more"], strict=True)
        share = statistics.median(armed / other - 1 for armed, other in pairs)
        say(f"{name}: us each, not armed", round(plain / count * 1e6, 3))
        say(f"{name}: first time, never armed yet, us each", round(took["never or no more"][0] / count * 1e6, 3))
        say(f"{name}: more with the meter armed", f"{share:.2%}", f"{COST_RATIO:.0%}")
        figure(f"more with the meter armed, {name}", 100 * share, "%", at_most=100 * COST_RATIO)


def _loop(work: Work, one: Callable[[], object], count: int) -> float:
    work.sync()
    began = time.perf_counter()
    for _ in range(count):
        one()
    work.sync()
    return time.perf_counter() - began


def _kernels(batch: GpuBatch) -> int:
    return int((batch.operations["activity"] == KERNEL).sum())


def record(work: Work, path: Path) -> None:
    """Raw buffers of kernels, copies and waits, to be kept."""
    meter = RawMeter()
    for _ in range(20):
        work.tiny()
    work.gemm()
    if isinstance(work, TorchWork):
        host = work.small.cpu()
        work.small.copy_(host)
        work.small.zero_()
    work.sync()
    meter.close()
    meter.save(path)
    say("bytes", path.stat().st_size)


GENERAL: dict[str, Callable[[Any], None]] = {
    function.__name__: function for function in (machine, spin, calls, stress, lag, costs)
}
WITH_TORCH: dict[str, Callable[[Any], None]] = {
    function.__name__: function for function in (graphs, backward, profiler, kineto)
}


def main() -> None:
    """Ask the questions, each in a process of its own."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", help="some of: " + ", ".join([*GENERAL, *WITH_TORCH]))
    parser.add_argument("--record", type=Path, metavar="FILE", help="keep raw activity buffers in this .npz file")
    parser.add_argument("--stub", metavar="DIRECTORY", help="where the stub's libraries are")
    parser.add_argument("--buffer-kib", type=int, metavar="N", help="size of the buffers lent to CUPTI")
    parser.add_argument("--here", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        if options.buffer_kib:
            OnePool.pool = BufferPool(count=65536 // options.buffer_kib, size=options.buffer_kib * 1024)
        work = StubWork(options.stub) if options.stub else TorchWork()
        if options.here == "record":
            record(work, options.record)
        else:
            {**GENERAL, **WITH_TORCH}[options.here](work)
        return
    if not options.stub and (reason := _no_gpu()):
        print(f"There is nothing to measure here: {reason}.")
        return
    questions = list(GENERAL) if options.stub else [*GENERAL, *WITH_TORCH]
    if options.only:
        questions = options.only.split(",")
    if options.record:
        questions.append("record")
    for question in questions:
        asked = {**GENERAL, **WITH_TORCH, "record": record}[question]
        print(f"{question}: {asked.__doc__}", flush=True)
        arguments = [sys.executable, "-m", "benchmarks.gpu", "--here", question]
        arguments += ["--stub", options.stub] if options.stub else []
        arguments += ["--buffer-kib", str(options.buffer_kib)] if options.buffer_kib else []
        arguments += ["--record", str(options.record)] if options.record else []
        try:
            ended = subprocess.run(arguments, timeout=120)
        except subprocess.TimeoutExpired:
            say("IT HUNG", "120 s")
        else:
            if ended.returncode:
                say("IT FAILED, with exit code", ended.returncode)


def _no_gpu() -> str | None:
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    return None if torch.cuda.is_available() else "torch finds no GPU"


if __name__ == "__main__":
    main()
