from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.accounts.cluster.time_left import TimeLeft
from dask_efficiency.report import run_progress
from dask_efficiency.report.run_progress import left_text, tell_now_and_then


@pytest.mark.parametrize(
    ("left", "text"),
    [
        ((240, 185, 355), "about 4 min left, 3 to 6"),
        ((0.3, 0, 0.9), "about 0 s left, 0 to 1"),
        ((89, 70, 120), "about 89 s left, 70 to 120"),
        ((91, 70, 130), "about 2 min left, 1 to 3"),
        ((2 * 3600, 1.55 * 3600, 3.01 * 3600), "about 2.0 h left, 1.5 to 3.1"),
        ((50 * 3600, 40.2 * 3600, 70.9 * 3600), "about 50 h left, 40 to 71"),
    ],
)
def test_the_interval_is_rounded_outwards_in_the_unit_of_the_estimate(
    left: tuple[float, float, float], text: str
) -> None:
    assert left_text(TimeLeft(*left)) == text


def test_schedulers_are_asked_until_the_end_and_one_that_cannot_say_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended, told, asked = threading.Event(), list[str](), list[Any]()
    answers: dict[str, Any] = {"gone": {}, "growing": {"left": None}, "known": {"left": [4.0, 3.0, 6.0]}}

    async def ask(client: Any, action: str) -> Any:
        asked.append((client.name, action))
        return answers[client.name]

    def write(text: str) -> None:
        told.append(text)
        if len(told) == 2:
            ended.set()

    monkeypatch.setattr("dask_efficiency.plugin.client.ask", ask)
    monkeypatch.setattr(run_progress, "LOG_TIMING", (0.0, 0.0))
    loop = asyncio.new_event_loop()
    running = threading.Thread(target=loop.run_forever)
    running.start()
    clients: Any = [SimpleNamespace(name=name, loop=SimpleNamespace(asyncio_loop=loop)) for name in answers]
    try:
        tell_now_and_then(lambda: clients, ended.is_set, write)
        assert ended.wait(100)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        running.join()
        loop.close()
    assert told == ["about 4 s left, 3 to 6"] * 2
    assert asked[:3] == [(name, "left") for name in answers]


def test_who_does_not_answer_in_time_is_asked_no_more_and_nothing_is_written_after_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended, cancelled, told = threading.Event(), threading.Event(), list[str]()

    async def ask(client: Any, action: str) -> Any:
        if client.name == "busy":
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
        ended.set()  # while the answer is on its way
        return {"left": [4.0, 3.0, 6.0]}

    monkeypatch.setattr("dask_efficiency.plugin.client.ask", ask)
    monkeypatch.setattr(run_progress, "LOG_TIMING", (0.0, 0.0))
    monkeypatch.setattr(run_progress, "ANSWER_SECONDS", 0.1)
    before = set(threading.enumerate())
    loop = asyncio.new_event_loop()
    running = threading.Thread(target=loop.run_forever)
    running.start()
    clients: Any = [
        SimpleNamespace(name="odd"),
        *(SimpleNamespace(name=name, loop=SimpleNamespace(asyncio_loop=loop)) for name in ("busy", "known")),
    ]
    try:
        tell_now_and_then(lambda: clients, ended.is_set, told.append)
        for thread in set(threading.enumerate()) - before - {running}:
            thread.join(100)
        assert ended.is_set()
        assert cancelled.wait(100)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        running.join()
        loop.close()
    assert told == []
