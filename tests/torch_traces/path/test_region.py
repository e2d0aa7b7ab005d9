"""Which part of a trace a path explains."""

import pytest

from dask_efficiency.torch_traces.kineto.errors import UnknownAnnotationError
from dask_efficiency.torch_traces.kineto.trace import Category, RankTrace
from dask_efficiency.torch_traces.path.region import find_region, steps_of
from tests.torch_traces.path.small_traces import SmallTrace


def three_steps() -> RankTrace:
    """In the file the second step comes before the first one; the GPU spans the steps, too."""
    small = SmallTrace()
    for start in (100, 0, 200):
        small.add(Category.ANNOTATION, f"ProfilerStep#{start}", start, start + 90)
        small.operator("step of nothing", start + 10, start + 20)
        small.add(Category.GPU_ANNOTATION, f"ProfilerStep#{start}", start, start + 90, 7)
    return small.trace()


@pytest.mark.parametrize(
    ("annotation", "instance", "start", "stop", "rows"),
    [
        ("", None, 0, 290, [0, 1, 3, 4, 6, 7]),
        ("ProfilerStep", None, 0, 90, [3, 4]),
        ("ProfilerStep", 1, 100, 190, [0, 1]),
        ("ProfilerStep", (1, 2), 100, 290, [0, 1, 6, 7]),
        ("of nothing", 2, 210, 220, [7]),
    ],
    ids=["the whole trace", "the first in time", "in the order of time", "a pair includes both", "an operator"],
)
def test_a_region_is_that_of_the_annotations_that_are_named(
    annotation: str, instance: int | tuple[int, int] | None, start: int, stop: int, rows: list[int]
) -> None:
    region = find_region(three_steps(), annotation, instance)
    assert (region.start, region.stop, region.rows.tolist()) == (start, stop, rows)
    assert annotation or region.description == "the whole trace"
    assert (annotation, instance) != ("ProfilerStep", None) or region.description == "ProfilerStep 0"


def test_an_unknown_annotation_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(
        UnknownAnnotationError, match=r"no annotation has 'epoch' in its name; there is: 'ProfilerStep#"
    ):
        find_region(three_steps(), "epoch")


@pytest.mark.parametrize("instance", [3, -1, (0, 3), (2, 1)])
def test_an_unknown_instance_is_answered_with_those_that_there_are(instance: int | tuple[int, int]) -> None:
    with pytest.raises(UnknownAnnotationError, match="there is: 0 to 2"):
        find_region(three_steps(), "ProfilerStep", instance)


def test_work_and_synchronisations_belong_where_their_call_is() -> None:
    small = SmallTrace()
    small.add(Category.ANNOTATION, "step", 0, 50)
    late = small.launched(40, 500, 600)
    wait = small.call("cudaDeviceSynchronize", 45, 48)
    sync = small.sync("Context Sync", wait, 47)
    small.launched(60, 70, 80)
    # of no call, and of one that took no time
    small.work(10, 20, -1)
    small.work(10, 20, small.call("cudaLaunchKernel", 5, 5))
    assert find_region(small.trace(), "step").rows.tolist() == [0, late - 1, late, wait, sync]


def test_an_annotation_that_only_looks_like_a_step_is_none() -> None:
    small = SmallTrace()
    small.add(Category.ANNOTATION, "ProfilerStep#7", 0, 10)
    small.add(Category.ANNOTATION, "ProfilerStep#99999999999", 10, 20)
    assert steps_of(small.trace()).number.tolist() == [7]
