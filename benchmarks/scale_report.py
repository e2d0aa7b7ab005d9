"""A report of a large cluster, for ``benchmarks/scale.py``: a client opens a window on fake workers, and closes it."""

from __future__ import annotations

import asyncio
import random
import time
from asyncio.events import Handle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgpack

if TYPE_CHECKING:
    from benchmarks.scale_clock import Clock
    from benchmarks.scale_run import Cluster, Collections

WINDOW = "scale"

#: A window lasts for so many seconds, and so many heartbeats of each worker, at least.
MIN_SECONDS = 30.0
MIN_HEARTBEATS = 3

#: In how many seconds all workers have answered.
ANSWER_SECONDS = 0.2


class Turns:
    """How long the event loop is with one callback, by the CPU's clock: nothing else is done meanwhile.

    Without collecting garbage, which may happen in any of them.
    """

    def __init__(self) -> None:
        self.longest_ms = 0.0

    @contextmanager
    def watched(self, clock: Clock, garbage: Collections) -> Iterator[None]:
        """Time every callback."""
        original = Handle._run

        def run(handle: Any) -> None:
            began = clock.cpu_ns - garbage.ns
            original(handle)
            self.longest_ms = max(self.longest_ms, (clock.cpu_ns - garbage.ns - began) / 1e6)

        Handle._run = run  # type: ignore[method-assign]
        try:
            yield
        finally:
            Handle._run = original  # type: ignore[method-assign]


async def report(clock: Clock, garbage: Collections, cluster: Cluster, plugin: Any) -> dict[str, float]:
    """Open a window and close it; gives what that takes the scheduler."""
    from dask_efficiency.plugins import names
    from dask_efficiency.plugins.reports import unpacked

    meter = plugin._meter
    by_address = {worker.address: worker for worker in cluster.workers}
    spread = random.Random(0)

    async def broadcast(msg: Any, workers: list[str], on_error: str) -> dict[str, Any]:
        await asyncio.sleep(spread.uniform(0.0, ANSWER_SECONDS))
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
        turns = Turns()
        cpu, began = clock.cpu_ns, time.monotonic()
        with turns.watched(clock, garbage):
            reply = await asyncio.create_task(meter.handle(action, **asked))
        found |= {
            f"{action}_cpu": (clock.cpu_ns - cpu) / 1e9,
            f"{action}_seconds": time.monotonic() - began,
            f"{action}_longest_ms": turns.longest_ms,
        }
        if action == names.OPEN:
            now = time.monotonic() - cluster._began
            await cluster.run(now + max(MIN_SECONDS, MIN_HEARTBEATS * cluster.interval))
    nbytes, reply = len(msgpack.packb(reply)), unpacked(reply)
    whole = sum(ns for row in reply["workers"].values() for ns in row.values())
    if reply["not_measured"] or whole < 0.9 * reply["window"] * sum(reply["nthreads"].values()):
        raise RuntimeError(f"the report says {whole} ns and {[*reply['not_measured'].items()][:3]}")
    return {**found, "reply_bytes": float(nbytes)}
