from dataclasses import replace

import numpy as np
import pytest

from dask_efficiency.runs.path.kinds import Kind
from dask_efficiency.torch_traces.kineto.trace import CALLS
from dask_efficiency.torch_traces.path.roles import has_waits
from dask_efficiency.torch_traces.path.stretches import gpu_seconds_during
from dask_efficiency.torch_traces.path.tiling import tile
from tests.torch_traces.path.samples import recorded, two_kernels


def test_work_that_runs_while_a_thread_computes_is_counted_on_the_clock_of_the_job() -> None:
    graph = two_kernels()
    # The thread computes in 0-12 and 90-100; the kernels run in 20-50 and 55-85.
    stretches = tile(graph)
    assert gpu_seconds_during(Kind.COMPUTE_CPU, stretches, [graph], [0], [0]) == 0
    assert gpu_seconds_during(Kind.GPU_COMPUTE, stretches, [graph], [0], [0]) == pytest.approx(60e-6)
    # By a clock that is 10 us behind, the second kernel ran until 95.
    assert gpu_seconds_during(Kind.COMPUTE_CPU, stretches, [graph], [0], [10_000]) == pytest.approx(5e-6)


def test_a_rank_that_the_path_is_not_on_does_not_count() -> None:
    graph = two_kernels()
    assert gpu_seconds_during(Kind.GPU_COMPUTE, tile(graph), [graph], [1], [0, 0]) == 0


def test_a_trace_without_calls_has_no_recorded_waits() -> None:
    trace = two_kernels().trace
    assert has_waits(trace)
    rows = np.flatnonzero(~np.isin(trace.events.category, CALLS))
    assert not has_waits(replace(trace, events=trace.events.take(rows)))
    assert not has_waits(recorded("cpu_only").trace.ranks[0])
