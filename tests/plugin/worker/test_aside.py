"""The thread beside an event loop, with ticks that are made up."""

from __future__ import annotations

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
