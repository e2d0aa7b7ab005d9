import pytest

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
