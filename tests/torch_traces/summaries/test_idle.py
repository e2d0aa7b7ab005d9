from itertools import pairwise

import pytest

from dask_efficiency.torch_traces.kineto.trace import RankTrace
from dask_efficiency.torch_traces.path.repairs import repaired
from dask_efficiency.torch_traces.summaries.breakdown import activity_of, window_of
from dask_efficiency.torch_traces.summaries.idle import idle_by_stream, idle_reasons
from tests.torch_traces.path.programs import rank_of, written
from tests.torch_traces.path.random_traces import random_trace


def idle_of(trace: RankTrace) -> dict[str, int]:
    """Microseconds by reason, without those that have none."""
    window = window_of(trace)
    reasons = idle_reasons(trace, window, activity_of(trace).busy)
    return {name: nanoseconds // 1000 for name, nanoseconds in reasons.lengths.items() if nanoseconds}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # asked for while all is idle: first the host, then the launch
        ("cudaLaunchKernel 50-55 #2, b 60-70 #2", {"host": 30, "launch": 10}),
        # asked for before the work before it had ended
        ("cudaLaunchKernel 12-15 #2, b 24-30 #2", {"gap": 4}),
        # a launch that takes longer than launches do, after its call: the rest is unknown
        (
            "cudaLaunchKernel 30-40 #2, b 190-200 #2",
            {"host": 10, "launch": 60, "unknown": 100},
        ),
        # a gap that is too long for the GPU's own
        ("cudaLaunchKernel 12-15 #2, b 3020-3030 #2", {"unknown": 3000}),
        # the next batch, and a collective of CPUs
        (
            "enumerate(DataLoader)#_next 25-45, cudaLaunchKernel 50-55 #2, b 55-60 #2",
            {"host": 10, "data": 20, "launch": 5},
        ),
        (
            "gloo:all_reduce 20-45 @9, cudaLaunchKernel 50-55 #2, b 55-60 #2",
            {"host": 5, "ranks": 25, "launch": 5},
        ),
        # work of another stream was asked for, and waits for what was not
        (
            "cudaLaunchKernel 12-15 #2, b 70-80 #2 @8, cudaLaunchKernel 40-45 #3, c 50-60 #3",
            {"stream": 20, "launch": 10, "gap": 10},
        ),
        # work that takes less than the clock's unit ends an idle time, too
        (
            "cudaLaunchKernel 12-15 #2, b 24-24 #2, cudaLaunchKernel 26-27 #3, c 30-40 #3",
            {"gap": 4, "host": 2, "launch": 4},
        ),
    ],
)
def test_idle_time_has_the_reason_that_the_trace_shows(text: str, expected: dict[str, int]) -> None:
    found = idle_of(rank_of(written(f"cudaLaunchKernel 0-5 #1, a 10-20 #1, {text}")))
    assert found.pop("edge") == 10
    assert found == expected


def test_after_launches_without_work_the_reason_is_unknown() -> None:
    launches = ", ".join(f"cudaLaunchKernel {i}-{i + 1} #{i}, k{i} {10 * i}-{10 * i + 1} #{i}" for i in range(1, 12))
    alone = f"{launches}, cudaLaunchKernel 200-201 #90, cudaLaunchKernel 250-251 #91, last 260-270 #91"
    assert idle_of(rank_of(written(alone)))["unknown"] == 50
    most = "cudaLaunchKernel 0-1 #1, a 10-20 #1, cudaLaunchKernel 30-31 #2, cudaLaunchKernel 50-51 #3, b 52-60 #3"
    assert idle_of(rank_of(written(most))) == {"edge": 10, "unknown": 30, "launch": 2}


def test_first_calls_set_up() -> None:
    found = idle_of(rank_of(written("cudaMalloc 0-40000 #1, cudaLaunchKernel 50000-50005 #2, a 50010-50020 #2")))
    assert found == {"set_up": 40_000, "edge": 10_010}


def test_without_a_gpu_only_data_are_known_of() -> None:
    text = "aten::mm 0-10, enumerate(DataLoader)#_next 20-30, aten::mm 40-50"
    assert idle_of(rank_of(written(text))) == {"data": 10, "unknown": 20}


def test_gaps_of_a_stream_are_those_of_hta() -> None:
    text = (
        "cudaLaunchKernel 0-5 #1, a 10-20 #1, cudaLaunchKernel 12-15 #2, b 24-30 #2, cudaLaunchKernel 50-55 #3, "
        "c 60-200 #3, cudaLaunchKernel 56-58 #4, d 210-220 #4 @8, cudaLaunchKernel 59-60 #5, e 300-310 #5, "
        "cudaLaunchKernel 61-62 #6, f 225-235 #6 @8"
    )
    found = idle_by_stream(rank_of(written(text)))
    columns = {
        name: (column // (1000 if name not in ("device", "stream", "works") else 1)).tolist()
        for name, column in found.columns().items()
    }
    expected = {"device": [0, 0], "stream": [7, 8], "works": [4, 2]}
    assert columns == expected | {"host": [30, 0], "other_stream": [0, 0], "gap": [4, 5], "unknown": [100, 0]}


def test_a_stream_waits_for_another_one_whose_work_ended_right_before() -> None:
    text = (
        "cudaLaunchKernel 0-1 #1, a 10-20 #1, cudaLaunchKernel 2-3 #2, b 10-100 #2 @8, cudaLaunchKernel 4-5 #3, "
        "c 105-120 #3"
    )
    assert idle_by_stream(rank_of(written(text))).other_stream.tolist() == [85_000, 0]


@pytest.mark.parametrize("seed", range(40))
def test_reasons_add_up_to_the_idle_time(seed: int) -> None:
    trace = repaired(rank_of(random_trace(seed)["traceEvents"]))
    window, activity = window_of(trace), activity_of(trace)
    reasons = idle_reasons(trace, window, activity.busy)
    pieces = sorted((start, stop) for found in reasons for start, stop in zip(*found, strict=True))
    assert all(stop <= start for (_, stop), (start, _) in pairwise(pieces))
    idle = window[1] - window[0] - int(activity.busy.lengths.sum())
    assert sum(stop - start for start, stop in pieces) == idle
