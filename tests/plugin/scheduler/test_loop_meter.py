from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.diagnostics.plugin import SchedulerPlugin

from dask_efficiency.accounts.cluster.scheduler_loop import LoopPart, SchedulerLoop
from dask_efficiency.plugin.loop_blocks import LoopLook
from dask_efficiency.plugin.scheduler import loop_meter
from dask_efficiency.plugin.scheduler.loop_meter import LoopMeter
from tests.plugin.watch import eventually

SECOND = 1_000_000_000


class Clock:
    """Stands still unless it is set by hand."""

    now = SECOND

    def __call__(self) -> int:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(loop_meter, "clock", clock)
    monkeypatch.setattr(LoopMeter, "_watch", lambda *_: None)
    return clock


class Slow(SchedulerPlugin):
    """Takes 3 s for a transition, and 1 s for a worker that comes."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def transition(self, *args: Any, **kwargs: Any) -> None:
        self.clock.pass_by(3)

    def add_worker(self, *args: Any, **kwargs: Any) -> None:
        self.clock.pass_by(1)


class Failing(SchedulerPlugin):
    """Fails, as its author must see."""

    def transition(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("of the plugin")


class FakeScheduler:
    """As much of a scheduler as is timed."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.plugins: dict[str, SchedulerPlugin] = {"slow": Slow(clock), "idle": SchedulerPlugin()}
        self.stream_handlers = {"task-finished": self.finished, "update-graph": self.update_graph}
        self.handlers: dict[str, Any] = {"gather": self.gather, "register-worker": self.register}
        self.periodic_callbacks = {"stealing": SimpleNamespace(callback=self.balance)}

    def finished(self, key: str = "", **_: Any) -> str:
        self.clock.pass_by(1)
        for plugin in list(self.plugins.values()):
            plugin.transition(key, "processing", "memory", stimulus_id="s")
        return f"finished {key}"

    async def update_graph(self, **_: Any) -> str:
        self.clock.pass_by(2)
        await asyncio.sleep(0)
        self.clock.pass_by(5)
        return "taken in"

    async def gather(self, comm: Any, keys: list[str]) -> list[str]:
        raise KeyError(keys[0])

    async def register(self) -> None:
        pass

    def balance(self) -> None:
        self.clock.pass_by(4)


@pytest.fixture
def scheduler(clock: Clock) -> FakeScheduler:
    return FakeScheduler(clock)


@pytest.fixture
def meter(scheduler: Any) -> Iterator[LoopMeter]:
    meter = LoopMeter(scheduler, lambda: True)
    yield meter
    meter.stop()


def times(parts: tuple[LoopPart, ...]) -> dict[str, tuple[float, int]]:
    return {part.name: (part.seconds, part.calls) for part in parts}


async def started(meter: LoopMeter) -> None:
    meter.start()
    assert meter.guard.off is None


def timed(meter: LoopMeter, what: Any) -> SchedulerLoop:
    """Time of the loop after a coroutine."""

    async def run() -> SchedulerLoop:
        await started(meter)
        try:
            await what()
            return meter.between()
        finally:
            meter.stop()

    return asyncio.run(run())


def test_handlers_callbacks_and_hooks_are_timed(meter: LoopMeter, scheduler: FakeScheduler) -> None:
    async def work() -> None:
        assert scheduler.stream_handlers["task-finished"](key="x") == "finished x"
        assert await scheduler.stream_handlers["update-graph"]() == "taken in"
        scheduler.periodic_callbacks["stealing"].callback()
        scheduler.plugins["slow"].add_worker(scheduler, "w")

    found = timed(meter, work)
    assert times(found.handlers) == {"update-graph": (7.0, 2), "stealing": (4.0, 1), "task-finished": (4.0, 1)}
    assert times(found.hooks) == {"Slow.transition": (3.0, 1), "Slow.add_worker": (1.0, 1)}
    code = Slow.transition.__code__
    transition = found.hooks[0]
    assert (transition.function, transition.file, transition.line) == ("Slow.transition", __file__, code.co_firstlineno)
    assert [part.kind for part in found.handlers if part.name == "stealing"] == ["periodic callback"]


def test_plugins_are_timed_in_some_calls_and_have_their_share_of_all(meter, scheduler, clock, monkeypatch):
    monkeypatch.setattr(loop_meter, "LOOK_NS", 10 * SECOND)

    async def work() -> None:
        plain = scheduler.plugins["slow"].transition
        for _ in range(8):  # each takes 4 s: the first one is looked at, and the 5th, 12 s after that
            scheduler.stream_handlers["task-finished"]()
            assert scheduler.plugins["slow"].transition == plain

    found = timed(meter, work)
    assert times(found.handlers) == {"task-finished": (32.0, 8)}
    assert times(found.hooks) == {"Slow.transition": (24.0, 8)}
    row = next(row for part, row in meter._rows.items() if part.name == "task-finished")
    assert row.looked_ns == 8 * SECOND


def test_later_plugins_are_timed_and_removed_ones_put_back(meter: LoopMeter, scheduler: FakeScheduler) -> None:
    async def work() -> None:
        late = Slow(scheduler.clock)
        scheduler.plugins["late"] = late
        scheduler.stream_handlers["late"] = lambda: scheduler.clock.pass_by(2)
        meter.refresh()
        scheduler.stream_handlers["late"]()
        late.add_worker()
        del scheduler.plugins["late"]
        meter.refresh()
        assert set(vars(late)) == {"clock"}

    found = timed(meter, work)
    assert times(found.handlers) == {"late": (2.0, 1)}
    assert times(found.hooks) == {"Slow.add_worker": (1.0, 1)}


def test_everything_is_put_back(meter: LoopMeter, scheduler: FakeScheduler) -> None:
    def state() -> Any:
        plugins = [dict(vars(plugin)) for plugin in scheduler.plugins.values()]
        callbacks = [dict(vars(each)) for each in scheduler.periodic_callbacks.values()]
        return plugins, callbacks, dict(scheduler.stream_handlers), dict(scheduler.handlers), list(gc.callbacks)

    before = state()

    async def run() -> None:
        loop: Any = asyncio.get_running_loop()
        selector = dict(vars(loop._selector))
        await started(meter)
        assert state() != before
        assert vars(loop._selector).keys() - selector.keys() == {"select"}
        meter.stop()
        meter.stop()
        meter.refresh()
        assert vars(loop._selector).keys() == selector.keys()

    asyncio.run(run())
    assert state() == before


def test_timed_handlers_keep_their_signatures(meter: LoopMeter, scheduler: FakeScheduler) -> None:
    async def work() -> None:
        assert inspect.iscoroutinefunction(scheduler.stream_handlers["update-graph"])
        assert not inspect.iscoroutinefunction(scheduler.stream_handlers["task-finished"])
        assert next(iter(inspect.signature(scheduler.handlers["gather"]).parameters)) == "comm"
        # It lasts as long as its connection.
        assert scheduler.handlers["register-worker"] == scheduler.register

    timed(meter, work)


def test_a_handler_that_fails_or_is_cancelled_does_so_as_before_and_its_time_counts(meter, scheduler):
    scheduler.plugins["failing"] = Failing()
    scheduler.handlers["waits"] = asyncio.Event().wait

    async def work() -> None:
        with pytest.raises(RuntimeError, match="of the plugin"):
            scheduler.stream_handlers["task-finished"]()
        with pytest.raises(KeyError, match="missing"):
            await scheduler.handlers["gather"](None, keys=["missing"])
        task = asyncio.ensure_future(scheduler.handlers["waits"]())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert times(timed(meter, work).handlers)["task-finished"] == (4.0, 1)


def test_a_function_that_gives_a_coroutine_gives_one_at_each_call(meter: LoopMeter, scheduler: FakeScheduler) -> None:
    async def answer() -> int:
        return 3

    async def ask() -> list[int]:
        await started(meter)
        found = [scheduler.handlers["run_function"]() for _ in range(3)]
        assert all(map(inspect.iscoroutine, found))  # Dask takes no other awaitable
        return [await each for each in found]

    scheduler.handlers["run_function"] = lambda: answer()
    assert asyncio.run(ask()) == [3, 3, 3]


def test_the_loop_is_busy_unless_it_waits_in_select(meter: LoopMeter, clock: Clock) -> None:
    def select(timeout: float | None) -> list[Any]:
        clock.pass_by(3)
        return []

    waits = meter._timed_select(select)
    meter._knows_waits, meter._first = True, meter._first.__class__(at=clock.now, waited=0)
    clock.pass_by(1)
    waits(None)
    clock.pass_by(2)
    waits(None)
    found = meter.between()
    assert (found.seconds, found.busy_seconds) == (9.0, 3.0)
    assert found.lag_seconds == (1 + 4) / (2 * 9)


def test_garbage_collection_is_timed(meter: LoopMeter, clock: Clock) -> None:
    meter._collecting("stop", {})  # of one that began before
    meter._collecting("start", {})
    clock.pass_by(2)
    meter._collecting("stop", {})
    assert meter.between().gc_seconds == 2.0


def test_a_failure_of_its_own_switches_it_off_and_the_handler_goes_on(meter, scheduler, monkeypatch, caplog):
    plugins = {name: dict(vars(plugin)) for name, plugin in scheduler.plugins.items()}

    def has(plugin: Any, _: str) -> bool:
        if plugin is scheduler.plugins["idle"]:
            raise ZeroDivisionError("of ours")
        return True

    async def run() -> None:
        await started(meter)
        monkeypatch.setattr(loop_meter, "_has", has)  # it fails when the first plugin is timed already
        assert scheduler.stream_handlers["task-finished"](key="x") == "finished x"

    with caplog.at_level(logging.ERROR, "dask_efficiency"):
        asyncio.run(run())
    assert len(caplog.records) == 1
    assert {name: vars(plugin) for name, plugin in scheduler.plugins.items()} == plugins
    assert scheduler.stream_handlers["task-finished"] == scheduler.finished
    with pytest.raises(RuntimeError, match="of ours"):
        meter.totals()


def test_plugins_are_timed_in_all_steps_of_a_coroutine_or_none(meter, scheduler, clock):
    async def twice() -> None:
        clock.pass_by(1)
        await asyncio.sleep(0)
        for plugin in list(scheduler.plugins.values()):
            plugin.transition("x", "waiting", "processing", stimulus_id="s")

    scheduler.handlers["twice"] = twice

    async def work() -> None:
        await scheduler.handlers["twice"]()

    found = timed(meter, work)
    assert times(found.handlers) == {"twice": (4.0, 2)}
    assert times(found.hooks) == {"Slow.transition": (3.0, 1)}


def test_the_meter_stops_when_its_loop_is_closed(meter, monkeypatch):
    asyncio.run(started(meter))
    assert meter._collecting in gc.callbacks
    loop = asyncio.new_event_loop()
    loop.close()
    monkeypatch.undo()  # which keeps the meter's own thread from looking
    monkeypatch.setattr(loop_meter, "LoopBlocks", lambda *_: SimpleNamespace(close=int))
    meter._watch(loop)
    assert meter._collecting not in gc.callbacks


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_thread_that_held_the_gil_is_named_with_its_line_unless_it_waits_by_now(
    meter: LoopMeter, goes_on: bool
) -> None:
    begun, done, stop = threading.Event(), threading.Event(), list[int]()

    def parse() -> None:
        begun.set()
        while goes_on and not stop:
            sum([1, 2])
        done.wait()

    thread = threading.Thread(target=parse, name="the client", daemon=True)
    thread.start()
    begun.wait()
    try:
        look = lambda: meter._look_at(LoopLook(1, 7, 2), thread.ident)  # noqa: E731
        named = lambda: any(frame.function.endswith("parse") for frame in look().held_at)  # noqa: E731
        eventually(lambda: named() is goes_on)
        found = look()
    finally:
        stop.append(1)
        done.set()
        thread.join()
    assert (found.core, found.gil, found.holder) == (1, 7, "(thread the client)")
    assert meter._look_at(LoopLook(), 0).held_at == ()
    assert meter._look_at(LoopLook(), None).holder == ""
