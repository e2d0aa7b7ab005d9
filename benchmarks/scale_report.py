"""A report of a large cluster, for ``benchmarks/scale.py``: a client opens a window on fake workers, and closes it."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any

import msgpack

if TYPE_CHECKING:
    from benchmarks.scale_clock import Clock
    from benchmarks.scale_cluster import Cluster, Collections

WINDOW = "scale"

#: A window lasts for so many seconds, and so many heartbeats of each worker, at least.
MIN_SECONDS = 30.0
MIN_HEARTBEATS = 3

#: In so many seconds workers answer, or more where they are asked to.
ANSWER_SECONDS = 0.02


class Lag:
    """How much later than it should a timer of the event loop comes, by the clock and without collecting garbage."""

    def __init__(self, clock: Clock, garbage: Collections) -> None:
        self.longest_ms = 0.0
        self._clock = clock
        self._garbage = garbage

    async def watch(self) -> None:
        """Look every millisecond; to be cancelled."""
        while True:
            due = self._clock.monotonic_ns() - self._garbage.ns + 1_000_000
            await asyncio.sleep(0.001)
            late = self._clock.monotonic_ns() - self._garbage.ns - due
            self.longest_ms = max(self.longest_ms, late / 1e6)


async def report(clock: Clock, garbage: Collections, cluster: Cluster, plugin: Any) -> dict[str, float]:
    """Open a window and close it; gives what that takes the scheduler."""
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
        return {address: msgpack.unpackb(packed, use_list=False, strict_map_key=False)}

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
    nbytes, reply = len(msgpack.packb(reply)), unpacked(reply)
    whole = sum(ns for row in reply["workers"].values() for ns in row.values())
    if reply["not_measured"] or whole < 0.9 * reply["window"] * sum(reply["nthreads"].values()):
        raise RuntimeError(f"the report says {whole} ns and {[*reply['not_measured'].items()][:3]}")
    return {**found, "reply_bytes": float(nbytes)}
