from typing import Any

from dask_efficiency.simulation.engine.messages import Loop, Stream
from dask_efficiency.simulation.model.events import EventHeap


def test_a_loop_does_one_thing_after_the_other() -> None:
    clock, done = EventHeap(100), []
    loop = Loop(clock)
    note = lambda: done.append(clock.now)  # noqa: E731
    loop.do(10, note)
    loop.do(5, note)
    clock.at(200, loop.do, 10, loop.spend, 7)
    clock.at(200, loop.do, 1, note)
    clock.run()
    # The last one waits for all of the work before it.
    assert done == [110, 115, 218]


def sent(*messages: tuple[int, str], ways: tuple[int, ...] = (1, 1, 1)) -> list[tuple[int, list[Any]]]:
    clock, batches, left = EventHeap(), list[tuple[int, list[Any]]](), iter(ways)
    stream = Stream(clock, interval=5)
    stream.connect(lambda: next(left), lambda batch: batches.append((clock.now, batch)))
    for at, message in messages:
        clock.at(at, stream.send, message)
    clock.run()
    return batches


def test_a_quiet_stream_sends_at_once_and_then_in_batches_which_arrive_in_order() -> None:
    found = sent((10, "a"), (12, "b"), (13, "c"), (30, "d"))
    assert found == [(11, ["a"]), (16, ["b", "c"]), (31, ["d"])]
    assert sent((0, "slow"), (10, "fast"), ways=(50, 1)) == [(50, ["slow"]), (50, ["fast"])]


def test_a_stream_sends_after_the_present_work_of_its_loop() -> None:
    clock, arrived = EventHeap(), list[tuple[int, list[Any]]]()
    loop = Loop(clock)
    stream = Stream(clock, 5, loop)
    stream.connect(lambda: 1, lambda batch: arrived.append((clock.now, batch)))

    def work() -> None:
        stream.send("first")
        loop.spend(20)

    loop.do(10, work)
    clock.run()
    assert arrived == [(31, ["first"])]
