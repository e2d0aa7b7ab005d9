"""Claims: an open page of the dashboard costs the scheduler at most 2 ms of CPU a second, a scrape 20 ms.

``python benchmarks/live.py`` makes a cluster of fake workers whose heartbeats arrive as often as Dask
asks for them, opens each page in turn, and prints what one update costs, and all updates in a second. What
Bokeh does to write the changes for one viewer is in both. Then what one scrape of ``/metrics`` costs, our
part and upstream's, also with as many workers as are exported one by one.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from bokeh.document import Document
from bokeh.document.events import DocumentPatchedEvent
from bokeh.protocol import Protocol
from distributed.scheduler import heartbeat_interval
from prometheus_client import generate_latest

from benchmarks.figures import figure
from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.cluster.memory_timeline import ClusterMemory
from dask_efficiency.accounts.gpu import DeviceTotals, GpuTotals
from dask_efficiency.accounts.memory import LEVELS, MemoryLevels, encode_levels, largest
from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.accounts.wire.heartbeats import encode
from dask_efficiency.accounts.wire.snapshots import Snapshot
from dask_efficiency.accounts.worker.balance import Outcome
from dask_efficiency.accounts.worker.ledger import Ledger
from dask_efficiency.live import prometheus
from dask_efficiency.live.bokeh.pages import PAGES, Page
from dask_efficiency.live.bokeh.tab import KEEP_MS, UPDATE_MS, Tab
from dask_efficiency.plugin.options import OPTIONS, resolve
from dask_efficiency.plugin.scheduler import replies
from dask_efficiency.plugin.scheduler.accounts import RECENT_MOMENTS, Moment
from dask_efficiency.plugin.scheduler.meter import POLL_MS

SECOND = 1_000_000_000
MEBIBYTE = 1 << 20

#: Our part of a scrape.
OURS = "our collect()"

#: As many as a worker's heartbeat tells apart by default.
PREFIXES = 100


class FakeWorker:
    """A worker with a GPU that runs one task after the other on each thread and says so."""

    def __init__(self, number: int, nthreads: int, *, at: int) -> None:
        self.address = f"tcp://10.0.{number // 250}.{number % 250}:40000"
        self.name = f"worker-{number}"
        self._ledger = Ledger(nthreads, at=at)
        self._seq = 0
        self._number = number
        self._at = at

    def heartbeat(self, *, at: int) -> dict[str, Any]:
        took = at - self._at
        self._ledger.reserve("task", f"prefix-{self._seq % PREFIXES}", at=self._at + took // (2 + self._number % 7))
        hold = self._ledger.release("task", at=at)
        assert hold is not None
        self._ledger.finalize(hold, Outcome.SUCCEEDED, cpu=hold.ns // 2, wall=hold.ns * 3 // 4, spill=hold.ns // 10)
        self._at = at
        self._seq += 1
        payload = encode(Snapshot(self.name, self._seq, self._ledger.balance(at=at), gpu=self._gpu(at)))
        levels = self._memory()
        return payload | {LEVELS: encode_levels(levels, [levels.peak])}

    def _memory(self) -> MemoryLevels:
        held = {f"prefix-{i}": ((self._seq + i) * MEBIBYTE, i * MEBIBYTE) for i in range(PREFIXES)}
        in_memory, spilled = (sum(column) for column in zip(*held.values(), strict=True))
        process = in_memory + 200 * MEBIBYTE
        return MemoryLevels(process, process, in_memory, spilled, spilled, largest(held), self._seq)

    def _gpu(self, at: int) -> GpuTotals:
        busy = at * (self._number % 7) // 8
        shares = {f"prefix-{i}": busy // PREFIXES for i in range(PREFIXES)}
        rest = busy - sum(shares.values())
        device = DeviceTotals(
            f"GPU-{self._number:08}-0000", "NVIDIA L4", at, busy, 0, at - busy, shares, unattributed=rest
        )
        return GpuTotals("cupti", "CUPTI 13.0", (device,), kernel_ns=busy, attributed_ns=busy - rest)


class FakeMeter:
    """As much of a meter as the adapters see, by a clock of its own."""

    def __init__(self, workers: int, nthreads: int) -> None:
        self.cluster = ClusterLedger(at=0)
        self.recent: deque[Moment] = deque(maxlen=RECENT_MOMENTS)
        self.off: str | None = None
        self.since = 0.0
        self.at = 0
        self.cost_seconds = 0.0
        self.options = resolve({})
        self.read_interval_seconds = 0.5
        self.findings: tuple[SlowWorker, ...] = ()
        self.stalled: tuple[()] = ()
        self.memory = ClusterMemory.of(())
        self.left = None
        self._workers = [FakeWorker(i, nthreads, at=0) for i in range(workers)]
        for worker in self._workers:
            self.cluster.worker_joined(worker.address, worker.name, nthreads, at=0)
        self.cluster.work.set(True, at=0)

    def run(self, seconds: float) -> Iterator[None]:
        """Let time pass; yields once a second."""
        interval = round(heartbeat_interval(len(self._workers)) * SECOND)
        for poll in range(round(seconds * 1000 / POLL_MS)):
            before, self.at = self.at, self.at + POLL_MS * 1_000_000
            for i, worker in enumerate(self._workers):
                phase = interval * i // len(self._workers)
                if (self.at - phase) // interval > (before - phase) // interval:
                    self.cluster.receive(worker.address, worker.heartbeat(at=self.at), at=self.at)
            self.memory = ClusterMemory.of(self.cluster.present.values())
            activity, causes = self.cluster.part("activity"), self.cluster.part("cause_activity")
            prefixes = self.cluster.finalized_by_prefix() if poll % 120 == 0 else None
            self.recent.append(Moment(self.at, activity, self.cluster.nthreads, causes, prefixes))
            if poll % (1000 // POLL_MS) == 0:
                yield

    def refresh(self) -> None:
        """Nothing to bring up to date."""

    def now(self) -> int:
        return self.at


class Viewer:
    """A page that somebody looks at; writes what a browser would be sent."""

    def __init__(self, page: Page) -> None:
        self.nbytes = 0
        self._protocol = Protocol()
        self.page = page
        document = Document()
        document.add_root(self.page.root)
        self.page.update()
        document.callbacks.on_change_dispatch_to(self)

    def _document_patched(self, event: DocumentPatchedEvent) -> None:
        message = self._protocol.create("PATCH-DOC", [event])
        self.nbytes += len(message.header_json) + len(message.metadata_json) + len(message.content_json)
        self.nbytes += sum(len(buffer.to_bytes()) for buffer in message.buffers)


def page(make: Callable[[Tab], Page], workers: int, nthreads: int, seconds: int) -> tuple[list[float], float, float]:
    """(CPU milliseconds of each call of an open page, of keeping what was done once, bytes a second)."""
    meter = FakeMeter(workers, nthreads)
    tab = Tab({"pages": [], "plots": []})
    tab._keeper = SimpleNamespace(start=lambda: None, stop=lambda: None)  # type: ignore[assignment]  # no loop here
    tab.show(meter)
    for second, _ in enumerate(meter.run(300)):
        if second * 1000 % KEEP_MS == 0:
            tab._keep()
    viewer = Viewer(make(tab))
    viewer.nbytes = 0
    updates = []
    for second, _ in enumerate(meter.run(seconds)):
        if second * 1000 % UPDATE_MS:
            continue
        began = time.thread_time_ns()
        viewer.page.update()
        updates.append((time.thread_time_ns() - began) / 1e6)
    began = time.thread_time_ns()
    tab._keep()
    kept = (time.thread_time_ns() - began) / 1e6
    assert tab.notice is None
    return updates, kept, viewer.nbytes / seconds


def scrapes(workers: int, nthreads: int, count: int) -> dict[str, list[float]]:
    """CPU milliseconds of each scrape of ``/metrics`` by part, and of each answer to `dask-efficiency top`."""
    meter = FakeMeter(workers, nthreads)
    scheduler = SimpleNamespace(workers={})
    known = {"cluster": meter.cluster, "scheduler": scheduler, "session": "bench", "read_interval_seconds": 0.5}
    collector = prometheus.ClusterCollector()
    collector._exports.append(prometheus.Export(meter))  # in no registry
    figures: dict[str, list[float]] = {OURS: [], "upstream's writing of it": [], "an answer to top": []}
    for _ in meter.run(20 + count):
        began = time.thread_time_ns()
        metrics = list(collector.collect())
        collected = time.thread_time_ns()
        generate_latest(SimpleNamespace(collect=lambda metrics=metrics: metrics))  # type: ignore[arg-type]
        written = time.thread_time_ns()
        live = SimpleNamespace(**known, stalled=meter.stalled, left=meter.left, memory=meter.memory)
        replies.of_live(live)  # type: ignore[arg-type]
        answered = time.thread_time_ns()
        for name, ns in zip(figures, (collected - began, written - collected, answered - written), strict=True):
            figures[name].append(ns / 1e6)
    assert not collector._failures
    return figures


def say(name: str, values: list[float], unit: str) -> None:
    low, median, high = statistics.quantiles(values, n=4)
    print(f"  {name:<46} {median:7.3f} {unit}  (quartiles {low:.3f} to {high:.3f}, most {max(values):.3f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[10, 100, 1000], help="sizes of the fake cluster")
    parser.add_argument("--seconds", type=int, default=120, help="how long the page is open (default 120)")
    args = parser.parse_args()
    pages, ours = [], []
    for workers in args.workers:
        for path, make in PAGES.items():
            updates, kept, nbytes = page(make, workers, 4, args.seconds)
            drawn = [update for update in updates if update > 0.2]
            calls = 12_000 // UPDATE_MS
            seconds = [sum(updates[i : i + calls]) / 12 for i in range(0, len(updates) - calls + 1, calls)]
            print(f"{path}, {workers} workers x 4 threads, {nbytes / 1e3:.1f} kB/s to the viewer")
            say("an update that draws", drawn, "ms")
            pages.append(statistics.median(seconds))
            say("all of it, by stretches of 12 s; claim: <= 2", seconds, "ms/s")
        print(f"  {'keeping what was done, viewers or none':<46} {kept * 1e3 / KEEP_MS:7.3f} ms/s")
    for workers in sorted({*args.workers, OPTIONS["max_exported_workers"].default}):
        print(f"A scrape of /metrics, {workers} workers x 4 threads; claim: our part <= 20 ms")
        for name, values in scrapes(workers, 4, args.seconds).items():
            say(name, values, "ms")
            ours += [statistics.median(values)] * (name == OURS)
    figure("the dearest page", max(pages), "ms a second", at_most=2)
    figure("our part of the dearest scrape", max(ours), "ms", at_most=20)


if __name__ == "__main__":
    main()
