"""Bytes of results in memory, by mappings of the user's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.plugin.worker import memory as module
from dask_efficiency.plugin.worker.memory import MemoryMeter
from dask_efficiency.plugin.worker.process_memory import ProcessMemory


def meter_of(data: Any) -> MemoryMeter:
    worker: Any = SimpleNamespace(address="tcp://a", data=data, state=SimpleNamespace(nbytes=10, tasks={}))
    threads: Any = SimpleNamespace()
    return MemoryMeter(worker, threads)


@pytest.mark.parametrize(("data", "held"), [({}, 10), (SimpleNamespace(spilled_total=(4, 2)), 6)])
def test_a_mapping_of_the_users_may_spill_a_plain_pair(data: Any, held: int) -> None:
    assert meter_of(data)._held() == held


def test_a_mapping_that_fails_ends_the_measurement_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = ProcessMemory()
    monkeypatch.setattr(module, "PROCESS_MEMORY", memory)
    meter, spills = meter_of(SimpleNamespace(spilled_total=3)), SimpleNamespace(on_disk={})
    meter.start(spills)  # type: ignore[arg-type]
    assert meter.guard.off is None
    memory.read()
    assert memory.read() is None
    assert meter.guard.off is not None
