from __future__ import annotations

from dask_efficiency.plugins.worker.sample_windows import MAX_BLOCKS, MAX_WINDOWS, Block, SampleWindows
from dask_efficiency.profile import Frame, HolderRow, StackRow

STACK = (Frame("f", "x.py", 1),)
ROW = StackRow("thread-noncpu", "gil", "inc", STACK)
PLAIN = (("f", "x.py", 1),)


def test_a_window_has_what_was_added_while_it_was_open():
    windows = SampleWindows()
    assert not windows
    windows.add((ROW, 1))
    windows.open("a")
    windows.add((ROW, 2))
    windows.open("b")
    windows.add((ROW, 3))
    windows.add((HolderRow("inc", "sum", STACK), 4))
    windows.hold(Block(0.2, "sum", STACK))
    windows.loop_block(Block(0.3, "(event loop)", STACK))
    assert windows.close("a")["profile"] == [("thread-noncpu", "gil", "inc", PLAIN, 5)]
    assert windows.close("b") == {
        "profile": [("thread-noncpu", "gil", "inc", PLAIN, 3)],
        "holders": [("inc", PLAIN, "sum", 4)],
        "holds": [(0.2, "sum", PLAIN)],
        "loop_blocks": [(0.3, PLAIN)],
    }
    assert windows.close("b") is None


def test_the_longest_holds_are_kept_and_the_newest_windows():
    windows = SampleWindows()
    for i in range(MAX_WINDOWS + 1):
        windows.open(str(i))
    assert windows.close("0") is None
    for i in range(MAX_BLOCKS + 5):
        windows.hold(Block(i, "sum", STACK))
    assert min(seconds for seconds, _, _ in windows.close("1")["holds"]) == 5
