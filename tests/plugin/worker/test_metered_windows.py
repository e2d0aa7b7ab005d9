from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.metered import Metered
from dask_efficiency.accounts.worker.slot_windows import MAX_WINDOWS
from dask_efficiency.plugin.worker.metered_windows import MeteredWindows

IO = Metered("execute", "span", "inc", "io", "seconds")
ROWS = Metered("execute", "span", "inc", "rows", "count")
SENT = Metered("transfers", "", "", "sent", "bytes")


def test_a_window_has_what_was_counted_while_it_was_open() -> None:
    tasks, transfers = Counter({IO: 5}), Counter({SENT: 1})
    windows = MeteredWindows(lambda: tasks, lambda: transfers)
    windows.open_window("w")
    tasks.update({IO: 2, ROWS: 3})
    transfers.update({SENT: 10})
    assert windows.close_window("w") == {IO: 2, ROWS: 3, SENT: 10}
    assert windows.close_window("w") == {}


def test_of_levels_a_window_has_the_highest_that_was_sampled_in_it() -> None:
    memory = Metered("memory", "", "", "process", "bytes")
    level = {memory: 9}
    windows = MeteredWindows(dict, levels=lambda: dict(level))
    windows.sample()
    level[memory] = 2
    windows.open_window("w")
    level[memory] = 5
    windows.sample()
    level[memory] = 3
    assert windows.close_window("w") == {memory: 5}


def test_amounts_are_by_the_way_that_data_went() -> None:
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


def test_of_too_many_windows_the_oldest_goes() -> None:
    counted = Counter({IO: 1})
    windows = MeteredWindows(lambda: counted)
    for i in range(MAX_WINDOWS + 1):
        windows.open_window(str(i))
    counted[IO] += 1
    assert windows.close_window("0") == {}
    assert windows.close_window("1") == {IO: 1}


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
