from __future__ import annotations

import asyncio
import time

from dask_efficiency.plugins.loop_watch import INTERVAL_NS, LoopWatch


async def watch(during: float, *, stop_first: bool = False) -> tuple[list[tuple[int, int]], int, int]:
    blocked: list[tuple[int, int]] = []
    watch = LoopWatch(lambda start, stop: blocked.append((start, stop)))
    await asyncio.sleep(0.03)
    if stop_first:
        watch.stop()
    start = time.monotonic_ns()
    time.sleep(during)  # noqa: ASYNC251  # this is what is watched for
    stop = time.monotonic_ns()
    await asyncio.sleep(0.03)
    watch.stop()
    return blocked, start, stop


def test_a_loop_that_does_not_turn_is_reported_with_when():
    blocked, start, stop = asyncio.run(watch(0.2))
    begins, ends = max(blocked, key=lambda pair: pair[1] - pair[0])
    assert start - INTERVAL_NS <= begins <= start + INTERVAL_NS
    assert ends >= stop


def test_once_stopped_it_reports_nothing():
    blocked, start, _ = asyncio.run(watch(0.1, stop_first=True))
    assert all(stop <= start for _, stop in blocked)
