import numpy as np
import pytest

from dask_efficiency.torch_traces.path.streams import queue_lengths
from dask_efficiency.torch_traces.summaries import launches
from dask_efficiency.torch_traces.summaries.launches import BINS, launches_of, queue_through
from tests.torch_traces.path.programs import rank_of, written
from tests.torch_traces.path.random_traces import random_trace

#: Calls at 0, 10 and 20 for works at 12, 40 and 60 us, and one on another stream.
TEXT = (
    "cudaLaunchKernel 0-4 #1, a 12-40 #1, cudaLaunchKernel 10-14 #2, b 40-42 #2, cudaLaunchKernel 20-28 #3, "
    "c 60-160 #3, cudaLaunchKernel 30-34 #4, d 33-70 #4 @8"
)


def test_delays_calls_and_queues_are_those_of_each_stream() -> None:
    found = launches_of(rank_of(written(TEXT)))
    columns = {name: column.tolist() for name, column in found.columns().items()}
    assert columns["stream"] == [7, 8]
    assert columns["works"] == columns["kernels"] == [3, 1]
    assert columns["delay_median"] == [26_000, 0]
    assert columns["delay_max"] == [32_000, 0]
    assert columns["call_median"] == [4000, 4000]
    assert columns["shorter"] == [1, 0]
    assert columns["tiny"] == [1, 0]
    assert columns["queue_max"] == [2, 1]
    # of 60 us: 1 from 0 to 10, 2 to 12, 1 to 20, 2 to 40, 1 to 60
    assert columns["queue_mean"][0] == pytest.approx((10 + 4 + 8 + 40 + 20) / 60)


def test_a_full_queue_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches, "FULL_QUEUE", 2)
    assert launches_of(rank_of(written(TEXT))).full.tolist() == [22_000, 0]


def test_without_launches_there_is_no_row() -> None:
    trace = rank_of(written("aten::mm 0-10"))
    assert len(launches_of(trace)) == 0
    assert queue_through(trace, (0, 10_000)).tolist() == [0.0] * BINS


@pytest.mark.parametrize("seed", range(10))
def test_queues_through_time_have_the_area_of_all_queues(seed: int) -> None:
    trace = rank_of(random_trace(seed)["traceEvents"])
    queues = queue_lengths(trace)
    window = int(queues.at.min()), int(queues.at.max()) + 1
    same = np.append((np.diff(queues.device) == 0) & (np.diff(queues.stream) == 0), False)
    area = float((queues.length * np.append(np.diff(queues.at), 0))[same].sum())
    width = (window[1] - window[0]) / BINS
    assert queue_through(trace, window).sum() * width == pytest.approx(area, rel=0.01)
