from __future__ import annotations

import logging
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.checks import MAX_NAME_LENGTH
from dask_efficiency.accounts.details import WindowDetails
from dask_efficiency.accounts.lines import Frame, HolderRow, Holdup, SampleRow
from dask_efficiency.accounts.memory import Worked
from dask_efficiency.accounts.metered import Metered
from dask_efficiency.accounts.rows import MAX_SENT as MAX_PREFIXES
from dask_efficiency.accounts.rows import OTHER
from dask_efficiency.accounts.skew import Skew, skew_by_prefix
from dask_efficiency.accounts.worker.reservations import MAX_WINDOWS
from dask_efficiency.plugin.worker.window_details import (
    MAX_BUFFERED,
    MAX_HOLDS,
    MeteredWindows,
    SampleWindows,
    SizedTask,
    SizesByWindow,
)
from tests.strategies import SECOND

MIB = 2**20
IO = Metered("execute", "span", "inc", "io", "seconds")
ROWS = Metered("execute", "span", "inc", "rows", "count")
SENT = Metered("transfers", "", "", "sent", "bytes")


def test_a_window_has_the_growth_of_totals() -> None:
    tasks, transfers = Counter({IO: 5}), Counter({SENT: 1})
    windows = MeteredWindows(lambda: tasks, lambda: transfers)
    windows.open_window("w")
    tasks.update({IO: 2, ROWS: 3})
    transfers.update({SENT: 10})
    assert windows.close_window("w") == {IO: 2, ROWS: 3, SENT: 10}
    assert windows.close_window("w") == {}


def test_amounts_are_by_the_way_of_the_data() -> None:
    counted = {
        SENT: 7,
        IO: 5,
        Metered("execute", "s", "inc", "disk-write", "bytes"): 1,
        Metered("memory-monitor", "", "", "disk-write", "bytes"): 2,
        Metered("execute", "s", "inc", "disk-write", "count"): 4,
        Metered("p2p", "s", "background-disk", "disk-write", "bytes"): 99,
        Metered("p2p", "s", "background-comms", "process", "bytes"): 8,
        Metered("p2p", "s", "background-comms", "process", "seconds"): 99,
    }
    amounts = MeteredWindows(lambda: counted).amounts()
    assert amounts == {"sent/bytes": 7, "spilled/bytes": 3, "spilled/count": 4, "shuffled/bytes": 8}


@given(st.lists(st.dictionaries(st.sampled_from([IO, ROWS, SENT]), st.integers(0, 9))))
def test_windows_that_follow_one_another_add_up_to_the_whole(gains: list[dict[Metered, int]]) -> None:
    counted: Counter[Metered] = Counter()
    windows = MeteredWindows(lambda: counted)
    windows.open_window("whole")
    added: Counter[Metered] = Counter()
    for i, gained in enumerate(gains):
        windows.open_window(str(i))
        counted.update(gained)
        added.update(windows.close_window(str(i)))
    assert windows.close_window("whole") == +added == +counted


STACK = (Frame("f", "x.py", 1),)
ROW = SampleRow("thread-noncpu", "gil", "inc", STACK)


def test_a_window_has_the_samples_that_were_added_while_it_was_open():
    windows = SampleWindows()
    assert not windows
    windows.add(("profile", ROW, 1))
    windows.open("a")
    windows.add(("profile", ROW, 2))
    windows.open("b")
    windows.add(("profile", ROW, 3))
    windows.add(("holders", HolderRow("inc", "sum", STACK), 4))
    windows.add(("lock_looks", HolderRow("inc", "max", STACK), 1))
    hold, block = Holdup(20, "sum", STACK), Holdup(30, "(event loop)", STACK)
    windows.add(("gil_holds", hold, 0))
    windows.add(("loop_blocks", block, 0))
    first = windows.close("a")
    assert first.profile == {ROW: 5}
    holders = {HolderRow("inc", "sum", STACK): 4}
    looks = {HolderRow("inc", "max", STACK): 1}
    details = WindowDetails({ROW: 3}, holders, looks, gil_holds=(hold,), loop_blocks=(block,))
    assert windows.close("b") == details
    assert windows.close("b") is None


def test_the_longest_holds_are_kept():
    windows = SampleWindows()
    windows.open("w")
    for i in range(MAX_HOLDS + 5):
        windows.add(("gil_holds", Holdup(i, "sum", STACK), 0))
    assert min(hold.ns for hold in windows.close("w").gil_holds) == 5


@pytest.fixture
def sizes() -> SizesByWindow:
    return SizesByWindow()


def task(key: Any, began: float, stopped: float, nbytes: int = -1, *, prefix: str = "join") -> SizedTask:
    """A task that succeeded, in seconds."""
    return prefix, key, round((stopped - began) * SECOND), nbytes


def skew(sizes: SizesByWindow, window: str = "w") -> dict[str, Skew]:
    return skew_by_prefix(sizes.close_window(window), {})


def counts(sizes: SizesByWindow, window: str) -> dict[str, int]:
    return {prefix: one.count for prefix, one in skew(sizes, window).items()}


def test_the_extremes_of_a_window_are_named_by_their_keys(sizes):
    sizes.open_window("w")
    sizes.add([task(("join", i), i, i + 1, 100) for i in range(9)])
    sizes.add([task(("join", 9), 9, 30, 90), task("wide", 30, 31, 500), task("other", 31, 32, 7, prefix="sum")])
    found = skew(sizes)
    assert found["join"].count == 11
    assert (found["join"].max_seconds, found["join"].longest_key) == (21.0, "('join', 9)")
    assert (found["join"].max_bytes, found["join"].largest_key) == (500.0, "wide")
    assert found["join"].median_seconds == pytest.approx(1, rel=0.01)
    assert found["sum"].count == 1


def test_tasks_of_unknown_size_are_compared_by_time_only(sizes):
    sizes.open_window("w")
    sizes.add([task("x", 0, 2), task("y", 0, 1, 7)])
    found = skew(sizes)["join"]
    assert (found.count, found.longest_key, found.largest_key, found.max_bytes) == (2, "x", "y", 7.0)
    assert found.median_bytes == pytest.approx(7, rel=0.01)


def test_windows_that_open_and_close_in_any_order_have_their_tasks(sizes):
    chance = random.Random(1)
    opened: dict[str, int] = {}
    ended: list[int] = []
    for step in range(3000):
        what = chance.random()
        if what < 0.02:
            opened[name := f"w{step}"] = len(ended)
            sizes.open_window(name)
        elif what < 0.04 and opened:
            name = chance.choice(list(opened))
            expected = ended[opened.pop(name) :]
            found = [(row.count, row.max_seconds) for row in skew(sizes, name).values()]
            assert found == ([(len(expected), max(expected) / 1000)] if expected else [])
            assert sizes.close_window(name) == {}
            assert bool(sizes.open) == bool(opened)
        elif sizes.open:
            ms = [chance.randrange(10_000) for _ in range(chance.randrange(60))]
            ended += ms
            sizes.add([task(f"k{n}", 0, n / 1000, n) for n in ms])
    assert sizes.guard.off is None


def test_a_window_that_is_opened_again_begins_anew_and_of_too_many_the_oldest_goes(sizes):
    sizes.open_window("w")
    sizes.add([task("x", 0, 1)])
    sizes.open_window("w")
    sizes.add([task("y", 2, 3)])
    assert counts(sizes, "w") == {"join": 1}
    assert not sizes.open
    counted = Counter({IO: 1})
    metered, samples = MeteredWindows(lambda: counted), SampleWindows()
    for i in range(MAX_WINDOWS + 1):
        for windows in (sizes, metered):
            windows.open_window(str(i))
        samples.open(str(i))
        sizes.add([task("x", 0, 1)] if i == 1 else [])
    assert sizes.close_window("0") == metered.close_window("0") == {}
    assert samples.close("0") is None
    assert counts(sizes, "1") == {"join": 1}
    counted[IO] += 1
    assert metered.close_window("1") == {IO: 1}
    assert samples.close("1") is not None


def test_many_tasks_are_sketched_as_they_come(sizes):
    sizes.open_window("w")
    for i in range(0, 3 * MAX_BUFFERED, 100):
        sizes.add([task(j, 0, 1 + j / 1000, j) for j in range(i, i + 100)])
    assert all(len(row.ns.values) < MAX_BUFFERED for rows in sizes._windows.values() for row in rows.values())
    found = skew(sizes)["join"]
    assert (found.count, found.largest_key) == (3 * MAX_BUFFERED, str(3 * MAX_BUFFERED - 1))
    assert found.median_bytes == pytest.approx(1.5 * MAX_BUFFERED, rel=0.02)


def test_prefixes_beyond_the_bound_share_a_row_in_one_window_and_over_several(sizes):
    sizes.open_window("a")
    sizes.add([task("x", 0, 1, prefix=f"a{i}") for i in range(MAX_PREFIXES + 5)])
    sizes.open_window("b")
    sizes.add([task("x", 0, 1, prefix=f"b{i}") for i in range(MAX_PREFIXES)])
    found = counts(sizes, "a")
    assert len(found) == MAX_PREFIXES + 1
    assert found[OTHER] == MAX_PREFIXES + 5


def test_long_keys_are_cut_and_odd_sizes_do_no_harm(sizes):
    sizes.open_window("w")
    sizes.add([task("x" * 5000, 0, 1, 1 << 90), task(("y", 1.5, b"z"), 0, 2, 10.5)])  # type: ignore[arg-type]
    found = skew(sizes)["join"]
    assert found.largest_key == "x" * MAX_NAME_LENGTH
    assert found.longest_key == "('y', 1.5, b'z')"
    assert sizes.guard.off is None


def test_after_a_failure_which_is_logged_once_nothing_is_kept_any_more(sizes, caplog):
    sizes.open_window("w")
    sizes.add([task("x", 0, 1, 10**400)])
    with caplog.at_level(logging.ERROR):
        assert sizes.close_window("w") == {}
        assert sizes.guard.off == "the sizes of tasks failed: OverflowError: int too large to convert to float"
        sizes.open_window("v")
    assert not sizes.open
    assert sizes.close_window("v") == {}
    assert len(caplog.records) == 1
    failing = SizesByWindow()
    failing.open_window("w")
    failing.add([("not", "a task")])
    assert not failing.open
    assert failing.close_window("w") == {}
    assert failing.guard.off is not None


#: Tasks of ``add_one`` of the demo, on one worker of a loaded machine: memory beyond results at the start of each, what
#: was added until its end, its result included, and whether it ran alone; MiB. Its input, 32 MiB, is in its thread
#: until after its end, and what it sends is released late.
HANDED_ON = [(543, 52, False), (548, 45, True), (548, 32, True), (548, 42, True), (548, 32, True), (548, 47, True)]
HANDED_ON += [(548, 63, True), (548, 32, True), (548, 47, True), (548, 51, True), (548, 32, True), (548, 47, True)]
HANDED_ON += [(548, 32, True), (548, 32, True), (553, 50, True), (548, 61, True), (548, 32, True), (548, 32, True)]
HANDED_ON += [(548, 39, True), (548, 32, True), (548, 43, True), (548, 35, True), (548, 32, True), (548, 53, True)]
HANDED_ON += [(548, 47, True), (548, 33, True), (548, 32, True), (548, 32, True), (548, 32, True)]


def left_by(sizes: SizesByWindow, prefix: str, worked: list[tuple[int, int, bool]], nbytes: int = 0) -> float:
    """MiB that tasks left behind in a window, each of which makes a result of so many MiB."""
    sizes.open_window("w")
    for i, (before, grown, alone) in enumerate(worked):
        sizes.add([task(f"{prefix}-{i}", i, i + 1, nbytes * MIB, prefix=prefix)])
        sizes.worked(prefix, f"{prefix}-{i}", Worked(grown * MIB, before * MIB, grown * MIB, alone), nbytes * MIB)
    return skew(sizes)[prefix].left_bytes / MIB


def test_memory_that_falls_late_is_not_left_behind(sizes):
    assert sum(grown - 32 for _, grown, alone in HANDED_ON if alone) == 223
    assert left_by(sizes, "add_one", HANDED_ON, 32) == 0.0


def test_what_each_task_leaves_adds_up_whatever_else_it_makes(sizes):
    assert left_by(sizes, "parse", [(100 + 8 * i, 8, True) for i in range(20)]) == 160.0
    # One in four leaves something, and all of them take what falls late.
    cached = [(100 + 12 * (-(-i // 4)), 12 * (i % 4 == 0) + 50, True) for i in range(40)]
    assert left_by(sizes, "job", [*cached, (220, 30, True)], 30) == 120.0
    assert left_by(sizes, "free", [(500 - 9 * i, -9, True) for i in range(20)]) == -180.0


def test_what_one_task_leaves_as_a_library_is_loaded_is_no_leak(sizes):
    pool = [(100, 200, True), *[(300, 1, True)] * 30]
    for worked in (pool, pool[:1], [(100, 0, True), *pool]):
        assert left_by(sizes, "build_model", worked) == 0.0


def test_each_window_has_what_was_left_in_it(sizes):
    sizes.open_window("outer")
    first, later = ([(8 * i, 8, True) for i in range(n, n + 10)] for n in (0, 10))
    assert left_by(sizes, "parse", first) == 80.0
    assert left_by(sizes, "parse", later) == 80.0
    assert skew(sizes, "outer")["parse"].left_bytes == 160.0 * MIB
