"""One run of ``benchmarks/scale.py``: a real scheduler and fake workers in one process, whose figures are printed.

``python -m benchmarks.scale_run '{"workers": 100, "tasks": 10000, "prefixes": 1000, "seconds": 60, "plugin": true,
"gpu": false}'`` prints them as JSON. Time passes as :class:`~benchmarks.scale_clock.Clock` says: waiting is skipped.
Other modules are imported once the clock is installed, as they keep its functions by name.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import random
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgpack

from benchmarks.scale_clock import Clock, event_loop

if TYPE_CHECKING:
    from distributed import Scheduler

    from benchmarks.scale_cluster import Cluster


WINDOW = "scale"

#: Least seconds of a window, and least heartbeats of each worker in it.
MIN_SECONDS = 30.0
MIN_HEARTBEATS = 3

#: Seconds in which workers answer, or more where they are asked to.
ANSWER_SECONDS = 0.02


class Lag:
    """Lag of a timer of the event loop, by the clock and without collections of garbage."""

    def __init__(self, clock: Clock, garbage: Collections) -> None:
        self.longest_ms = 0.0
        self._clock = clock
        self._garbage = garbage

    async def watch(self) -> None:
        while True:
            due = self._clock.monotonic_ns() - self._garbage.ns + 1_000_000
            await asyncio.sleep(0.001)
            late = self._clock.monotonic_ns() - self._garbage.ns - due
            self.longest_ms = max(self.longest_ms, late / 1e6)


async def report(clock: Clock, garbage: Collections, cluster: Cluster, plugin: Any) -> dict[str, float]:
    """Open a window and close it; gives what that takes the scheduler."""
    from distributed import protocol

    from dask_efficiency.accounts.facts import decode_facts
    from dask_efficiency.plugin import names
    from dask_efficiency.report.replies import unpacked

    meter = plugin._meter
    by_address = {worker.address: worker for worker in cluster.workers}
    spread = random.Random(0)

    async def broadcast(msg: Any, workers: list[str], on_error: str) -> dict[str, Any]:
        await asyncio.sleep(msg.get("delay", 0.0) + spread.uniform(0.0, ANSWER_SECONDS))
        (address,) = workers
        with clock.left_out():
            packed = by_address[address].answer(msg["window"], msg.get("limit"))
        return {address: protocol.loads([packed])}

    cluster.scheduler.broadcast = broadcast  # type: ignore[method-assign]
    found = {}
    for action, asked in (
        (names.OPEN, {"window": WINDOW, "client": "scale", "span": "scale"}),
        (names.CLOSE, {"window": WINDOW}),
    ):
        lag = Lag(clock, garbage)
        watch = asyncio.create_task(lag.watch())
        cpu, began = clock.cpu_ns, time.monotonic()
        reply = await meter.handle(action, **asked)
        await asyncio.sleep(0.002)
        watch.cancel()
        found |= {
            f"{action}_cpu": (clock.cpu_ns - cpu) / 1e9,
            f"{action}_seconds": time.monotonic() - began,
            f"{action}_longest_ms": lag.longest_ms,
        }
        if action == names.OPEN:
            now = time.monotonic() - cluster._began
            await cluster.run(now + max(MIN_SECONDS, MIN_HEARTBEATS * cluster.interval))
            # Workers of one kind share a ledger, which is as late as the latest of them.
            await asyncio.sleep(cluster.interval)
    nbytes, reply = len(msgpack.packb(reply)), unpacked(reply)
    whole = decode_facts(reply["facts"]).whole.total_ns
    if reply["not_measured"] or whole < 0.9 * reply["window"] * sum(reply["nthreads"].values()):
        raise RuntimeError(f"the report says {whole} ns and {[*reply['not_measured'].items()][:3]}")
    return {**found, "reply_bytes": float(nbytes)}


#: Seconds between two scrapes of ``/metrics``.
SCRAPE_SECONDS = 5.0


class Collections:
    """CPU time of Python's collections of garbage."""

    def __init__(self) -> None:
        #: All CPU nanoseconds so far, and the milliseconds of the longest since :meth:`begin`.
        self.ns = 0
        self.longest_ms = 0.0
        self._before = self._began = 0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, _: object) -> None:
        if phase == "start":
            self._began = time.thread_time_ns()
        else:
            took = time.thread_time_ns() - self._began
            self.ns += took
            self.longest_ms = max(self.longest_ms, took / 1e6)

    def begin(self) -> None:
        self._before, self.longest_ms = self.ns, 0.0

    @property
    def seconds(self) -> float:
        return (self.ns - self._before) / 1e9


@dataclass(slots=True)
class Figures:
    """CPU milliseconds of each call, by the part of the plugin that was called; parts may call others."""

    calls: dict[str, array[float]] = field(default_factory=dict)
    #: CPU seconds of all calls that none of the others made.
    seconds: float = 0.0
    #: The longest of these, milliseconds, and its part.
    longest: tuple[float, str] = (0.0, "")
    #: True if calls are counted: not while the cluster starts.
    counting: bool = False
    #: CPU nanoseconds of a call that does nothing, as it is seen from inside.
    empty_ns: int = 0
    #: What collecting garbage has taken, which may happen in any call and is counted apart.
    garbage: Collections = field(default_factory=Collections)
    _depth: int = 0

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function, and how long each call takes."""
        times = self.calls.setdefault(part, array("d"))  # a list would be most of the memory
        clock, garbage = time.thread_time_ns, self.garbage

        def call(*args: Any, **kwargs: Any) -> Any:
            self._depth += 1
            began = clock() - garbage.ns
            try:
                return function(*args, **kwargs)
            finally:
                took = clock() - garbage.ns - began - self.empty_ns
                self._depth -= 1
                if self.counting:
                    times.append(took / 1e6)
                    if not self._depth:
                        self.seconds += took / 1e9
                        if took / 1e6 > self.longest[0]:
                            self.longest = took / 1e6, part

        return call

    def calibrate(self) -> None:
        call = self.timed("empty", lambda: None)
        self.counting = True
        for _ in range(10_000):
            call()
        self.empty_ns = round(1e6 * sorted(self.calls.pop("empty"))[5_000])
        self.counting, self.seconds, self.longest = False, 0.0, (0.0, "")

    def watch(self, part: str, owner: Any, name: str) -> None:
        """Time a method of a class or an object, if it has it."""
        if hasattr(owner, name):
            setattr(owner, name, self.timed(part, getattr(owner, name)))


def watch_classes(figures: Figures) -> None:
    """Time the parts of the scheduler's half."""
    from dask_efficiency.accounts.cluster.cluster import ClusterLedger
    from dask_efficiency.live import exposition
    from dask_efficiency.live.bokeh.tab import Tab
    from dask_efficiency.live.prometheus import COLLECTOR
    from dask_efficiency.plugin.scheduler.accounts import ClusterAccounts, Timelines
    from dask_efficiency.plugin.scheduler.idle_watch import IdleWatch
    from dask_efficiency.plugin.scheduler.straggler_watch import StragglerReporter

    for part, owner, names in (
        ("poll", ClusterAccounts, ["poll"]),
        ("poll: a snapshot", ClusterAccounts, ["take_snapshot"]),
        ("poll: task rates", StragglerReporter, ["take_heartbeat"]),
        ("poll: stragglers", StragglerReporter, ["poll"]),
        ("poll: timelines", Timelines, ["follow"]),
        ("poll: reconcile", ClusterAccounts, ["reconcile"]),
        ("poll: accrue", ClusterLedger, ["accrue"]),
        ("poll: history", ClusterLedger, ["remember"]),
        ("poll: idle time", IdleWatch, ["catch_up"]),
        ("look at idle slots", IdleWatch, ["_tick", "_look_now", "_turned_safely"]),
        ("/metrics: collect", COLLECTOR, ["_made"]),
        ("/metrics: text", exposition, ["text"]),
        ("pages: keep", Tab, ["_keep"]),
    ):
        for name in names:
            figures.watch(part, owner, name)


def watch_hooks(figures: Figures, plugin: Any) -> None:
    for hook in ("transition", "update_graph", "add_worker", "log_event"):
        figures.watch(f"hook: {hook}", plugin, hook)


class Scraper:
    """Reads ``/metrics`` over its socket, as Prometheus does."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.milliseconds: list[float] = []
        self.nbytes = self.own_nbytes = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(SCRAPE_SECONDS)
            began = time.monotonic()
            text = await self._read()
            self.milliseconds.append(1e3 * (time.monotonic() - began))
            self.nbytes = len(text)
            self.own_nbytes = sum(len(line) + 1 for line in text.splitlines() if b"dask_efficiency" in line)

    async def _read(self) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        text = await reader.read()
        writer.close()
        head, _, body = text.partition(b"\r\n\r\n")
        if b" 200 " not in head.splitlines()[0]:
            raise RuntimeError(f"/metrics answered {head!r}")
        return body


def open_page(scheduler: Scheduler, figures: Figures) -> Any:
    from tornado.ioloop import PeriodicCallback

    from benchmarks.live import Viewer
    from dask_efficiency.live.bokeh import pages
    from dask_efficiency.live.bokeh.tab import UPDATE_MS

    viewer = Viewer(pages.whole(pages._TABS[scheduler]))
    updates = PeriodicCallback(figures.timed("pages: an update", viewer.page.update), UPDATE_MS)
    updates.start()
    return updates


@contextmanager
def _quiet() -> Iterator[None]:
    """No log of each worker that joins."""
    logging.disable(logging.INFO)
    yield


def memory() -> float:
    """Resident megabytes of this process, without garbage."""
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


async def measure(clock: Clock, asked: Any) -> dict[str, Any]:
    """Run what is asked for; gives the figures."""
    import dask
    from distributed import Scheduler

    from benchmarks.scale_cluster import Cluster

    figures = Figures()
    garbage = figures.garbage
    figures.calibrate()
    # Samples the event loop's stack from a thread of its own.
    dask.config.set({"distributed.worker.profile.enabled": False})
    scheduler = await Scheduler(port=0, host="127.0.0.1", dashboard=True, dashboard_address="127.0.0.1:0")
    before = memory()
    if asked.plugin:
        from dask_efficiency import EfficiencyPlugin

        watch_classes(figures)
        plugin = EfficiencyPlugin()
        await scheduler.register_scheduler_plugin(plugin, name=plugin.name, idempotent=False)
        registered = scheduler.plugins[plugin.name]
        watch_hooks(figures, registered)
    cluster = Cluster(clock, scheduler, asked)
    cpu = clock.cpu_ns
    await cluster.join()
    joining = (clock.cpu_ns - cpu) / 1e9
    scraper = Scraper(scheduler.http_server.port)
    extras: list[Any] = [asyncio.create_task(scraper.run())]
    if asked.plugin:
        extras.append(open_page(scheduler, figures))
    for times in figures.calls.values():
        del times[:]
    figures.counting = True
    garbage.begin()
    cpu, began = clock.cpu_ns, time.monotonic()
    halves = []
    for half in (0.5, 1.0):
        await cluster.run(half * asked.seconds)
        with clock.left_out():
            longest = garbage.longest_ms
            halves.append([cluster.finished, memory() - before])
            garbage.longest_ms = longest
    figures.counting = False
    found = {
        **vars(asked),
        "elapsed": time.monotonic() - began,
        "cpu": (clock.cpu_ns - cpu) / 1e9,
        "joining": joining,
        "finished": cluster.finished,
        "heartbeats": len(cluster.payload_bytes),
        "heartbeats_cpu": cluster.heartbeats_seconds,
        "payload_bytes": sum(cluster.payload_bytes) / max(1, len(cluster.payload_bytes)),
        "memory_mb": halves,
        "metrics_ms": scraper.milliseconds,
        "metrics_bytes": scraper.nbytes,
        "own_metrics_bytes": scraper.own_nbytes,
        "gc_cpu": garbage.seconds,
        "gc_longest_ms": garbage.longest_ms,
        "own_cpu": figures.seconds,
        "longest_pause": figures.longest,
        "calls": {part: [*times] for part, times in figures.calls.items()},
    }
    if asked.plugin:
        found.update(_after(registered))
        found["report"] = await report(clock, garbage, cluster, registered)
    return found


def _after(plugin: Any) -> dict[str, Any]:
    """The accounts at the end, and the times of a scrape, with its writing, and of an answer to a live view."""
    import msgpack

    from dask_efficiency.live.exposition import text
    from dask_efficiency.live.prometheus import COLLECTOR
    from dask_efficiency.plugin.scheduler import replies

    accounts = plugin._meter.accounts
    if accounts.off is not None:
        raise RuntimeError(accounts.off)
    scrapes, answers = [], []
    for _ in range(10):
        began = time.thread_time()
        text(COLLECTOR.collect())
        scrapes.append(1e3 * (time.thread_time() - began))
        began = time.thread_time()
        answer = replies.of_live(accounts)
        answers.append(1e3 * (time.thread_time() - began))
    return {
        "own_metrics_ms": scrapes,
        "live_answer_ms": answers,
        "live_answer_bytes": len(msgpack.packb(answer)),
        "refused": accounts.cluster.refused,
        "stale": accounts.cluster.stale,
        "missed": accounts.cluster.missed,
        "read_interval": accounts.read_interval_seconds,
        "stragglers": [finding.worker for finding in accounts.findings],
        "recorded_seconds": sum(accounts.cluster.part("finalized").values()) / 1e9,
        "straggler_mb": accounts.stragglers._watch.nbytes / 1e6,
        "said_cpu": accounts.cost_seconds + accounts.idle.cost_seconds,
    }


def main() -> None:
    """Measure what is asked for, and print it."""
    asked = SimpleNamespace(**json.loads(sys.argv[1]))
    clock = Clock()
    clock.install()
    loop = event_loop(clock)
    asyncio.set_event_loop(loop)
    with _quiet():
        found = loop.run_until_complete(measure(clock, asked))
    print(json.dumps(found), flush=True)
    os._exit(0)  # ten thousand streams need no end


if __name__ == "__main__":
    main()
