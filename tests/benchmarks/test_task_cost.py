from __future__ import annotations

import pytest

from benchmarks.one_process import SlowLoop
from benchmarks.task_cost import _by_function

WRITTEN = """desc: I1 cache: none
cmd: python
events: Ir
fl=ceval.c
fn=_PyEval_EvalFrameDefault
4769 100
4770 20
fl=obmalloc.c
fn=_PyObject_Malloc
10 7
fn=_PyEval_EvalFrameDefault
1 3
summary: 130
"""


def test_instructions_are_summed_by_function():
    assert _by_function(WRITTEN) == {"_PyEval_EvalFrameDefault": 123, "_PyObject_Malloc": 7}


def test_lines_that_do_not_make_the_sum_are_refused():
    with pytest.raises(AssertionError):
        _by_function(WRITTEN.replace("summary: 130", "summary: 131"))


def test_timers_of_a_slow_loop_come_in_their_order_and_by_its_clock():
    loop = SlowLoop(20.0)
    seen: list[tuple[str, float]] = []
    try:
        began = loop.time()
        for name, delay in (("late", 0.01), ("early", 0.005)):
            loop.call_later(delay, lambda name=name: seen.append((name, loop.time() - began)))
        loop.call_later(0.011, loop.stop)
        loop.run_forever()
    finally:
        loop.close()
    assert [name for name, _ in seen] == ["early", "late"]
    # By the loop's clock no timer is early; by the system's they are twenty times as late.
    assert all(at >= due - 1e-3 for (_, at), due in zip(seen, (0.005, 0.01), strict=True))
