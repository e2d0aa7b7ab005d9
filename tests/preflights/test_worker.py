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
