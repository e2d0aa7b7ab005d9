from __future__ import annotations

import threading
from itertools import accumulate, count
from types import SimpleNamespace
from typing import Any

import dask
import pytest
from dask.sizeof import sizeof
from distributed.spill import SpillBuffer
from hypothesis import given
from hypothesis import strategies as st
from zict import Buffer

from dask_efficiency.plugin.worker import spill_watch
from dask_efficiency.plugin.worker.spill_watch import MAX_KEPT_BACK, KeptBack, SpillWatch, spill_noter

ITEM = bytes(600)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading of the clock is one nanosecond later."""
    monkeypatch.setattr(spill_watch, "monotonic_ns", count(1).__next__)


class NotPickled:
    """Larger than the memory, and it cannot go to the disk."""

    def __sizeof__(self) -> int:
        return 5_000

    def __reduce__(self) -> str:
        raise ValueError("not me")


class Weighty:
    """Takes up more than half of the memory, and can be referred to weakly."""

    def __sizeof__(self) -> int:
        return 700


class Watched:
    """Times and stretches that a watch of some data notes."""

    def __init__(self, data: Any) -> None:
        self.data = data
        self.times: list[tuple[int, int, bool]] = []
        self.stretches: list[tuple[int, int, bool]] = []
        self.watch = SpillWatch(data, lambda *row: self.times.append(row))
        self.watch.on_stretch = lambda *row: self.stretches.append(row)
        self.watch.start()

    def moved(self) -> dict[str, tuple[int, int]]:
        """Bytes and number by way."""
        found = {(label, unit): value for (_, _, _, label, unit), value in self.watch.moved().items()}
        return {label: (found[label, "bytes"], found[label, "count"]) for label, _ in found}


@pytest.fixture
def data(tmp_path) -> SpillBuffer:
    """Dask's buffer, with room for one item, which it has."""
    data = SpillBuffer(str(tmp_path / "spilled"), target=1_000)
    data["a"] = ITEM
    return data


@pytest.mark.usefixtures("clock")
def test_spilling_is_noted_when_a_result_pushes_another_out_and_when_the_memory_manager_asks(data):
    watched = Watched(data)
    assert data["a"] == ITEM  # in memory
    assert (watched.times, watched.stretches) == ([], [])
    data["b"] = ITEM
    assert watched.times == watched.stretches == [(1, 2, False)]
    assert "a" in data.slow
    del data["a"]
    assert data.evict() > 0
    assert [asked for _, _, asked in watched.times] == [False, True]
    assert "b" in data.slow
    assert watched.moved() == {"spilled-uncompressed": (2 * sizeof(ITEM), 2)}


@pytest.mark.usefixtures("clock")
def test_reading_back_may_push_others_out_in_a_stretch_of_its_own(data):
    data["b"] = ITEM
    watched = Watched(data)
    assert data["a"] == ITEM
    (time,) = watched.times
    assert [reading for _, _, reading in watched.stretches] == [True, False, True]
    ends = [time[0], *(stop for _, stop, _ in watched.stretches)]
    assert [start for start, _, _ in watched.stretches] == ends[:-1]
    assert ends[-1] == time[1]
    assert "b" in data.slow
    ways = ("read-back-uncompressed", "spilled-uncompressed")
    assert watched.moved() == dict.fromkeys(ways, (sizeof(ITEM), 1))


def test_results_are_counted_by_their_size_in_memory_when_they_go_to_disk_or_come_from_it(tmp_path):
    with dask.config.set({"distributed.worker.memory.spill-compression": "zlib"}):
        data = SpillBuffer(str(tmp_path / "spilled"), target=1_000)
    watched, upstream = Watched(data), data.cumulative_metrics
    large, still_used = bytes(50_000), Weighty()
    data["large"] = large  # beyond all the memory: to the disk at once, and it stays there
    data["used"] = still_used
    data["b"] = ITEM
    assert upstream["disk-write", "bytes"] < sizeof(large)
    assert data["large"] == large
    assert data["used"] is still_used  # in memory all the time
    moved = watched.moved()
    assert moved["spilled-uncompressed"][1] == upstream["disk-write", "count"] == 3
    assert moved["spilled-uncompressed"][0] == sizeof(large) + sizeof(still_used) + sizeof(ITEM)
    assert moved["read-back-uncompressed"] == (sizeof(large), upstream["disk-read", "count"])


@pytest.mark.usefixtures("clock")
def test_a_store_that_fails_fails_as_ever_and_is_noted(data):
    watched = Watched(data)
    del data["a"]
    with pytest.raises(TypeError):
        data["a"] = NotPickled()
    assert len(watched.times) == 1
    assert watched.moved() == {}
    data["b"] = ITEM
    data["c"] = ITEM
    assert len(watched.times) == 2


@pytest.mark.usefixtures("clock")
def test_another_thread_does_not_block_the_event_loop(data):
    watched = Watched(data)
    thread = threading.Thread(target=data.evict)
    thread.start()
    thread.join()
    assert "a" in data.slow
    assert watched.times == []


def test_a_stopped_watch_leaves_the_data_as_it_was(data):
    before, callbacks = dict(vars(data)), list(data.fast.on_evict)
    watched = Watched(data)
    assert data.fast.on_evict != callbacks
    watched.watch.stop()
    watched.watch.stop()
    assert dict(vars(data)) == before
    assert data.fast.on_evict == callbacks
    assert not watched.watch.watching


@pytest.mark.parametrize(
    "data", [{}, SimpleNamespace(evict=None), None, object()], ids=["dict", "no evict", "none", "object"]
)
def test_other_data_is_left_alone(data):
    before = dict(getattr(data, "__dict__", {}))
    watched = Watched(data)
    assert not watched.watch.watching
    watched.watch.stop()
    assert dict(getattr(data, "__dict__", {})) == before


def test_buffers_within_the_data_are_watched_as_those_of_dask_cuda():
    disk: dict[str, Any] = {}
    host = Buffer({}, disk, n=1)
    device = Buffer({}, host, n=1)
    watched = Watched(SimpleNamespace(host_buffer=host, device_buffer=device))
    for key in "abc":
        device[key] = key
    assert disk == {"a": "a"}
    assert len(watched.times) == 2  # the second pushes one to the host, and that another to the disk
    assert device["a"] == "a"  # from the disk, by way of the host, and one more each way for it
    ways = {"device-to-host": (3, 3), "host-to-device": (1, 1), "spilled-uncompressed": (2, 2)}
    assert watched.moved() == ways | {"read-back-uncompressed": (1, 1)}


@given(
    gaps=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12),
    start=st.integers(-2, 80),
    length=st.integers(-2, 80),
)
def test_time_between_two_instants_is_that_of_the_overlaps(gaps, start, length):
    watch = SpillWatch({}, lambda *row: None)
    instants = list(accumulate(step for pair in gaps for step in pair))
    times = list(zip(instants[::2], instants[1::2], strict=True))
    for first, last in times:
        watch._note(first, last)
    stop = start + length
    assert watch.between(start, stop) == sum(max(0, min(last, stop) - max(first, start)) for first, last in times)


def test_times_are_bounded_and_forgotten_ones_do_not_count(monkeypatch):
    monkeypatch.setattr(spill_watch, "MAX_TIMES", 10)
    watch = SpillWatch({}, lambda *row: None)
    for i in range(100):
        watch._note(10 * i, 10 * i + 5)
    assert watch.between(990, 1_000) == 5
    assert watch.between(900, 1_000) <= 50
    assert watch.between(-1, 1_000) <= 50
    assert watch.last == 995


def test_accounts_are_kept_back_after_spilling_while_slots_may_wait_a_few_times_at_most():
    kept_back = KeptBack()
    spills = ((0, False), (20, True), (20, True), (30, False))
    assert [kept_back.is_due(last, undecided=undecided) for last, undecided in spills] == [False, True, False, False]
    kept = [kept_back.is_due(100 * i, undecided=True) for i in range(1, 2 * MAX_KEPT_BACK + 1)]
    assert kept == [True] * 3 + [False] + [True] * 2


def test_calls_to_the_disk_are_sorted_in_where_a_later_entry_is_there_already_and_only_then(monkeypatch):
    sorts = []
    in_order = spill_watch.in_order
    monkeypatch.setattr(spill_watch, "in_order", lambda log: sorts.append(len(log)) or in_order(log))
    log: list[Any] = []
    worker = SimpleNamespace(state=SimpleNamespace(ready=(), waiting=()))
    note = spill_noter(log, worker, SimpleNamespace(waiting=lambda: 0), pytest.fail)  # type: ignore[arg-type]
    for i in range(1_000):  # as when one large result pushes out many small ones, between two hooks
        note(10 * i, 10 * i + 9, False)
    assert (len(log), sorts) == (1_000, [])
    note(5, 8, False)
    assert sorts == [1_001]
    assert [entry[0] for entry in log[:3]] == [0, 5, 10]
