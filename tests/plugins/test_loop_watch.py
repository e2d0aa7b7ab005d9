from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

from tornado.ioloop import PeriodicCallback

from dask_efficiency.plugins.loop_watch import LoopWatch

INTERVAL_MS = 20


async def watch(during: float, *, stop_first: bool = False) -> tuple[list[tuple[int, int]], int, int, int]:
    blocked: list[tuple[int, int]] = []
    ticks: list[int] = []
    tick = PeriodicCallback(lambda: ticks.append(1), INTERVAL_MS)
    tick.start()
    watch = LoopWatch(
        SimpleNamespace(periodic_callbacks={"tick": tick}), lambda start, stop: blocked.append((start, stop))
    )
    await asyncio.sleep(0.05)
    if stop_first:
        watch.stop()
    start = time.monotonic_ns()
    time.sleep(during)  # noqa: ASYNC251  # this is what is watched for
    stop = time.monotonic_ns()
    await asyncio.sleep(0.05)
    watch.stop()
    watched = len(ticks)
    await asyncio.sleep(0.05)
    tick.stop()
    assert len(ticks) > watched > 0
    return blocked, start, stop, len(ticks)


def test_a_loop_that_does_not_turn_is_reported_with_when():
    blocked, start, stop, _ = asyncio.run(watch(0.3))
    begins, ends = max(blocked, key=lambda pair: pair[1] - pair[0])
    assert start - 0.2e9 <= begins <= start + INTERVAL_MS * 1e6
    assert ends >= stop


def test_once_stopped_it_reports_nothing():
    blocked, start, _, _ = asyncio.run(watch(0.1, stop_first=True))
    assert all(stop <= start for _, stop in blocked)


def test_without_a_tick_to_watch_nothing_breaks():
    watch = LoopWatch(SimpleNamespace(periodic_callbacks={}), print)
    watch.stop()
