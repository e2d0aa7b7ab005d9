import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.gpu.intervals import IntervalArrays
from dask_efficiency.torch_traces.kineto.trace import RankTrace
from dask_efficiency.torch_traces.summaries.breakdown import TimeParts, activity_of, window_of
from dask_efficiency.torch_traces.summaries.tables import PARTS
from tests.torch_traces.path.programs import rank_of, written


def broken_down(trace: RankTrace) -> dict[str, int]:
    start, stop = window_of(trace)
    whole = IntervalArrays(np.array([start]), np.array([stop]))
    found = TimeParts.of(activity_of(trace), whole)
    return {name: int(getattr(found, name)[0]) // 1000 for name in PARTS}


def test_each_nanosecond_of_a_gpu_is_of_one_part() -> None:
    events = written(
        "aten::mm 0-100, cudaLaunchKernel 1-2 #1, cudaLaunchKernel 3-4 #2, cudaMemcpyAsync 5-6 #3, "
        "gemm 10-40 #1, ncclKernel_AllReduce 30-60 #2 @20, Memcpy_DtoH 55-70 #3 @21"
    )
    found = broken_down(rank_of(events))
    assert found == {"compute": 20, "hidden": 10, "exposed": 20, "copies": 10, "idle": 40}


def test_without_a_gpu_the_parts_are_those_of_threads() -> None:
    events = written("aten::mm 0-40, c10d::allreduce_ 40-45, gloo:all_reduce 30-70 @9, aten::add 90-100")
    found = broken_down(rank_of(events))
    assert found == {"compute": 40, "hidden": 10, "exposed": 30, "copies": 0, "idle": 20}


_PIECES = st.lists(
    st.tuples(st.sampled_from(["gemm", "ncclKernel_AllReduce", "Memcpy_DtoH"]), st.integers(0, 60), st.integers(1, 30)),
    min_size=1,
    max_size=12,
)


@given(_PIECES)
def test_the_parts_add_up_and_are_those_of_each_microsecond(pieces: list[tuple[str, int, int]]) -> None:
    works = (f"{name} {at}-{at + lasts} #{i} @{i}" for i, (name, at, lasts) in enumerate(pieces))
    events = written(", ".join(["aten::mm 0-100", *works]))
    found = broken_down(rank_of(events))
    expected = dict.fromkeys(PARTS, 0)
    for at in range(100):
        running = {name for name, start, lasts in pieces if start <= at < start + lasts}
        computes, exchanges = "gemm" in running, "ncclKernel_AllReduce" in running
        part = "hidden" if computes and exchanges else "compute" if computes else "exposed" if exchanges else ""
        expected[part or ("copies" if running else "idle")] += 1
    assert found == expected
    assert sum(expected.values()) == 100


def test_a_trace_without_events_takes_no_time() -> None:
    assert window_of(rank_of([])) == (0, 0)
    assert broken_down(rank_of([])) == dict.fromkeys(PARTS, 0)
