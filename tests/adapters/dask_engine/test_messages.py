"""Event loops and batched streams in virtual time."""

from __future__ import annotations

from typing import Any

from dask_efficiency.adapters.dask_engine.messages import Loop, Stream
from dask_efficiency.simulation.events import EventHeap


def run(clock: EventHeap) -> None:
    while clock.step():
        pass


def test_a_loop_does_one_thing_after_the_other() -> None:
    clock, done = EventHeap(100), []
    loop = Loop(clock)
    loop.do(10, lambda: done.append(clock.now))
    loop.do(5, lambda: done.append(clock.now))
    clock.at(200, loop.do, 1, lambda: done.append(clock.now))
    run(clock)
    assert done == [110, 115, 201]


def test_a_stream_that_was_quiet_sends_at_once_and_then_in_batches() -> None:
    clock = EventHeap()
    batches: list[tuple[int, list[Any]]] = []
    stream = Stream(clock, interval=5)
    stream.connect(1, lambda batch: batches.append((clock.now, batch)))
    for at, message in ((10, "a"), (12, "b"), (13, "c"), (30, "d")):
        clock.at(at, stream.send, message)
    run(clock)
    assert batches == [(11, ["a"]), (16, ["b", "c"]), (31, ["d"])]
