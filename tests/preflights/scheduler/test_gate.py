from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.plugin import names
from dask_efficiency.preflights.scheduler import gate
from dask_efficiency.preflights.scheduler.gate import Gate
from tests.preflights.simulated import SimulatedLoop, Workers


def joined(
    slow: Mapping[str, Mapping[str, float]], *, workers: int = 6, at_once: bool = False, busy: tuple[str, ...] = ()
) -> tuple[list[SlowWorker], list[tuple[str, str]]]:
    """Findings, and the pairs that were measured."""
    hosts = {f"w{i}": f"h{i}" for i in range(workers)}
    made_up, flagged, pairs = Workers(hosts, slow, Random(3)), [], []
    scheduler: Any = SimpleNamespace(workers={}, log_event=lambda *_: None)

    async def ask(address: str, step: dict[str, Any], seconds: float) -> Any:
        if step["step"] == names.PAIR:
            pairs.append((address, step["partner"]))
        return await made_up.ask(address, step, seconds)

    async def free() -> None:
        pass

    async def join() -> None:
        measured = Gate(scheduler, ask, free, lambda finding, _: flagged.append(finding))
        for name, host in hosts.items():
            alike = {"nthreads": 1, "memory_limit": 0, "resources": {}, "extra": {}, "metrics": {}}
            alike |= {"server_id": "", "nanny": None, "pid": 0}
            scheduler.workers[name] = SimpleNamespace(name=name, address=name, host=host, processing=set(), **alike)
            measured.worker_joined(name)
            if not at_once:
                await asyncio.gather(*measured._open.values())
                scheduler.workers[name].processing.update({"task"} if name in busy else ())
        await asyncio.gather(*measured._open.values())

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(join())
    return flagged, pairs


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("victim", ["w0", "w1", "w3", "w5"])
@pytest.mark.parametrize(("component", "cause"), [("disk", Cause.DISK), ("send", Cause.NETWORK)])
def test_a_slow_worker_is_flagged_whenever_it_joins_and_no_other(component, cause, victim, at_once) -> None:
    flagged, _ = joined({victim: {component: 3.0}}, at_once=at_once)
    assert [(finding.worker, finding.cause) for finding in flagged] == [(victim, cause)]


@pytest.mark.parametrize("component", ["disk", "send"])
def test_a_slow_worker_is_flagged_after_more_have_joined_than_are_remembered(component, monkeypatch) -> None:
    monkeypatch.setattr(gate, "MAX_KNOWN", 5)
    flagged, _ = joined({"w7": {component: 3.0}}, workers=8)
    assert [finding.worker for finding in flagged] == ["w7"]


def test_a_healthy_worker_that_joins_is_in_one_pair_with_a_present_worker() -> None:
    flagged, pairs = joined({})
    assert not flagged
    assert len(pairs) == 5
    assert {worker for pair in pairs for worker in pair} == {f"w{i}" for i in range(6)}


def test_a_worker_with_tasks_is_in_no_pair() -> None:
    _, pairs = joined({}, busy=("w0",))
    assert len(pairs) == 4
    assert all("w0" not in pair for pair in pairs)
