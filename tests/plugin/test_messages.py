"""Messages are measured as they are serialized: how long, how large, and whose objects they hold."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from functools import partial, wraps
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dask._task_spec import DataNode, Task
from distributed import protocol
from distributed.protocol.serialize import Serialize, Serialized, ToPickle, serialize

from dask_efficiency.accounts.cluster.scheduler_loop import RECEIVING, SENDING, LoopTotals, between
from dask_efficiency.accounts.metered import BYTES, COUNT, ITEMS, MESSAGES, Metered
from dask_efficiency.plugin import messages
from dask_efficiency.plugin.message_contents import receiver, task_parts, telling_receivers
from dask_efficiency.plugin.messages import Messages, Tally
from dask_efficiency.show.figures import DETAIL_LENGTH


class PriceList:
    """Pickles for long, and says nothing of its size."""

    def __init__(self) -> None:
        self.prices = {f"article-{i}": i for i in range(30_000)}

    def quote(self, number: int) -> int:
        return self.prices[f"article-{number}"]

    def __repr__(self) -> str:
        raise AssertionError("nobody asked for the words of a user's object")


def small(x: int) -> int:
    return x


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Messages]:
    monkeypatch.setattr(messages, "ONE_IN", 1)  # each task is measured
    meter = Messages()
    meter.start("user")
    yield meter
    meter.stop("user")
    assert meter.guard.off is None


def compute_task(task: Any) -> dict[str, Any]:
    return {"op": "compute-task", "key": task.key, "run_spec": ToPickle(task)}


def rows(meter: Messages) -> dict[tuple[str, str, str, str], Any]:
    return {(of.way, of.name, of.prefix, of.kind): row for of, row in meter._rows.items()}


def test_tasks_that_carry_an_object_are_told_by_its_type_and_their_function(meter: Messages) -> None:
    prices = PriceList()
    heavy = [Task(f"quote-{i}", prices.quote, i) for i in range(3)]
    frames = protocol.dumps([compute_task(each) for each in (*heavy, Task("small-1", small, 1))])
    found = rows(meter)
    row = found[SENDING, "tasks", "quote", "PriceList"]
    sizes = [len(protocol.pickle.dumps(each)) for each in heavy]
    assert (row.count, row.nbytes) == (3, sum(sizes))
    assert found[SENDING, "tasks", "small", ""].count == 1
    assert found[SENDING, "compute-task", "", ""].ns > 0
    protocol.loads([bytes(frame) for frame in frames])
    assert rows(meter)[RECEIVING, "tasks", "quote", "PriceList"].count == 3
    handlers = between(LoopTotals(0, 0), LoopTotals(10**9, 0, handlers=meter.on_loop(threading.get_ident()))).handlers
    part = next(part for part in handlers if part.kind == SENDING and part.carries)
    assert (part.kind, part.title, part.carries, part.calls) == ("sending", "tasks of quote", "PriceList", 3)
    assert (part.function, part.file) == ("PriceList.quote", __file__)
    assert part.median_bytes == pytest.approx(sizes[0], rel=0.02)
    assert part.largest_bytes == pytest.approx(max(sizes), rel=0.02)
    assert part.seconds == pytest.approx(row.ns / 1e9)


def test_the_object_that_a_task_carries_is_its_largest_or_one_of_unknown_size() -> None:
    array, prices = np.zeros(1_000), PriceList()
    for task, nbytes, expected in (
        (Task("a", small, array, prices), 8_200, "ndarray"),
        (Task("b", small, array, prices), 900_000, "PriceList"),
        (Task("c", partial(small, prices), 1), 900_000, "PriceList"),
        (Task("d", small, 1, "text"), 900_000, ""),
        (DataNode("e", array), 8_200, "ndarray"),
    ):
        assert task_parts(task, nbytes)[0] == expected
    assert task_parts(Task("b", small, 1), 900_000)[1].function == "small"


def test_a_function_of_a_script_is_what_its_tasks_carry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small, "__module__", "__main__")
    assert task_parts(Task("a", small, 1), 600)[0] == "function by value"


def test_bytes_beside_the_pickle_count(meter: Messages) -> None:
    protocol.dumps([compute_task(Task("small-1", small, np.zeros(100_000)))])
    (row,) = (row for of, row in meter._rows.items() if of.what == "tasks")
    assert 800_000 < row.nbytes < 810_000


def test_results_are_told_by_receiver_prefix_and_type(meter: Messages) -> None:
    values = {("read-1", i): [{"line": j} for j in range(20_000)] for i in range(2)}
    answer = {"status": "OK", "data": {key: Serialize(value) for key, value in values.items()}}

    async def get_data(comm: Any, keys: Any, who: Any = None) -> list[Any]:
        return protocol.dumps(answer)

    async def ask(who: Any) -> list[Any]:
        return await telling_receivers(get_data)("comm", [], who=who)

    frames = asyncio.run(ask(None))
    asyncio.run(ask("tcp://peer"))
    assert receiver.get() == ""
    found = rows(meter)
    assert {name for way, name, *_ in found if way == SENDING} == {"results to a client", "results to a worker"}
    row = found[SENDING, "results to a client", "read", "list"]
    assert (row.count, row.items) == (2, 40_000)
    protocol.loads([bytes(frame) for frame in frames])
    assert rows(meter)[RECEIVING, "results", "read", "list"].count == 2
    metered = meter.metered("user")
    label = f"{SENDING} results to a client: list"
    assert metered[Metered(MESSAGES, "", "read", label, COUNT)] == 2
    assert metered[Metered(MESSAGES, "", "read", label, ITEMS)] == 40_000
    assert metered[Metered(MESSAGES, "", "read", label, BYTES)] == row.nbytes
    assert not meter.metered("another worker of the process")


def test_results_that_are_not_pickled_have_no_type(meter: Messages) -> None:
    protocol.dumps({"status": "OK", "data": {f"x-{i}": Serialize(np.zeros(1_000_000)) for i in range(20)}})
    assert {of.kind for of in meter._rows} == {""}


def test_results_that_a_scheduler_passes_on_and_graphs_are_apart(meter: Messages) -> None:
    passed = {"status": "OK", "data": {"x-1": Serialized(*serialize(1))}}
    protocol.loads([bytes(frame) for frame in protocol.dumps(passed)], deserialize=False)
    graph = Serialized(*serialize(b"x" * 100_000))
    protocol.dumps([{"op": "heartbeat-client"}] * 3 + [{"op": "update-graph", "expr_ser": graph}] * 2)
    protocol.dumps({"op": "update-graph", "expr_ser": graph})
    protocol.dumps("OK")
    found = rows(meter)
    assert {(SENDING, "results in passing", "x", ""), (RECEIVING, "results in passing", "x", "")} <= found.keys()
    assert found[SENDING, "graphs", "", ""].nbytes > 100_000
    assert found[SENDING, "answers", "", ""].count == 1


def test_what_sockets_take_counts_for_the_message(meter: Messages, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10**9, 1_000))
    monkeypatch.setattr(messages, "clock", lambda: next(clock))
    (tally,) = meter._users.values()
    stream, another = SimpleNamespace, type("Stream", (), {})
    write = meter._writing(lambda stream, data: len(data))
    read = meter._reading(lambda stream, buf: len(buf))
    frames, chunk = protocol.dumps({"op": "gather", "keys": ["x" * 70_000]}), b"x" * 70_000
    write(one := another(), chunk)
    protocol.dumps({"op": "heartbeat_worker"})
    write(another(), chunk)
    before = rows(meter)[SENDING, "gather", "", ""].ns
    write(one, b"45")  # short ones are not timed
    write(one, chunk)  # the rest of the first message
    assert rows(meter)[SENDING, "gather", "", ""].ns == before + 1_000
    size = sum(map(len, frames))
    read(one, b"x" * size)
    read(stream, b"x" * size)  # of another message
    protocol.loads([bytes(frame) for frame in frames])
    assert rows(meter)[RECEIVING, "gather", "", ""].ns == 1_000 + 1_000
    assert (tally.ns_read, tally.bytes_read) == (1_000, size)


def test_words_of_what_blocked_a_loop(meter: Messages, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]
    monkeypatch.setattr(messages, "clock", lambda: now[0])
    monkeypatch.setattr(messages, "content", lambda msg, all_of_it: ("gather", None))
    count = partial(meter._count, SENDING, {}, [b"x"], (0, 0), tally=meter._users["user"], alone=True)
    count(began=1_000_000_000, took=600_000_000)
    count(began=3_000_000_000, took=100_000)
    here = threading.get_ident()
    assert meter.during(here, 1.0, 2.0) == "sending gather"
    assert meter.during(here, 1.5, 2.5) == ""
    assert meter.during(here + 1, 1.0, 2.0) == ""


def test_names_and_rows_are_bounded(meter: Messages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MAX_APART", 3)
    for i in range(10):
        protocol.dumps({"op": f"{i}" * 1_000})
    assert len(meter._rows) <= 4
    assert all(len(of.what) <= DETAIL_LENGTH for of in meter._rows)
    assert sum(row.count for row in meter._rows.values()) == 10


def test_one_user_reports_what_came_since_it_does(meter: Messages) -> None:
    protocol.dumps({"op": "before"})
    assert meter.metered("nobody") == {}
    meter.start("other")
    protocol.dumps({"op": "of both"})
    assert sum(n for metered, n in meter.metered("user").items() if metered.unit == COUNT) == 2
    assert meter.metered("other") == {}
    meter.stop("user")
    assert meter.metered("user") == meter.metered("other") == {}
    protocol.dumps({"op": "of the other"})
    assert sum(n for metered, n in meter.metered("other").items() if metered.unit == COUNT) == 1
    meter.stop("other")


def test_a_wrapper_of_ours_that_others_keep_in_place_counts_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "ONE_IN", 1)
    meter, before = Messages(), protocol.dumps
    meter.start("first")
    ours = protocol.dumps
    monkeypatch.setattr(
        protocol, "dumps", wraps(ours)(lambda *args, **kwargs: ours(*args, **kwargs))
    )  # as profilers do
    meter.stop("first")
    protocol.dumps({"op": "a"})
    assert not meter._rows
    meter.start("second")
    protocol.dumps({"op": "b"})
    assert [row.count for row in meter._rows.values()] == [1]
    meter.stop("second")
    monkeypatch.setattr(protocol, "dumps", before)


def test_everything_is_put_back_once_nobody_wants_to_know() -> None:
    before = protocol.dumps, protocol.loads, protocol.pickle.dumps, protocol.pickle.loads
    meter = Messages()
    assert isinstance(meter.start(1), Tally)
    assert meter.start(2) is meter.start(1)
    meter.stop(1)
    assert protocol.dumps is not before[0]
    meter.stop(2)
    meter.stop(2)
    assert before == (protocol.dumps, protocol.loads, protocol.pickle.dumps, protocol.pickle.loads)


def test_short_messages_are_looked_at_by_chance_and_stand_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = Messages()
    chances = iter([0.0, *[0.9] * 200])
    monkeypatch.setattr(meter, "_one_in", SimpleNamespace(random=lambda: next(chances)))
    monkeypatch.setattr(messages, "MIN_NS", 10**12)
    tally = meter.start("user")
    try:
        for _ in range(4):
            protocol.dumps({"op": "gather"})
        row = rows(meter)[SENDING, "gather", "", ""]
        assert (row.count, len(meter._rows)) == (messages.ONE_IN, 1)
        assert tally.ns > row.ns / messages.ONE_IN
        (on_loop,) = meter.on_loop(threading.get_ident()).values()
        assert (on_loop.ns, on_loop.calls) == (row.ns, row.count)
        protocol.dumps({"op": "scatter", "data": Serialized({}, [b"x" * 100_000])})  # quick, as it is bytes already
        assert rows(meter)[SENDING, "scatter", "", ""].count == 1
    finally:
        meter.stop("user")


def test_a_failure_of_the_meter_ends_it_and_no_message_fails(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "ONE_IN", 1)
    meter = Messages()
    meter.start(1)
    meter._rows = None  # type: ignore[assignment]
    frames = protocol.dumps({"op": "gather"})
    assert protocol.loads([bytes(frame) for frame in frames]) == {"op": "gather"}
    assert "does not say what event loops send" in caplog.text
    assert meter.guard.off
    meter.stop(1)


def test_an_error_of_a_message_is_its_senders() -> None:
    meter = Messages()
    meter.start(1)
    try:
        with pytest.raises(Exception, match="expected|unpack|bytes|extra|Unpack"):
            protocol.loads([b""])
        assert meter.guard.off is None
    finally:
        meter.stop(1)


class Unpicklable:
    """Fails as its message is serialized."""

    def __reduce__(self) -> Any:
        raise ValueError("not to be sent")


def test_tasks_of_a_message_that_failed_are_no_part_of_the_next_one(meter: Messages) -> None:
    failing = [compute_task(Task("quote-1", PriceList().quote, 1)), {"op": "x", "y": ToPickle(Unpicklable())}]
    with pytest.raises(Exception, match="not to be sent"):
        protocol.dumps(failing)
    protocol.dumps({"op": "next"})
    assert {name for _, name, *_ in rows(meter)} == {"next"}


BEGAN, ENDED = threading.Event(), threading.Event()


class Slow(PriceList):
    """Is pickled until another thread says so."""

    def __getstate__(self) -> Any:
        BEGAN.set()
        assert ENDED.wait(60)
        return self.__dict__


def test_threads_without_an_event_loop_keep_their_tasks_apart(meter: Messages) -> None:
    """One notes tasks of a long message, while the other sends messages of its own."""
    first, second = Task("quote-1", PriceList().quote, 1), Task("slow-1", Slow().quote, 1)
    sends = threading.Thread(target=protocol.dumps, args=([compute_task(first), compute_task(second)],))
    sends.start()
    assert BEGAN.wait(60)
    others = threading.Thread(target=protocol.dumps, args=({"op": "heartbeat-client"},))
    others.start()
    others.join()
    ENDED.set()
    sends.join()
    found = rows(meter)
    assert found[SENDING, "tasks", "quote", "PriceList"].count == 1
    assert found[SENDING, "tasks", "slow", "Slow"].count == 1
    assert found[SENDING, "heartbeat-client", "", ""].count == 1
