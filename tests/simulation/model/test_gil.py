from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.simulated_traces import MS, Graph, simulate
from dask_efficiency import RunTrace
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace.errors import UnknownNameError
from dask_efficiency.runs.trace.schema import Runs, Series
from dask_efficiency.simulation.model.gil import gil_of


def recorded(cpu_share: float, *, nthreads: int = 2, tasks: int = 8) -> RunTrace:
    """Tasks of 100 ms, as many at once as one worker has threads."""
    graph = Graph(["work"] * tasks, [[]] * tasks, [100 * MS] * tasks, [1] * tasks, set(range(tasks)))
    return simulate(graph, workers=1, nthreads=nthreads, cpu_share=cpu_share)


def with_turns(trace: RunTrace, seconds: float) -> RunTrace:
    """A heartbeat every 50 ms that says how far the turns of the worker's loop were apart."""
    at = np.arange(trace.start, trace.stop, 50 * MS)
    return replace(
        trace,
        series=Series.from_columns(
            {"at": at, "worker": np.zeros(len(at), np.int32), "loop_interval": np.full(len(at), seconds)}
        ),
    )


def test_threads_that_used_one_core_together_waited_for_the_lock() -> None:
    found = gil_of(recorded(0.5))
    np.testing.assert_allclose(found.alone, 50 * MS, rtol=0.02)
    np.testing.assert_allclose(found.held, 1.0, rtol=0.02)
    assert "at most one core together" in found.notes[0]
    np.testing.assert_allclose(found.crowd, [1.0, 0.0], rtol=0.05)  # the other thread; tasks without a prefix: none


def test_threads_that_used_two_cores_together_did_not_hold_the_lock() -> None:
    found = gil_of(recorded(1.0))
    np.testing.assert_array_equal(found.alone, 100 * MS)
    assert not found.held.any()
    assert not found.crowd.any()
    assert "more than one core together" in found.notes[0]


def test_threads_that_hardly_computed_waited_for_something_else() -> None:
    found = gil_of(recorded(0.1))
    np.testing.assert_array_equal(found.alone, 100 * MS)
    np.testing.assert_allclose(found.held, 0.1, rtol=0.01)


def test_where_one_thread_ran_at_a_time_the_turns_of_the_loop_tell_and_else_it_is_assumed() -> None:
    trace = recorded(1.0, nthreads=1)
    assert gil_of(with_turns(trace, 0.0201)).held.max() == 0.0
    for one, why in ((with_turns(trace, 0.025), "turned later"), (trace, "nothing in the trace shows")):
        found = gil_of(one)
        np.testing.assert_allclose(found.held, 1.0, rtol=0.01)
        assert why in found.notes[0]


def test_runs_of_tasks_that_were_dropped_have_no_prefix() -> None:
    trace = recorded(0.5)
    runs = trace.runs.columns() | {"task": np.full(len(trace.runs), MISSING, np.int32)}
    found = gil_of(replace(trace, runs=Runs.from_columns(runs)), {"work": 0.0})
    np.testing.assert_allclose(found.held, 1.0, rtol=0.02)


def test_what_is_said_of_a_prefix_is_taken() -> None:
    found = gil_of(recorded(0.0), {"work": 1.0})
    np.testing.assert_allclose(found.alone, 50 * MS, rtol=0.1)
    np.testing.assert_array_equal(found.held, 1.0)
    assert not found.notes


@pytest.mark.parametrize("share", [1.5, -0.1, float("nan")])
def test_what_is_no_share_is_refused_by_name(share: float) -> None:
    with pytest.raises(ValueError, match=r"gil\['work'\] is .*expected"):
        gil_of(recorded(0.5), {"work": share})


def test_a_share_of_no_prefix_is_refused_by_name() -> None:
    with pytest.raises(UnknownNameError, match="'wrok'"):
        gil_of(recorded(0.5), {"wrok": 0.5})
