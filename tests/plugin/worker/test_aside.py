"""The thread beside an event loop, with ticks that are made up."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.plugin.worker import aside as module
from dask_efficiency.plugin.worker.aside import AsideThread
from tests.plugin.watch import eventually


class Worker:
    """A worker whose loop ticks each time that somebody looks, or stands still."""

    def __init__(self, address: str = "tcp://host:1") -> None:
        self.address, self.connection_args = "tcp://host:2", {}
        self.scheduler = SimpleNamespace(address=address)
        self.periodic_callbacks = {"tick": SimpleNamespace(callback_time=0.0)}
        self.loop = SimpleNamespace(is_running=lambda: True, is_closed=lambda: self.is_closed)
        self.io_loop = SimpleNamespace(asyncio_loop=self.loop)
        self.ticks, self.ticking, self.looks, self.is_closed = 0, True, 0, False

    @property
    def _tick_counter(self) -> int:
        self.looks += 1
        self.ticks += self.ticking
        return self.ticks


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of ticks at which the scheduler was told."""
    found: list[int] = []

    async def tell(self: AsideThread, address: str, ticks: int) -> None:
        found.append(ticks)

    monkeypatch.setattr(module, "PERIOD_SECONDS", 0.001)
    monkeypatch.setattr(AsideThread, "_tell", tell)
    return found


def started(worker: Any) -> AsideThread:
    aside = AsideThread(worker, lambda asked: {})
    aside.start()
    return aside


def test_the_scheduler_is_told_only_while_the_loop_does_not_tick(told: list[int]) -> None:
    worker = Worker()
    aside = started(worker)
    eventually(lambda: worker.looks > 10)
    assert told == []
    worker.ticking = False
    eventually(lambda: len(told) > 2)
    assert {*told} == {worker.ticks}
    aside.stop()
    worker.is_closed = True


def test_it_ends_with_its_loop_and_with_its_meter(told: list[int]) -> None:
    def threads() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "dask-efficiency-aside"]

    eventually(lambda: not threads())
    worker = Worker()
    started(worker)
    assert len(threads()) == 1
    worker.is_closed = True
    eventually(lambda: not threads())
    started(Worker()).stop()
    eventually(lambda: not threads())
    assert told == []


@pytest.mark.parametrize("address", ["inproc://1/2", "ucx://host:1"])
def test_where_a_thread_may_not_connect_there_is_none(told: list[int], address: str) -> None:
    worker = Worker(address)
    started(worker)
    assert worker.looks == 0


def test_without_ticks_of_dask_there_is_none(told: list[int]) -> None:
    worker = Worker()
    worker.periodic_callbacks.clear()
    started(worker)
    assert worker.looks == 0


class Rpc:
    """A scheduler that asks; connected as it is called."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    async def __aenter__(self) -> Any:
        return SimpleNamespace(efficiency=None)

    async def __aexit__(self, *args: object) -> None:
        pass


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a scheduler is told, which asks for a prefix each time."""
    found: list[Any] = []

    async def answer(call: Any, address: str, **told: Any) -> Any:
        found.append(told["asked"])
        return {"ask": {"prefix": "wait"}}

    monkeypatch.setattr(module, "rpc", Rpc)
    monkeypatch.setattr(module.plain, "answer", answer)
    monkeypatch.setattr(module.names, "OP", "efficiency")
    return found


def test_a_look_is_for_a_question_and_is_not_sent_once_the_loop_ticks(calls: list[Any]) -> None:
    worker: Any = Worker()
    worker.ticking = False
    looks: list[Any] = []

    def look(asked: Any) -> dict[str, Any]:
        looks.append(asked)
        worker.ticking = len(looks) == 2
        return {}

    asyncio.run(AsideThread(worker, look)._tell("tcp://host:1", 0))
    assert looks == [{"prefix": "wait"}] * 2
    assert calls == [{}, {"prefix": "wait"}]


def test_looks_that_fail_are_tried_some_times(calls: list[Any]) -> None:
    worker: Any = Worker()
    worker.ticking = False

    tries: list[Any] = []

    def look(asked: Any) -> dict[str, Any]:
        tries.append(asked)
        raise RuntimeError("dictionary changed size during iteration")

    asyncio.run(AsideThread(worker, look)._tell("tcp://host:1", 0))
    assert tries == [{"prefix": "wait"}] * module.MAX_FAILURES
    assert calls == [{}]
