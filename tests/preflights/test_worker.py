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


@pytest.mark.parametrize("by", ["close", "stop the test"])
def test_a_child_that_is_being_started_ends_with_its_test_and_with_the_meter(
    monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setattr(module, "Child", StartingChild)
    state = SimpleNamespace(nthreads=2, executing=set())
    worker: Any = SimpleNamespace(
        state=state, memory_manager=SimpleNamespace(memory_limit=None), local_directory="", status=None
    )

    async def answer() -> Any:
        preflight = WorkerPreflight(worker)
        asked = {"step": names.MEASURE, "test": "t", "seconds": 100.0, "force": False, "repetition": 0.1}
        measuring = asyncio.ensure_future(
            preflight.answer(names.PREFLIGHT, {"preflight": {**asked, "components": ["memory"]}})
        )
        while not preflight._children:  # noqa: ASYNC110  # it is waited for by nothing else
            await asyncio.sleep(0)
        if by == "close":
            preflight.stop()
        else:
            await preflight.answer(names.PREFLIGHT, {"preflight": {"step": names.STOP_TEST, "test": "t"}})
        return await measuring

    assert asyncio.run(asyncio.wait_for(answer(), 60)) == {"failed": "the test was stopped"}
