from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.plugin import names
from dask_efficiency.preflights import worker as module
from dask_efficiency.preflights.worker import WorkerPreflight


class StartingChild:
    """A child of which there is no process yet: killing it does nothing, and what it is to end for is seen later."""

    cpu_seconds = 0.0

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}

    async def run(self, request: Any, payload: bytes, *, seconds: float, ended: Any) -> str:
        while not ended():  # noqa: ASYNC110  # as the real one looks
            await asyncio.sleep(0)
        return "it was stopped"

    def kill(self) -> None:
        pass


STOPPED = {"failed": "the test was stopped"}


@pytest.mark.parametrize(
    ("by", "answer"), [("close", STOPPED), ("stop the test", STOPPED), ("a task that begins", {"busy": True})]
)
def test_a_child_that_is_being_started_ends_with_its_test_with_the_meter_and_for_a_task(monkeypatch, by, answer):
    monkeypatch.setattr(module, "Child", StartingChild)
    state = SimpleNamespace(nthreads=2, executing=set())
    memory = SimpleNamespace(memory_limit=None)
    worker: Any = SimpleNamespace(state=state, memory_manager=memory, local_directory="", status=None)

    async def answered() -> Any:
        preflight = WorkerPreflight(worker)
        asked = {"step": names.MEASURE, "test": "t", "seconds": 100.0, "force": False, "repetition": 0.1}
        measuring = asyncio.ensure_future(
            preflight.answer(names.PREFLIGHT, {"preflight": {**asked, "components": ["memory"]}})
        )
        while not preflight._children:  # noqa: ASYNC110  # it is waited for by nothing else
            await asyncio.sleep(0)
        if by == "close":
            preflight.stop()
        elif by == "stop the test":
            await preflight.answer(names.PREFLIGHT, {"preflight": {"step": names.STOP_TEST, "test": "t"}})
        else:
            state.executing.add("task")
        return await measuring

    assert asyncio.run(asyncio.wait_for(answered(), 60)) == answer


@pytest.mark.parametrize(
    "asked",
    [
        *(None, 7, {}, {"step": 7}, {"step": ["ready"]}, {"step": "x" * 10_000}, {"step": names.STOP_TEST}),
        {"step": names.STOP_TEST, "test": ["t"]},
        {"step": names.MEET, "from": "x" * 10_000},
        *({"step": names.GIVE, "nbytes": nbytes} for nbytes in (-1, 1 << 40, "1", None)),
        *({"step": names.PAIR, "partner": "p", "seconds": seconds} for seconds in (-1, 1e9, "1", float("nan"))),
        *({"step": names.PAIR, "partner": "p", "seconds": 1.0, "repeats": n} for n in (1 << 40, 1.5e300)),
    ],
)
def test_a_malformed_question_is_a_failure_with_a_reason_and_keeps_nothing(asked: Any) -> None:
    preflight = WorkerPreflight(SimpleNamespace(rpc=None, address=""))  # type: ignore[arg-type]
    answer = asyncio.run(preflight.answer(names.PREFLIGHT, {"preflight": asked}))
    assert answer.keys() == {"failed"}
    assert len(answer["failed"]) <= 500
    assert [*preflight._stopped, *preflight._met, *preflight._children] == []


def test_names_of_tests_and_partners_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_APART", 3)
    preflight = WorkerPreflight(SimpleNamespace())  # type: ignore[arg-type]

    async def ask() -> None:
        for i in range(9):
            for asked in ({"step": names.STOP_TEST, "test": f"t{i}"}, {"step": names.MEET, "from": f"w{i}"}):
                assert await preflight.answer(names.PREFLIGHT, {"preflight": asked}) == {}

    asyncio.run(ask())
    assert list(preflight._stopped) == ["t6", "t7", "t8"]
    assert list(preflight._met) == ["w6", "w7", "w8"]
