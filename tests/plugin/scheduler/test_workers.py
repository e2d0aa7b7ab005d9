from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from distributed._async_taskgroup import AsyncTaskGroup

from dask_efficiency.plugin import names, options
from dask_efficiency.plugin.scheduler.workers import APART_SECONDS, WorkerHalves
from tests.plugin.watch import travelled

HOUR = 3600


class FakeScheduler:
    """Three workers: one answers, one raises, one is silent."""

    def __init__(self) -> None:
        self.workers: dict[str, None] = dict.fromkeys(["good", "bad", "silent"])
        self.worker_plugins: dict[str, bytes] = {}
        self.messages: list[dict[str, Any]] = []

    async def broadcast(self, *, msg: dict[str, Any], workers: list[str], on_error: str) -> dict[str, Any]:
        (address,) = workers
        self.messages.append(msg)
        if address == "silent":
            await asyncio.Event().wait()
        if address == "bad":
            raise KeyError("broken")
        return travelled({address: {"heard": msg["action"]}})


@pytest.fixture
def meter() -> Any:
    return SimpleNamespace(scheduler=FakeScheduler(), session="session", windows={}, options=None)


@pytest.fixture
def scheduler(meter: Any) -> FakeScheduler:
    found: FakeScheduler = meter.scheduler
    return found


@pytest.fixture
def halves(meter: Any) -> WorkerHalves:
    return waiting(meter, 0.05)


def waiting(meter: Any, seconds: float) -> WorkerHalves:
    """Halves of a meter whose reports wait for so long."""
    meter.options = options.resolve({"report_timeout": seconds, "max_prefixes": 7, "gpu": "off"})
    return WorkerHalves(meter)


def test_every_worker_has_its_answer_or_the_error(halves):
    answers = asyncio.run(halves.ask(names.SNAPSHOT))
    assert answers["good"][0] == {"heard": names.SNAPSHOT}
    assert isinstance(answers["bad"][0], KeyError)
    assert str(answers["silent"][0]) == "no answer in 0.05 s"


def test_a_worker_that_left_before_it_was_asked_is_not_waited_for(meter, scheduler):
    async def check() -> None:
        asked = asyncio.create_task(waiting(meter, HOUR).take(names.OPEN, "w", take))
        await asyncio.sleep(0)  # the questions are made, and none is sent
        del scheduler.workers["silent"]
        await asked

    taken: dict[str, Any] = {}

    def take(address: str, answer: Any, at: int) -> None:
        taken[address] = answer

    asyncio.run(check())
    assert str(taken["silent"]) == "it vanished"


def test_each_answer_is_taken_as_it_comes(meter):
    async def check() -> None:
        taken: dict[str, Any] = {}
        two = asyncio.Event()

        def take(address: str, answer: Any, at: int) -> None:
            taken[address] = answer
            if len(taken) == 2:
                two.set()

        asked = asyncio.create_task(waiting(meter, HOUR).take(names.OPEN, "w", take))
        await two.wait()  # nobody waits for the one that is silent
        assert taken["good"] == {"heard": names.OPEN}
        assert isinstance(taken["bad"], KeyError)
        asked.cancel()

    asyncio.run(check())


def test_answers_that_come_at_once_are_taken_one_in_a_turn_of_the_event_loop(meter):
    meter.scheduler.workers = {f"worker-{i}": None for i in range(50)}
    turns, taken = 0, []

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def check() -> None:
        others = asyncio.create_task(turn())
        await waiting(meter, HOUR).take(names.CLOSE, "w", lambda address, answer, at: taken.append(turns))
        others.cancel()

    asyncio.run(check())
    assert len(taken) == len(set(taken)) == 50


def test_a_failure_to_take_an_answer_is_raised_as_it_is(halves):
    def take(address: str, answer: Any, at: int) -> None:
        raise ValueError(f"injected for {address}")

    with pytest.raises(ValueError, match="injected for"):
        asyncio.run(halves.take(names.OPEN, "w", take))


def test_workers_are_asked_to_answer_one_after_the_other(meter, scheduler):
    del scheduler.workers["silent"]
    asyncio.run(waiting(meter, HOUR).take(names.CLOSE, "w", lambda *_: None))
    assert [message.get("delay", 0.0) for message in scheduler.messages] == [0.0, APART_SECONDS[names.CLOSE]]


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock goes on by what it would have waited, and by :meth:`skip`, and not else."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__()
        select = self._selector.select  # type: ignore[attr-defined]

        def skipping(timeout: float | None) -> Any:
            self.skip(timeout or 0.0)
            return select(0)

        self._selector.select = skipping  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._now

    def skip(self, seconds: float) -> None:
        self._now += seconds


def in_skipped_time(check: Callable[[SkippingLoop], Awaitable[None]]) -> None:
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        runner.run(check(runner.get_loop()))  # type: ignore[arg-type]


@pytest.fixture
def patient(meter: Any) -> WorkerHalves:
    return waiting(meter, 5)


def test_no_worker_times_out_while_the_answers_of_others_are_taken(patient, scheduler, monkeypatch):
    scheduler.workers = {f"worker-{i}": None for i in range(10)} | {"silent": None}

    async def broadcast(*, msg: dict[str, Any], workers: list[str], on_error: str) -> dict[str, Any]:
        if workers == ["silent"]:
            await asyncio.Event().wait()
        await asyncio.sleep(float(workers[0][-1]))
        return travelled({workers[0]: "here"})

    async def check(loop: SkippingLoop) -> None:
        answers = {address: str(answer) for address, (answer, _) in (await patient.ask(names.SNAPSHOT)).items()}
        assert answers.pop("silent") == "no answer in 5 s"
        assert set(answers.values()) == {"here"}
        assert loop.time() == pytest.approx(9 + 5)

    monkeypatch.setattr(scheduler, "broadcast", broadcast)
    in_skipped_time(check)


def test_answers_that_came_while_the_scheduler_was_blocked_are_read_before_a_timeout(patient, scheduler, monkeypatch):
    async def broadcast(*, msg: dict[str, Any], workers: list[str], on_error: str) -> dict[str, Any]:
        for _ in range(10):  # a message is read in some steps
            await asyncio.sleep(0)
        return travelled({workers[0]: "here"})

    async def check(loop: SkippingLoop) -> None:
        loop.call_soon(loop.skip, 60.0)
        assert {str(answer) for answer, _ in (await patient.ask(names.SNAPSHOT)).values()} == {"here"}
        assert loop.time() >= 60

    monkeypatch.setattr(scheduler, "broadcast", broadcast)
    in_skipped_time(check)


def test_the_answer_of_a_worker_that_vanished_is_not_waited_for(patient, scheduler):
    async def check(loop: SkippingLoop) -> None:
        began = loop.time()
        asked = asyncio.create_task(patient.ask(names.CLOSE, "w"))
        for _ in scheduler.workers:  # each is asked in a turn of its own, at the latest
            await asyncio.sleep(0)
        patient.vanished("silent")
        answers = await asked
        assert str(answers["silent"][0]) == "it vanished"
        assert answers["good"][0] == {"heard": names.CLOSE}
        assert loop.time() == began  # by the loop's own clock: nothing was waited for
        patient.vanished("good")

    in_skipped_time(check)


@pytest.mark.parametrize("metered", [False, True])
def test_a_worker_that_was_too_busy_is_sent_its_half_until_it_is_metered(patient, scheduler, monkeypatch, metered):
    sent: list[str] = []

    async def broadcast(*, msg: dict[str, Any], workers: list[str], on_error: str) -> dict[str, Any]:
        sent.extend(workers)
        if workers == ["silent"] and sent.count("silent") < 3:
            await asyncio.Event().wait()
        return travelled({workers[0]: "OK"})

    async def check(loop: SkippingLoop) -> None:
        scheduler._ongoing_background_tasks = AsyncTaskGroup()
        await patient.send()
        scheduler.workers["silent"].metrics |= {names.METRIC: {}} if metered else {}
        await asyncio.sleep(100)
        assert sent == ["good", *["silent"] * (1 if metered else 3)]

    scheduler.workers = {name: SimpleNamespace(metrics={}) for name in ("good", "silent")}
    monkeypatch.setattr(scheduler, "broadcast", broadcast)
    in_skipped_time(check)


def test_some_workers_can_be_asked_about_a_window(halves, scheduler):
    assert asyncio.run(halves.ask(names.OPEN, "w", addresses=["good"])).keys() == {"good"}
    assert scheduler.messages == [{"op": names.OP, "action": names.OPEN, "window": "w"}]


def test_a_scheduler_that_cannot_broadcast_costs_the_answers_only(halves, scheduler, monkeypatch):
    async def fail(**kwargs: Any) -> dict[str, Any]:
        raise OSError("injected")

    monkeypatch.setattr(scheduler, "broadcast", fail)
    answers = asyncio.run(halves.ask(names.SNAPSHOT))
    assert {str(answer) for answer, _ in answers.values()} == {"injected"}


def test_a_worker_that_joins_is_sent_the_present_state_until_the_registration_ends(halves, scheduler, meter):
    meter.windows["w"] = SimpleNamespace()
    halves.recording = "r"
    halves.update()
    half = pickle.loads(scheduler.worker_plugins[names.WORKER_PLUGIN])
    assert (half.session, half.max_prefixes, half.gpu) == ("session", 7, "off")
    assert (half.windows, half.recording) == (["w"], "r")
    halves.forget()
    assert halves.removed
    assert scheduler.worker_plugins == {}


def test_workers_that_did_not_answer_are_not_waited_for_at_the_end(halves, scheduler, meter, monkeypatch):
    monkeypatch.setattr("dask_efficiency.plugin.scheduler.workers.FAREWELL_SECONDS", 0.05)
    asyncio.run(halves.ask(names.SNAPSHOT))
    meter.options = options.resolve({"report_timeout": HOUR})
    asyncio.run(asyncio.wait_for(halves.remove(), 60))
    assert len(scheduler.messages) == 2 * len(scheduler.workers)
