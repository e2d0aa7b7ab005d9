"""Parts and wings: one that fails or is not installed costs the meter and the other parts nothing."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Self

import pytest

from dask_efficiency.plugin import parts as module
from dask_efficiency.plugin import wings
from dask_efficiency.plugin.parts import Parts, SchedulerPart
from dask_efficiency.plugin.wings import offered


class Counting(SchedulerPart):
    """Counts what it hears, and fails where it is asked to."""

    def __init__(self, meter: Any) -> None:
        self.heard: list[str] = []
        self.fails = False
        self.stopped = 0

    @classmethod
    def of(cls, meter: Any) -> Self:
        return cls(meter)

    def stop(self) -> None:
        self.stopped += 1

    def client_left(self, client: str) -> None:
        self.heard.append(client)
        if self.fails:
            raise ZeroDivisionError

    async def configured(self) -> None:
        self.client_left("configured")

    async def answer(self, action: str, asked: Any) -> dict[str, Any]:
        return {"answered": action}


class Quiet(SchedulerPart):
    """Does nothing of its own."""

    of = classmethod(lambda cls, meter: cls())  # type: ignore[assignment]


class Meter:
    """Has parts that do not keep it alive."""


METER = Meter()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Parts[SchedulerPart]:
    counting = "tests.plugin.test_parts:Counting"
    table = {
        "scheduler/first": counting,
        "scheduler/second": counting,
        "scheduler/quiet": "tests.plugin.test_parts:Quiet",
        "scheduler/missing": "dask_efficiency.nowhere.at_all:Part",
        "worker/other": counting,
    }
    monkeypatch.setattr(wings, "OFFERED", table)
    monkeypatch.setattr(module, "OFFERED", table)
    answers = {"scheduler/ask": "scheduler/second", "scheduler/gone": "scheduler/missing"}
    monkeypatch.setattr(module, "ANSWERED_BY", answers)
    parts: Parts[SchedulerPart] = Parts("scheduler", METER)
    parts.load_all()
    return parts


def test_parts_are_those_of_the_kind_that_are_installed(made: Any) -> None:
    assert [type(part).__name__ for part in made] == ["Counting", "Counting", "Quiet"]
    assert made.load("missing") is None
    assert made.answering("gone") is None
    assert made.answering("unheard of") is None


def test_a_part_that_fails_is_logged_once_stopped_and_called_no_more(
    made: Any, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, _ = made
    first.fails = True
    with caplog.at_level(logging.ERROR, "dask_efficiency"):
        for client in "abc":
            made.each("client_left", client)
        asyncio.run(made.each_in_turn("configured"))
    assert (first.heard, first.stopped) == (["a"], 1)
    assert (second.heard, second.stopped) == (["a", "b", "c", "configured"], 0)
    assert caplog.text.count("goes on without its part 'first'") == 1
    assert made.get("first") is None
    second.fails = True
    for _ in range(2):
        asyncio.run(made.each_in_turn("configured"))
    assert second.heard == ["a", "b", "c", "configured", "configured"]
    assert made.failures() == [f"the part {name!r} failed: ZeroDivisionError: " for name in ("first", "second")]
    assert not {first, second} & {*made}


def test_only_parts_that_do_something_are_called(made: Any) -> None:
    assert len(made._calls("client_left")) == 2
    assert made._calls("window_forgotten") == []


def test_an_action_is_answered_by_its_part_which_is_made_when_it_is_asked_for(made: Any) -> None:
    made.stop()
    assert list(made) == []
    part = made.answering("ask")
    assert asyncio.run(part.answer("ask", {})) == {"answered": "ask"}
    assert list(made) == [part]


def test_a_library_that_is_missing_is_no_missing_wing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wings, "OFFERED", {"scheduler/broken": "nothing_of_that_name:Part"})
    with pytest.raises(ModuleNotFoundError, match="nothing_of_that_name"):
        offered("scheduler/broken")
