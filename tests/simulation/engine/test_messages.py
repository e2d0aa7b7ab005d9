"""Event loops and batched streams in virtual time."""

from __future__ import annotations

from typing import Any

from dask_efficiency.simulation.engine.messages import Loop, Stream
from dask_efficiency.simulation.model.events import EventHeap


def run(clock: EventHeap) -> None:
    clock.run()


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
    stream.connect(lambda: 1, lambda batch: batches.append((clock.now, batch)))
    for at, message in ((10, "a"), (12, "b"), (13, "c"), (30, "d")):
        clock.at(at, stream.send, message)
    run(clock)
    assert batches == [(11, ["a"]), (16, ["b", "c"]), (31, ["d"])]


def test_what_a_loop_has_begun_delays_what_comes_next_even_if_that_waits_already() -> None:
    clock, done = EventHeap(), []
    loop = Loop(clock)
    loop.do(10, loop.spend, 7)
    loop.do(1, lambda: done.append(clock.now))
    run(clock)
    assert done == [18]


def test_a_stream_sends_when_its_loop_is_through_with_what_it_does() -> None:
    clock = EventHeap()
    loop = Loop(clock)
    arrived: list[tuple[int, list[Any]]] = []
    stream = Stream(clock, 5, loop)
    stream.connect(lambda: 1, lambda batch: arrived.append((clock.now, batch)))

    def work() -> None:
        stream.send("first")
        loop.spend(20)

    loop.do(10, work)
    run(clock)
    assert arrived == [(31, ["first"])]


def test_batches_arrive_in_the_order_in_which_they_were_sent() -> None:
    clock = EventHeap()
    arrived: list[Any] = []
    stream = Stream(clock, 5)
    ways = iter([50, 1])
    stream.connect(lambda: next(ways), arrived.extend)
    clock.at(0, stream.send, "slow")
    clock.at(10, stream.send, "fast")
    run(clock)
    assert arrived == ["slow", "fast"]
