"""Windows that a scheduler opens and closes on workers that answer by hand."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from distributed import Scheduler

from dask_efficiency import EfficiencyPlugin
from dask_efficiency.accounts.details import WindowDetails
from dask_efficiency.accounts.lines import Frame, SampleRow
from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.accounts.wire.heartbeats import encode
from dask_efficiency.accounts.wire.snapshots import Snapshot
from dask_efficiency.accounts.worker.answer import answer_of, encode_answer
from dask_efficiency.accounts.worker.ledger import Ledger
from dask_efficiency.accounts.worker.reservations import MAX_WINDOWS
from dask_efficiency.plugin import names
from dask_efficiency.plugin.scheduler import open_windows
from dask_efficiency.report.replies import unpacked
from tests.payloads import time_of_workers
from tests.plugin.loops import within
from tests.plugin.scheduler.test_accounts import registered, worker
from tests.plugin.watch import travelled


class Half:
    """A worker's half: a ledger, and what it answers."""

    def __init__(self, number: int, scheduler: Scheduler) -> None:
        self.ws = worker(number, scheduler)
        self.address = self.ws.address
        self.ledger = Ledger(2, at=time.monotonic_ns())
        #: What its tasks are seen at in every window.
        self.profile: dict[SampleRow, int] = {}
        #: Thread-nanoseconds of each window that it closed.
        self.closed: dict[str, int] = {}
        self._sent = 0

    def answer(self, action: str, window: str) -> dict[str, Any]:
        """As the worker's meter does."""
        at = time.monotonic_ns()
        self._sent += 1
        snapshot = Snapshot(f"ledger of {self.address}", self._sent, self.ledger.balance(at=at))
        answer: dict[str, Any] = {"snapshot": encode(snapshot)}
        if action == names.OPEN:
            self.ledger.open_window(window, at=at)
        elif action == names.CLOSE and (balance := self.ledger.close_window(window, at=at)) is not None:
            self.closed[window] = balance.nthreads * balance.elapsed
            answer["window"] = encode_answer(answer_of(balance, details=WindowDetails(profile=self.profile)))
        return answer


class Cluster:
    """A scheduler whose workers answer by hand."""

    def __init__(self, scheduler: Scheduler, plugin: EfficiencyPlugin) -> None:
        self.scheduler: Any = scheduler
        self.meter: Any = plugin._meter
        self.plugin = plugin
        self.halves: dict[str, Half] = {}
        #: Called before a worker answers.
        self.asked: Callable[[str, str], Awaitable[None]] | None = None
        self.scheduler.broadcast = self._broadcast

    def join(self, number: int) -> Half:
        """One more worker; it opens what the plugin that it is sent tells it to."""
        half = Half(number, self.scheduler)
        self.halves[half.address] = half
        self.scheduler.workers[half.address] = half.ws
        self.plugin.add_worker(self.scheduler, half.address)
        for window in pickle.loads(self.scheduler.worker_plugins[names.WORKER_PLUGIN]).windows:
            half.ledger.open_window(window, at=time.monotonic_ns())
        return half

    async def _broadcast(self, *, msg: dict[str, Any], workers: list[str], on_error: str) -> dict[str, Any]:
        (address,) = workers
        if self.asked is not None:
            await self.asked(msg["action"], address)
        half = self.halves.get(address)
        return travelled({address: None if half is None else half.answer(msg["action"], msg.get("window", ""))})

    async def handle(self, action: str, window: str) -> dict[str, Any]:
        """What a client is answered."""
        answer: dict[str, Any] = await self.meter.handle(action, window=window, client="me", span="span")
        return answer

    async def check_window(self, window: str) -> None:
        """Check that a window counts each nanosecond of each worker, and that the meter is on."""
        await self.handle(names.OPEN, window)
        reply = unpacked(await self.handle(names.CLOSE, window))
        assert self.meter.guard.off is None
        assert (reply["not_measured"], reply["notes"]) == ({}, ())
        expected = {half.ws.name: half.closed[window] for half in self.halves.values()}
        assert {name: sum(row.values()) for name, row in time_of_workers(reply).items()} == expected


@asynccontextmanager
async def cluster() -> AsyncIterator[Cluster]:
    async with registered() as (scheduler, plugin):
        made = Cluster(scheduler, plugin)
        made.meter._poller.stop()
        for number in (1, 2):
            made.join(number)
        yield made


@within(cluster)
async def test_a_worker_that_joins_while_a_window_is_opened_is_part_of_it(made):
    async def asked(action: str, address: str) -> None:
        if len(made.halves) < 3:
            made.join(3)

    made.asked = asked
    await made.handle(names.OPEN, "w")
    reply = unpacked(await made.handle(names.CLOSE, "w"))
    assert time_of_workers(reply).keys() == {"worker-1", "worker-2", "worker-3"}
    assert (reply["not_measured"], reply["notes"]) == ({}, ())
    for name in ("worker-1", "worker-2"):
        assert sum(time_of_workers(reply)[name].values()) > 0


@within(cluster)
async def test_a_window_that_could_not_be_opened_leaves_nothing(made):
    stuck = asyncio.Event()

    async def asked(action: str, address: str) -> None:
        stuck.set()
        await asyncio.Event().wait()

    made.asked = asked
    opening = asyncio.create_task(made.handle(names.OPEN, "w"))
    await stuck.wait()
    assert "w" in made.meter.windows
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert not made.meter.windows
    assert pickle.loads(made.scheduler.worker_plugins[names.WORKER_PLUGIN]).windows == []
    with pytest.raises(RuntimeError, match="no window 'w' is open"):
        await made.handle(names.CLOSE, "w")


@within(cluster)
async def test_a_window_ends_when_the_graphs_that_its_client_sent_are_there(made, *, monkeypatch):
    await made.handle(names.OPEN, "w")
    closing = asyncio.create_task(made.meter.handle(names.CLOSE, window="w", graphs=2))
    for taken_in in (0, 1, 2):
        made.meter.windows["w"].graphs = taken_in
        made.meter.windows["w"].arrived.set()
        for _ in range(20):
            await asyncio.sleep(0)
        assert taken_in == 2 or not closing.done()
    assert unpacked(await closing)["notes"] == ()
    monkeypatch.setattr(open_windows, "GRAPHS_SECONDS", 0.0)
    await made.handle(names.OPEN, "w2")
    reply = unpacked(await made.meter.handle(names.CLOSE, window="w2", graphs=2))
    assert reply["notes"] == ("2 graphs of the block had not arrived when it ended",)
    made.meter.accounts.work.counts_graphs = False
    await made.handle(names.OPEN, "w3")
    assert unpacked(await made.meter.handle(names.CLOSE, window="w3", graphs=2))["notes"] == ()


@pytest.mark.parametrize("way", ["leaves", "gives up", "unregisters"])
@within(cluster)
async def test_a_window_whose_client_goes_while_it_is_opened_leaves_nothing(made, *, way):
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def poll_all() -> None:
        begun.set()
        await go_on.wait()

    made.meter.accounts.poll_all = poll_all
    opening = asyncio.create_task(made.handle(names.OPEN, "w"))
    await begun.wait()
    if way == "leaves":
        made.plugin.remove_client(made.scheduler, "me")
    elif way == "gives up":
        await made.meter.handle(names.RELEASE, window="w", client="me")
    else:
        await made.meter.stop()
    go_on.set()
    with pytest.raises(RuntimeError, match="the window was not opened: "):
        await opening
    assert not made.meter.windows
    assert (names.WORKER_PLUGIN in made.scheduler.worker_plugins) == (way != "unregisters")


@within(cluster)
async def test_workers_close_the_windows_of_a_client_that_left(made):
    await made.handle(names.OPEN, "w")
    assert all(half.ledger.windows == ("w",) for half in made.halves.values())
    made.plugin.remove_client(made.scheduler, "me")
    for _ in range(100):
        await asyncio.sleep(0)
    assert all(half.ledger.windows == () for half in made.halves.values())


@within(cluster)
async def test_time_after_a_workers_answer_is_no_part_of_the_window(made):
    await made.handle(names.OPEN, "w")
    answered: list[str] = []

    async def asked(action: str, address: str) -> None:
        answered.append(address)
        if len(answered) == 2:  # while the second is asked, the first one tells more
            first = answered[0]
            made.meter.accounts.take_answer(first, made.halves[first].answer("snapshot", ""), time.monotonic_ns())

    made.asked = asked
    reply = unpacked(await made.handle(names.CLOSE, "w"))
    assert (reply["not_measured"], reply["notes"]) == ({}, ())
    assert all(set(row) <= {"idle", "no-work"} for row in time_of_workers(reply).values())


@pytest.mark.parametrize("answer", ["garbage", {}, {"snapshot": 1}, {"snapshot": {}, "window": {"schema": 2}}, None])
@within(cluster)
async def test_a_hostile_answer_is_refused_and_that_worker_counts_as_last_heard_of(made, *, answer):
    await made.handle(names.OPEN, "w")
    first, _ = made.halves.values()
    first.answer = lambda *_: answer
    reply = unpacked(await made.handle(names.CLOSE, "w"))
    assert reply["not_measured"].keys() == {"worker-1"}
    assert time_of_workers(reply).keys() == {"worker-1", "worker-2"}
    assert made.meter.guard.off is None


@pytest.mark.parametrize(
    "message", ["garbage", {"windows": "garbage"}, {"windows": {"x": 1}}, {"windows": {"w": {}}, "snapshot": "garbage"}]
)
@within(cluster)
async def test_a_hostile_final_snapshot_does_not_switch_the_meter_off(made, *, message):
    await made.handle(names.OPEN, "w")
    if isinstance(message, dict):
        message = {"session": made.meter.session, "worker": next(iter(made.halves)), **message}
    made.plugin.log_event(names.FINAL_SNAPSHOT, message)
    assert unpacked(await made.handle(names.CLOSE, "w"))["not_measured"] == {}
    assert made.meter.guard.off is None


@within(cluster)
async def test_only_a_straggler_that_waits_is_asked_for_its_line(made, *, monkeypatch):
    monkeypatch.setattr(open_windows, "LOOKING_SECONDS", 0.0)
    slow = SlowWorker("worker-1", "host", Cause.SLEEP, 2.0, 0.9, 0.0, 2.0)
    others = (replace(slow, worker="worker-2", cause=Cause.SLOW_CPU), replace(slow, worker="gone", cause=Cause.LOCK))
    stack = (Frame("load", "/home/me/etl.py", 20),)
    asked: list[tuple[str, str]] = []

    async def ask(action: str, address: str) -> None:
        asked.append((action, made.halves[address].ws.name))

    made.asked = ask
    for half in made.halves.values():
        half.profile = {SampleRow("thread-noncpu", "sleep", "load", stack): 9}
    watch = type(made.meter.accounts.stragglers)
    monkeypatch.setattr(watch, "findings", property(lambda self: (slow, *others)))
    found = [SlowWorker.from_dict(one) for one in (await made.handle(names.STRAGGLERS, ""))["stragglers"]]
    assert [one.line for one in found] == ["etl.py:20", "", ""]
    assert asked == [(names.OPEN, "worker-1"), (names.CLOSE, "worker-1")]
    monkeypatch.setattr(watch, "findings", property(lambda self: others))
    await made.handle(names.STRAGGLERS, "")
    assert len(asked) == 2


@within(cluster)
async def test_the_reason_is_given_for_a_window_that_is_gone(made):
    await made.handle(names.OPEN, "mine")
    # As upstream calls it when a connection is lost; the client comes back under the same name.
    made.plugin.remove_client(made.scheduler, "me")
    with pytest.raises(RuntimeError, match="its client lost its connection to the scheduler meanwhile"):
        await made.handle(names.CLOSE, "mine")
    for number in range(MAX_WINDOWS + 1):
        await made.handle(names.OPEN, f"w{number}")
    with pytest.raises(RuntimeError, match="64 others were opened after it"):
        await made.handle(names.CLOSE, "w0")
    with pytest.raises(RuntimeError, match="the scheduler, or the plugin on it, was started after it opened"):
        await made.handle(names.CLOSE, "from before")
    await made.handle(names.CLOSE, "w1")
    with pytest.raises(RuntimeError, match="it was closed already"):
        await made.handle(names.CLOSE, "w1")


@within(cluster)
async def test_of_many_windows_that_are_opened_at_once_few_are_at_a_time(made):
    """Workers are asked for a few, so that the scheduler's event loop turns in between; each is exact, or dropped."""
    asked = most = 0

    async def answers(action: str, address: str) -> None:
        nonlocal asked, most
        asked += 1
        most = max(most, asked)
        for _ in range(3):
            await asyncio.sleep(0)
        asked -= 1

    made.asked = answers
    names_of = [f"w{i}" for i in range(3 * MAX_WINDOWS)]
    await asyncio.gather(*[made.handle(names.OPEN, window) for window in names_of])
    kept = names_of[-MAX_WINDOWS:]
    assert list(made.meter.windows) == kept
    while any(half.ledger.windows != tuple(kept) for half in made.halves.values()):  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert most <= 2 * 2 * open_windows.AT_ONCE  # two workers; some windows are opened, and others dropped
    made.asked = None
    replies = [
        unpacked(reply) for reply in await asyncio.gather(*[made.handle(names.CLOSE, window) for window in kept])
    ]
    for window, reply in zip(kept, replies, strict=True):
        expected = {half.ws.name: half.closed[window] for half in made.halves.values()}
        assert {name: sum(row.values()) for name, row in time_of_workers(reply).items()} == expected
    assert all(half.ledger.windows == () for half in made.halves.values())


@within(cluster)
async def test_a_window_is_opened_once_and_closed_once_at_a_time(made):
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def answers(action: str, address: str) -> None:
        begun.set()
        await go_on.wait()

    for action, error in ((names.OPEN, "expected one that is not open yet"), (names.CLOSE, "is being closed already")):
        made.asked = answers
        begun.clear()
        go_on.clear()
        first = asyncio.create_task(made.handle(action, "w"))
        await begun.wait()
        with pytest.raises((ValueError, RuntimeError), match=error):
            await made.handle(action, "w")
        go_on.set()
        reply = await first
    assert unpacked(reply)["not_measured"] == {}
    await made.check_window("w2")
