"""Byte-seconds of results: of entries by hand, of a real log, and against sums over every instant."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.memory import byte_milliseconds
from dask_efficiency.accounts.rows import OTHER
from dask_efficiency.accounts.worker import results as module
from dask_efficiency.accounts.worker.log import (
    Entry,
    Moved,
    Noted,
    Peaked,
    Released,
    Stored,
    Swapped,
    Taken,
    from_plain,
    in_order,
    to_plain,
)
from dask_efficiency.accounts.worker.reservations import MAX_WINDOWS
from dask_efficiency.accounts.worker.results import WorkerResults

SCENE = Path(__file__).parents[2] / "data" / "scenes" / "one_worker.json"


def read(*entries: Entry) -> WorkerResults:
    results = WorkerResults()
    results.read(entries)
    return results


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
    results.read([Released(4, "x"), Stored(5, "z", "load", "", 10)])
    assert results.take_most() == (40, 100, 130)
    assert results.take_most() == (40, 0, 40)


def test_bytes_at_a_peak_are_those_of_its_place_in_the_log() -> None:
    results = read(Stored(1, "x", "load", "", 100), Peaked(2), Released(3, "x"))
    assert results.at_peaks == {2: {"load": (100, 0)}}


def test_a_window_has_the_byte_seconds_since_its_opening() -> None:
    results = read(Stored(0, "x", "load", "s", 10))
    results.open_window("w", at=100)
    results.read([Stored(150, "y", "sum", "s", 3), Released(160, "x")])
    assert results.close_window("w", at=200) == {("s", "load"): (600, 0), ("s", "sum"): (150, 0)}
    assert results.close_window("w", at=200) == {}
    for i in range(MAX_WINDOWS + 1):
        results.open_window(str(i), at=300)
    assert results.close_window("0", at=400) == {}
    assert results.close_window("1", at=400) == {("s", "sum"): (300, 0)}


def test_whoever_begins_anew_has_these_results_and_no_others() -> None:
    results = read(Stored(0, "x", "load", "", 10), Stored(0, "y", "load", "", 1))
    results.begin_anew([Stored(50, "y", "load", "", 1), Stored(50, "z", "sum", "", 5)], {"z"}, at=40)
    assert results.integrals(60) == {("", "load"): (400 + 40 + 10, 0), ("", "sum"): (0, 50)}


def test_rows_are_bounded_and_those_that_hold_nothing_go_when_a_window_opens(monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_ROWS", 4)
    results = read(Stored(0, "kept", "load", "", 10), Stored(0, "gone", "a", "", 1), Released(50, "gone"))
    results.open_window("w", at=100)
    for i in range(20):
        results.read([Stored(100, f"x{i}", f"p{i}", "", 1), Released(110, f"x{i}")])
    results.open_window("another", at=150)
    found = results.close_window("w", at=200)
    assert found == {("", "load"): (1_000, 0), **{("", f"p{i}"): (10, 0) for i in range(3)}, ("", OTHER): (170, 0)}
    results.close_window("another", at=200)
    results.open_window("w", at=200)
    assert results.integrals(200) == {("", "load"): (2_000, 0)}


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


@given(st.lists(st.tuples(st.integers(0, 1 << 45), _steps)), st.integers(0, 1 << 45), st.randoms())
def test_byte_seconds_are_the_sum_over_every_instant_however_the_log_is_cut(steps, rest, chance) -> None:
    at, entries, slowly = 0, [], ByInstant()
    known: set[Any] = set()
    for elapsed, step in steps:
        at += elapsed
        entry = step._replace(at=at)
        if isinstance(entry, Swapped) and entry.key not in known:
            continue  # of a result that is stored next, see above
        if isinstance(entry, Released):
            known.discard(entry.key)
        elif isinstance(entry, Stored):
            known.add(entry.key)
        entries.append(entry)
    results, left = WorkerResults(), list(entries)
    while left:
        cut = chance.randint(1, len(left))
        results.read(left[:cut])
        for entry in left[:cut]:
            slowly.apply(entry)
        del left[:cut]
        assert (results.held, results.spilled) == slowly.managed()
        assert [sum(column) for column in zip(*results.by_prefix().values(), strict=True)] in (
            [],
            list(slowly.managed()),
        )
    slowly.until(at + rest)
    found = {name: row for name, row in results.integrals(at + rest).items() if any(row)}
    assert found == {name: tuple(row) for name, row in slowly.sums.items() if any(row)}


def entries_of_a_scene() -> list[Entry]:
    """The log of a real worker, with an entry for each result that it made, and releases at some instants."""
    scene = json.loads(SCENE.read_text(encoding="utf-8"))
    found: list[Entry] = []
    prefixes: dict[Any, tuple[str, str]] = {}
    chance = random.Random(0)
    for entry in from_plain(scene["log"]):
        found.append(entry)
        if isinstance(entry, Taken):
            prefixes[entry.key] = entry.prefix, entry.span
        elif isinstance(entry, Moved) and entry.finish == "memory" and entry.key in prefixes:
            found.append(Stored(entry.at, entry.key, *prefixes[entry.key], max(entry.made, 0)))
            if chance.random() < 0.5:
                found.append(Swapped(entry.at + 1_000, entry.key, True))
        elif isinstance(entry, Noted) and entry.finish == "released":
            found.append(Released(entry.at, entry.key))
    return in_order(found)


def test_in_a_real_workers_log_byte_seconds_add_up_to_the_integral_of_its_managed_memory() -> None:
    entries = entries_of_a_scene()
    assert from_plain(json.loads(json.dumps(to_plain(entries)))) == [
        entry._replace(key=str(entry.key)) if hasattr(entry, "key") else entry for entry in entries
    ]
    results = WorkerResults()
    managed = at = 0
    for entry in entries:
        managed += (results.held + results.spilled) * (entry.at - at)
        at = entry.at
        results.read([entry])
    assert results.held + results.spilled == sum(entry.nbytes for entry in entries if isinstance(entry, Stored))
    assert sum(held + spilled for held, spilled in results.integrals(at).values()) == managed > 0


def milliseconds(values: Iterable[int]) -> list[int]:
    return list(byte_milliseconds(dict(enumerate(values))).values())


@given(st.lists(st.integers(0, 1 << 90)))
def test_byte_milliseconds_add_up_to_those_of_the_sum(exact) -> None:
    found = milliseconds(exact)
    assert sum(found) == sum(exact) // 1_000_000
    assert all(abs(one - value // 1_000_000) <= 1 for one, value in zip(found, exact, strict=True))
