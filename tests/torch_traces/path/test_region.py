"""Which part of a trace a path explains."""

import pytest

from dask_efficiency.torch_traces.kineto.errors import UnknownAnnotationError
from dask_efficiency.torch_traces.kineto.trace import RankTrace
from dask_efficiency.torch_traces.path.region import find_region, steps_of
from tests.torch_traces.path.programs import rank_of, work, written


def three_steps() -> RankTrace:
    """In the file the second step comes before the first one; the GPU spans the steps, too."""
    events = []
    for start in (100, 0, 200):
        step = f"ProfilerStep#{start}"
        events += written(f"{step} {start}-{start + 90}, aten::nothing {start + 10}-{start + 20}")
        events.append(work(step, start, start + 90, 0, cat="gpu_user_annotation"))
    return rank_of(events)


@pytest.mark.parametrize(
    ("annotation", "instance", "start", "stop", "rows"),
    [
        ("", None, 0, 290, [0, 1, 3, 4, 6, 7]),
        ("ProfilerStep", None, 0, 90, [3, 4]),
        ("ProfilerStep", 1, 100, 190, [0, 1]),
        ("ProfilerStep", (1, 2), 100, 290, [0, 1, 6, 7]),
        ("nothing", 2, 210, 220, [7]),
    ],
    ids=["the whole trace", "the first in time", "in the order of time", "a pair includes both", "an operator"],
)
def test_a_region_is_that_of_the_annotations_that_are_named(
    annotation: str, instance: int | tuple[int, int] | None, start: int, stop: int, rows: list[int]
) -> None:
    region = find_region(three_steps(), annotation, instance)
    assert (region.start, region.stop, region.rows.tolist()) == (1000 * start, 1000 * stop, rows)
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
    # the last kernels are of no call, and of one that took no time
    trace = rank_of(
        written(
            """ProfilerStep#1 0-50, cudaLaunchKernel 40-42 #1, gemm 500-600 #1,
            cudaDeviceSynchronize 45-48 #2, Context_Sync 45-47 #2, cudaLaunchKernel 60-62 #3, gemm 70-80 #3,
            gemm 10-20 #99, cudaLaunchKernel 5-5 #4, gemm 10-20 #4"""
        )
    )
    assert find_region(trace, "ProfilerStep").rows.tolist() == [0, 1, 2, 3, 4]


def test_an_annotation_that_only_looks_like_a_step_is_none() -> None:
    assert steps_of(rank_of(written("ProfilerStep#7 0-10, ProfilerStep#99999999999 10-20"))).number.tolist() == [7]
