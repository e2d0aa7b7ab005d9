from dataclasses import replace

import numpy as np
import pytest

from dask_efficiency import RunTrace
from dask_efficiency.runs.replay.durations import repaired, task_times
from tests.simulated_traces import MS, Graph, simulate, wide


def equal_tasks(**settings: object) -> RunTrace:
    """30 tasks of 10 ms, and 10 of another prefix that take 30 ms."""
    graph = Graph(["a"] * 30 + ["b"] * 10, [[]] * 40, [10 * MS] * 30 + [30 * MS] * 10, [1] * 40, set(range(40)))
    return simulate(graph, **({"workers": 3, "nthreads": 1} | settings))


def test_differences_that_are_only_the_tasks_are_not_the_workers() -> None:
    # From half to one and a half of 20 ms.
    found = task_times(wide(100, nthreads=1))
    assert np.ptp(found[:, 2]) == 0.0


def test_a_slow_worker_is_slow_and_repaired_it_is_as_the_others() -> None:
    found = task_times(equal_tasks(slow={1: 2.5}))
    assert found[:, 0] == pytest.approx([10e6, 25e6, 10e6])
    assert repaired(found, [1])[:, 0] == pytest.approx([10e6] * 3)
    # There are no others to be like.
    np.testing.assert_array_equal(repaired(found, [0, 1, 2]), found)


def test_a_prefix_that_a_worker_never_ran_would_be_as_slow_there_as_the_rest() -> None:
    trace = equal_tasks(slow={1: 2.0})
    elsewhere = trace.runs.take((trace.runs.task < 30) | (trace.runs.worker != 1))
    found = task_times(replace(trace, runs=elsewhere))
    assert found[1, 1] == pytest.approx(60e6)
