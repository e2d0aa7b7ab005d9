from __future__ import annotations

from dask_efficiency.accounts.details import WindowDetails
from dask_efficiency.accounts.profile import Frame, Hold, Holder, Place
from dask_efficiency.plugin.worker.sample_windows import MAX_HOLDS, MAX_WINDOWS, SampleWindows

STACK = (Frame("f", "x.py", 1),)
ROW = Place("thread-noncpu", "gil", "inc", STACK)


def test_a_window_has_what_was_added_while_it_was_open():
    windows = SampleWindows()
    assert not windows
    windows.add((ROW, 1))
    windows.open("a")
    windows.add((ROW, 2))
    windows.open("b")
    windows.add((ROW, 3))
    windows.add((Holder("inc", "sum", STACK), 4))
    windows.hold(Hold(20, "sum", STACK))
    windows.loop_block(Hold(30, "(event loop)", STACK))
    first = windows.close("a")
    assert first is not None
    assert first.profile == {ROW: 5}
    assert windows.close("b") == WindowDetails(
        profile={ROW: 3},
        holders={Holder("inc", "sum", STACK): 4},
        gil_holds=(Hold(20, "sum", STACK),),
        loop_blocks=(Hold(30, "(event loop)", STACK),),
    )
    assert windows.close("b") is None


def test_the_longest_holds_are_kept_and_the_newest_windows():
    windows = SampleWindows()
    for i in range(MAX_WINDOWS + 1):
        windows.open(str(i))
    assert windows.close("0") is None
    for i in range(MAX_HOLDS + 5):
        windows.hold(Hold(i, "sum", STACK))
    kept = windows.close("1")
    assert kept is not None
    assert min(hold.ns for hold in kept.gil_holds) == 5
