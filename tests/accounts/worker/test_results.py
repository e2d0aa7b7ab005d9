"""Byte-seconds of results: by hand, of a real log, and against sums over every instant."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.memory import byte_milliseconds
from dask_efficiency.accounts.rows import OTHER
from dask_efficiency.accounts.worker import results as module
from dask_efficiency.accounts.worker.log import MAX_PREFIX_LENGTH, Moved, Noted, Taken, from_plain
from dask_efficiency.accounts.worker.reservations import MAX_WINDOWS
from dask_efficiency.accounts.worker.results import WorkerResults

SCENE = Path(__file__).parents[2] / "data" / "scenes" / "one_worker.json"


class Stored(NamedTuple):
    at: int
    key: Any
    prefix: str
    span: str
    nbytes: int


class Swapped(NamedTuple):
    at: int
    key: Any
    spilled: bool


class Released(NamedTuple):
    at: int
    key: Any


Step = Stored | Swapped | Released


def follow(results: WorkerResults, *steps: Step) -> WorkerResults:
    for step in steps:
        if isinstance(step, Stored):
            results.store(*step)
        elif isinstance(step, Swapped):
            results.swap(step.at, step.key, spilled=step.spilled)
        else:
            results.release(*step)
    return results


def test_what_spilling_freed_goes_as_results_are_read_back_or_released() -> None:
    results = read(Stored(0, "x", "load", "", 100), Stored(0, "y", "load", "", 300), Stored(0, "z", "load", "", 50))
    follow(results, Swapped(1, "x", True), Swapped(1, "y", True), Swapped(1, "z", True))
    assert results.freed == 450
    results.spilling_freed(["x", "y", "unknown"], 40)  # they share memory
    assert results.freed == 10 + 30 + 50
    follow(results, Swapped(2, "y", False))
    assert results.freed == 10 + 50
    results.spilling_freed(["y"], 99)  # it is in memory
    follow(results, Released(3, "x"), Released(3, "z"))
    assert (results.freed, results.spilled) == (0, 0)


def read(*steps: Step) -> WorkerResults:
    return follow(WorkerResults(), *steps)


def test_a_result_counts_with_its_size_while_it_is_held_and_while_it_is_on_disk() -> None:
    results = read(
        Stored(10, "x", "load", "s", 100),
        Stored(20, "y", "load", "s", 7),
        Swapped(30, "x", True),
        Swapped(50, "x", False),
        Released(60, "y"),
        Released(70, "x"),
    )
    assert results.integrals(1_000) == {("s", "load"): (100 * 20 + 7 * 40 + 100 * 20, 100 * 20)}
    assert (results.held, results.spilled, len(results)) == (0, 0, 0)


def test_what_is_still_there_counts_until_now() -> None:
    results = read(Stored(10, "x", "load", "s", 100), Stored(10, "y", "inc", "", 5), Swapped(30, "y", True))
    assert results.integrals(40) == {("s", "load"): (3_000, 0), ("", "inc"): (100, 50)}
    assert results.by_prefix() == {"load": (100, 0), "inc": (0, 5)}
    assert (results.held, results.spilled) == (100, 5)


def test_a_result_too_large_for_the_memory_is_on_disk_from_its_beginning_on() -> None:
    results = read(Swapped(9, "x", True), Stored(10, "x", "load", "s", 100))
    assert results.integrals(20) == {("s", "load"): (0, 1_000)}
    assert results.take_most() == (0, 100, 100)


def test_the_most_is_since_the_last_call() -> None:
    results = read(Stored(1, "x", "load", "", 100), Swapped(2, "x", True), Stored(3, "y", "load", "", 30))
    assert results.take_most() == (100, 100, 130)
    follow(results, Released(4, "x"), Stored(5, "z", "load", "", 10))
    assert results.take_most() == (40, 100, 130)
    assert results.take_most() == (40, 0, 40)


def test_bytes_at_a_peak_are_those_before_the_next_change() -> None:
    changes = Stored(3, "y", "load", "", 1), Swapped(3, "x", True), Released(3, "x")
    for change in changes:
        results = read(Stored(1, "x", "load", "", 100))
        results.unread.append(2)
        follow(results, change)
        assert (results.at_peaks, results.unread) == ({2: {"load": (100, 0)}}, [])


def test_what_other_threads_swapped_is_followed_before_the_next_change_in_order() -> None:
    changes = Stored(60, "y", "load", "", 1), Swapped(60, "y", True), Released(60, "y")
    for change in changes:
        results = read(Stored(0, "x", "load", "", 100))
        results.unread += [5, (10, "x", True), 20, (30, "x", False), (40, "x", True)]
        follow(results, change)
        assert results.at_peaks == {5: {"load": (100, 0)}, 20: {"load": (0, 100)}}
        assert results.spilled == 100
        follow(results, Released(50, "x"))
        assert results.integrals(50)["", "load"][1] == 20 * 100 + 10 * 100


def test_names_are_cut_and_fit_to_travel_and_a_span_may_be_anything() -> None:
    results = WorkerResults()
    results.store(0, "x", "p" * 500, ["a", "list"], 1)
    results.store(0, "y", "p" * 500, ["a", "list"], 2)
    results.store(0, "z", "\ud800", None, 3)
    found = results.by_prefix()
    assert list(found.values()) == [(3, 0), (3, 0)]
    assert all(len(prefix) <= MAX_PREFIX_LENGTH and prefix.encode() for prefix in found)


def test_a_window_has_the_byte_seconds_since_its_opening() -> None:
    results = read(Stored(0, "x", "load", "s", 10))
    results.open_window("w", at=100)
    follow(results, Stored(150, "y", "sum", "s", 3), Released(160, "x"))
    assert results.close_window("w", at=200) == {("s", "load"): (600, 0), ("s", "sum"): (150, 0)}
    assert results.close_window("w", at=200) == {}
    for i in range(MAX_WINDOWS + 1):
        results.open_window(str(i), at=300)
    assert results.close_window("0", at=400) == {}
    assert results.close_window("1", at=400) == {("s", "sum"): (300, 0)}


def test_whoever_begins_anew_has_no_result_of_before() -> None:
    results = read(Stored(0, "x", "load", "", 10), Stored(0, "y", "load", "", 1), Swapped(0, "z", True))
    results.release_all(40)
    follow(results, Stored(50, "y", "load", "", 1), Stored(50, "z", "sum", "", 5))
    assert results.integrals(60) == {("", "load"): (400 + 40 + 10, 0), ("", "sum"): (50, 0)}


def test_rows_are_bounded_and_those_that_hold_nothing_go_when_a_window_opens(monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_APART", 4)
    results = read(Stored(0, "kept", "load", "", 10), Stored(0, "gone", "a", "", 1), Released(50, "gone"))
    results.open_window("w", at=100)
    for i in range(20):
        follow(results, Stored(100, f"x{i}", f"p{i}", "", 1), Released(110, f"x{i}"))
    results.open_window("another", at=150)
    found = results.close_window("w", at=200)
    assert found == {("", "load"): (1_000, 0), **{("", f"p{i}"): (10, 0) for i in range(3)}, ("", OTHER): (170, 0)}
    results.close_window("another", at=200)
    results.open_window("w", at=200)
    assert results.integrals(200) == {("", "load"): (2_000, 0)}


def test_without_a_window_prefixes_keep_their_names_however_many_there_were(monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_APART", 4)
    results = WorkerResults()
    for i in range(20):
        follow(results, Stored(i, f"x{i}", f"p{i}", "", 1), Released(i, f"x{i}"))
        results.drop_empty_rows()
    follow(results, Stored(30, "kept", "load", "", 10))
    assert results.by_prefix() == {"load": (10, 0)}


class ByInstant:
    """The same, slowly: adds up every nanosecond what is there."""

    def __init__(self) -> None:
        self.there: dict[Any, tuple[tuple[str, str], int]] = {}
        self.on_disk: set[Any] = set()
        self.sums: dict[tuple[str, str], list[int]] = {}
        self.at = 0

    def until(self, at: int) -> None:
        for key, (name, nbytes) in self.there.items():
            self.sums.setdefault(name, [0, 0])[key in self.on_disk] += nbytes * (at - self.at)
        self.at = at

    def apply(self, entry: Any) -> None:
        self.until(entry.at)
        if isinstance(entry, Stored):
            self.on_disk.discard(entry.key)
            self.there[entry.key] = (entry.span, entry.prefix), entry.nbytes
        elif isinstance(entry, Released):
            self.there.pop(entry.key, None)
            self.on_disk.discard(entry.key)
        elif entry.key in self.there:
            (self.on_disk.add if entry.spilled else self.on_disk.discard)(entry.key)

    def managed(self) -> tuple[int, int]:
        """Bytes in memory and on disk."""
        on_disk = sum(nbytes for key, (_, nbytes) in self.there.items() if key in self.on_disk)
        return sum(nbytes for _, nbytes in self.there.values()) - on_disk, on_disk


_keys = st.sampled_from("abcde")
_sizes = st.integers(0, 1 << 40)
_steps = st.one_of(
    st.builds(Stored, st.just(0), _keys, st.sampled_from(["load", "sum"]), st.sampled_from(["", "s"]), _sizes),
    st.builds(Released, st.just(0), _keys),
    st.builds(Swapped, st.just(0), _keys, st.booleans()),
)


@given(st.lists(st.tuples(st.integers(0, 1 << 45), _steps)), st.integers(0, 1 << 45))
def test_byte_seconds_are_the_sum_over_every_instant(steps, rest) -> None:
    at, results, slowly = 0, WorkerResults(), ByInstant()
    for elapsed, step in steps:
        at += elapsed
        entry = step._replace(at=at)
        if isinstance(entry, Swapped) and entry.key not in slowly.there:
            continue  # of a result that is stored next, see above
        follow(results, entry)
        slowly.apply(entry)
        assert (results.held, results.spilled) == slowly.managed()
        assert [sum(column) for column in zip(*results.by_prefix().values(), strict=True)] in (
            [],
            list(slowly.managed()),
        )
    slowly.until(at + rest)
    found = {name: row for name, row in results.integrals(at + rest).items() if any(row)}
    assert found == {name: tuple(row) for name, row in slowly.sums.items() if any(row)}


def steps_of_a_scene() -> list[Step]:
    """Results that a real worker made by its log, some of which are spilled, and their releases."""
    scene = json.loads(SCENE.read_text(encoding="utf-8"))
    found: list[Step] = []
    prefixes: dict[Any, tuple[str, str]] = {}
    chance = random.Random(0)
    for entry in from_plain(scene["log"]):
        if isinstance(entry, Taken):
            prefixes[entry.key] = entry.prefix, entry.span
        elif isinstance(entry, Moved) and entry.finish == "memory" and entry.key in prefixes:
            found.append(Stored(entry.at, entry.key, *prefixes[entry.key], max(entry.made, 0)))
            if chance.random() < 0.5:
                found.append(Swapped(entry.at + 1_000, entry.key, True))
        elif isinstance(entry, Noted) and entry.finish == "released":
            found.append(Released(entry.at, entry.key))
    return sorted(found, key=lambda step: step.at)


def test_in_a_real_workers_log_byte_seconds_add_up_to_the_integral_of_its_managed_memory() -> None:
    steps = steps_of_a_scene()
    results = WorkerResults()
    managed = at = 0
    for step in steps:
        managed += (results.held + results.spilled) * (step.at - at)
        at = step.at
        follow(results, step)
    assert results.held + results.spilled == sum(step.nbytes for step in steps if isinstance(step, Stored))
    assert sum(held + spilled for held, spilled in results.integrals(at).values()) == managed > 0


def milliseconds(values: Iterable[int]) -> list[int]:
    return list(byte_milliseconds(dict(enumerate(values))).values())


@given(st.lists(st.integers(0, 1 << 90)))
def test_byte_milliseconds_add_up_to_those_of_the_sum(exact) -> None:
    found = milliseconds(exact)
    assert sum(found) == sum(exact) // 1_000_000
    assert all(abs(one - value // 1_000_000) <= 1 for one, value in zip(found, exact, strict=True))
