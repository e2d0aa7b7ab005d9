from __future__ import annotations

from dask_efficiency.torch_traces.kineto.trace import Category
from dask_efficiency.torch_traces.path.steps import steps_of
from tests.torch_traces.path.small_traces import SmallTrace


def test_what_only_looks_like_a_step_is_none() -> None:
    small = SmallTrace()
    small.add(Category.ANNOTATION, "ProfilerStep#7", 0, 10)
    small.add(Category.ANNOTATION, "ProfilerStep#99999999999", 10, 20)
    assert steps_of(small.trace()).number.tolist() == [7]
