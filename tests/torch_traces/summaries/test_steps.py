import numpy as np

from dask_efficiency.torch_traces import summary
from dask_efficiency.torch_traces.kineto.trace import KinetoTrace
from dask_efficiency.torch_traces.summaries.steps import outlying
from tests.torch_traces.path.programs import rank_of, written


def steps_text(lengths: list[int]) -> str:
    """Steps of some microseconds, in each of which a kernel of 10 us begins 20 us after the start."""
    parts, at = [], 0
    for number, length in enumerate(lengths):
        parts.append(f"ProfilerStep#{number} {at}-{at + length}, cudaLaunchKernel {at + 10}-{at + 12} #{number + 1}")
        parts.append(f"gemm {at + 20}-{at + 30} #{number + 1}")
        at += length
    return ", ".join(parts)


def test_steps_are_broken_down_and_the_one_that_differs_is_marked() -> None:
    found = summary(KinetoTrace((rank_of(written(steps_text([100, 101, 99, 100, 180, 100]))),)))
    table = found.to_frame("steps")
    assert table["number"].tolist() == [*range(6)]
    assert table["differs"].tolist() == [False, False, False, False, True, False]
    assert np.allclose(table["compute"], 10e-6)
    assert np.allclose(table["compute"] + table["idle"], table["total"])
    # the first step begins before the first work in the trace, of which the GPU may have had more
    assert np.allclose(table["idle_at_start"], [0, *[20e-6] * 5])
    assert "6 steps" in str(found)
    (finding,) = (each for each in found.findings if each.kind == "torch/long-steps")
    assert finding.saves_seconds is not None
    assert round(finding.saves_seconds * 1e6) == 80


def test_few_steps_and_equal_ones_do_not_differ() -> None:
    assert not outlying(np.array([1, 1, 100])).any()
    assert not outlying(np.array([100, 100, 100, 100, 104])).any()
    assert outlying(np.array([100, 100, 100, 100, 106])).tolist() == [False] * 4 + [True]
