"""Bytes of results in memory, by mappings of the user's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.plugin.worker import memory as module
from dask_efficiency.plugin.worker.memory import MemoryMeter
from dask_efficiency.plugin.worker.process_memory import MemoryReading, ProcessMemory


def meter_of(data: Any) -> MemoryMeter:
    state, monitor = SimpleNamespace(nbytes=10, tasks={}), SimpleNamespace(get_process_memory=lambda: 0)
    worker: Any = SimpleNamespace(address="tcp://a", data=data, state=state, monitor=monitor)
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


def spilled(
    resident: Sequence[int],
    *,
    in_loop: bool = True,
    its_thread: bool = True,
    in_use: Sequence[str] = (),
    before_the_window: bool = False,
) -> int:
    """Peak as if nothing were on disk, of a process of these sizes as a result of 100 bytes is spilled."""
    meter = meter_of(SimpleNamespace(spilled_total=(100, 0), slow=SimpleNamespace(cache=in_use)))
    sizes = iter(resident)
    meter._worker.monitor = SimpleNamespace(get_process_memory=lambda: next(sizes))  # type: ignore[assignment]
    window = module._Window(0, 0, {})
    if not before_the_window:
        meter._windows["w"] = window
    meter.results.store(0, "x", "load", "", 100)

    meter._loop = threading.get_ident() if its_thread else 0

    async def turn() -> None:
        meter.swapped("x", True)
        await asyncio.sleep(0)

    if in_loop:
        asyncio.run(turn())
    else:
        meter.swapped("x", True)
    meter.results.read()
    assert (meter.guard.off, meter.results.spilled) == (None, 100)
    meter._windows["w"] = window
    meter._heard(MemoryReading(1, 300, 900, 0))  # a peak between two looks of Dask's
    meter._looked(390)
    meter._looked(310)
    return window.unspilled


@pytest.mark.parametrize(
    ("after", "most"),
    [(400, 490), (450, 440), (500, 390), (600, 390), (300, 490)],
    ids=["all", "half", "none", "it grew", "more"],
)
def test_what_is_on_disk_counts_as_far_as_spilling_freed_memory(after: int, most: int) -> None:
    assert spilled([500, after]) == most


def test_what_was_spilled_before_a_window_counts_alike_and_what_a_task_still_uses_with_its_size() -> None:
    assert spilled([500, 450], before_the_window=True) == 440
    assert spilled([500, 500], in_use=["x"]) == 490


def test_looks_of_dask_are_heard_but_for_those_while_it_writes() -> None:
    meter = meter_of({})
    meter._windows["w"] = window = module._Window(0, 0, {})
    look = meter._telling(iter([5, 7, 9]).__next__)
    assert (look(), look()) == (5, 7)
    meter._before_writing = 1
    assert look() == 9
    assert window.unspilled == 7


def test_results_that_count_more_than_the_process_has_are_noted() -> None:
    meter = meter_of({})
    meter._windows["w"] = window = module._Window(0, 0, {})
    for resident, held in ((300, 100), (300, 450), (500, 600)):
        meter._heard(MemoryReading(resident, resident, resident, held))
    assert window.overcounted == 150


def test_a_heartbeat_has_the_peaks_of_the_last_ones_and_none_from_before_a_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PROCESS_MEMORY", SimpleNamespace(read=lambda: 0, lock=threading.Lock()))
    meter = meter_of({})
    meter._worker.state.actors = {}  # type: ignore[misc]
    meter.results.store(0, "x", "load", "", 1)
    meter.results.release(1, "x")
    sent = []
    for peak in (5, 9, 7):
        meter._heard(MemoryReading(1, 3, peak, 0))
        sent.append(meter.levels()[:2])
    assert sent == [[1, [5]], [2, [5, 9]], [3, [5, 9, 7]]]
    assert meter.results.integrals(2) == {}, "rows that hold nothing are gone"
    meter._heard(MemoryReading(1, 3, 8, 0))
    meter.open_window("w", 1)
    meter._heard(MemoryReading(1, 3, 4, 0))
    assert meter.levels()[:2] == [4, [4]]


@pytest.mark.parametrize("its_thread", [True, False])
def test_where_it_is_not_known_what_spilling_freed_all_of_it_counts(its_thread: bool) -> None:
    assert spilled([], in_loop=False, its_thread=its_thread) == 490
