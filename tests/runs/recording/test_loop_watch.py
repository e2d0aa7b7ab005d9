from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from distributed import protocol
from tornado.ioloop import PeriodicCallback

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.recording import loop_watch
from dask_efficiency.runs.recording.loop_watch import LoopWatch
from dask_efficiency.runs.trace.schema import BLOCKED_BY

INTERVAL_MS = 20


async def watch(
    block: Callable[[], object], *, stop_first: bool = False
) -> tuple[list[tuple[int, int, int, int]], int, int, list[int]]:
    """What was reported, when the loop was blocked, and when it ticked."""
    blocked: list[tuple[int, int, int, int]] = []
    ticks: list[int] = []
    tick = PeriodicCallback(lambda: ticks.append(time.monotonic_ns()), INTERVAL_MS)
    tick.start()
    watch = LoopWatch(SimpleNamespace(periodic_callbacks={"tick": tick}), lambda *row: blocked.append(row))
    await asyncio.sleep(0.05)
    if stop_first:
        watch.stop()
    start = time.monotonic_ns()
    block()
    stop = time.monotonic_ns()
    await asyncio.sleep(0.05)
    watch.stop()
    watched = len(ticks)
    await asyncio.sleep(0.05)
    tick.stop()
    assert len(ticks) > watched > 0
    return blocked, start, stop, ticks


def test_a_loop_that_does_not_turn_is_reported_with_when():
    blocked, start, stop, ticks = asyncio.run(watch(lambda: time.sleep(0.3)))
    # A busy machine may have kept the loop from turning before and after it, too.
    ((begins, _, moving, _),) = [row for row in blocked if row[0] <= start + INTERVAL_MS * 1e6 and row[1] >= stop]
    last_but_one = [0, *(tick for tick in ticks if tick <= start)][-2]
    assert begins >= last_but_one
    assert moving == 0


def test_once_stopped_it_reports_nothing():
    blocked, start, _, _ = asyncio.run(watch(lambda: time.sleep(0.1), stop_first=True))
    assert all(stop <= start for _, stop, *_ in blocked)


def test_what_a_loop_did_not_turn_for_because_it_moved_data_is_told_apart():
    message = {str(i): "x" for i in range(300_000)}
    blocked, start, stop, _ = asyncio.run(watch(lambda: protocol.loads(protocol.dumps(message))))
    begins, ends, moving, _ = max(blocked, key=lambda row: row[2])
    assert (stop - start) / 2 < moving <= ends - begins


def test_to_stop_twice_does_no_harm():
    tick = PeriodicCallback(print, INTERVAL_MS)

    async def twice() -> None:
        watch = LoopWatch(SimpleNamespace(periodic_callbacks={"tick": tick}), print)
        watch.stop()
        watch.stop()

    asyncio.run(twice())
    assert tick.callback is print


def test_without_a_tick_to_watch_nothing_breaks():
    watch = LoopWatch(SimpleNamespace(periodic_callbacks={}), print)
    watch.stop()


@pytest.mark.parametrize(
    ("used", "waited", "moving", "cause"),
    [
        ((80, 80), 0, 0, "computing"),
        ((10, 10), 70, 0, "core"),
        ((10, 90), 0, 0, "gil"),
        ((10, 20), 0, 0, "call"),
        ((49, 49), 49, 0, "computing"),
        ((40, 90), 42, 0, "core"),
        ((80, 80), 0, 60, None),
    ],
)
def test_what_kept_a_loop_is_told_by_the_clocks(
    monkeypatch: pytest.MonkeyPatch, used: tuple[int, int], waited: int, moving: int, cause: str | None
) -> None:
    watch = LoopWatch(SimpleNamespace(periodic_callbacks={}), print)
    watch._used = loop_watch._Used(0, 0)
    watch._waited = 0
    monkeypatch.setattr(watch, "_core_wait", lambda: waited)
    found = watch._cause(100, moving, loop_watch._Used(*used))
    assert (None if found == MISSING else BLOCKED_BY[found]) == cause


def longest(blocked: list[tuple[int, int, int, int]]) -> str:
    return BLOCKED_BY[max(blocked, key=lambda row: row[1] - row[0])[3]]


def test_a_loop_that_computes_is_told_from_one_that_stands_in_a_call():
    def compute() -> None:
        while time.thread_time() - began < 0.5:
            pass

    began = time.thread_time()
    # on a machine that is busy enough, it may wait for a core for longer than it computes
    assert longest(asyncio.run(watch(compute))[0]) in ("computing", "core")
    assert longest(asyncio.run(watch(lambda: time.sleep(0.5)))[0]) in ("call", "core")
