from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.simulated_traces import SAMPLES, seceded, tree
from dask_efficiency import critical_path
from dask_efficiency.simulation.makespan import RunFigures, busy, efficiency, makespan_seconds
from dask_efficiency.trace.errors import EmptyTraceError
from dask_efficiency.trace.schema import Runs


@pytest.mark.parametrize("name", SAMPLES)
def test_the_makespan_is_that_of_the_critical_path(name: str) -> None:
    trace = SAMPLES[name]()
    assert makespan_seconds(trace) == critical_path(trace).makespan_seconds


def test_shares_are_of_slots_times_makespan() -> None:
    trace = tree()
    whole = 8 * makespan_seconds(trace)
    assert efficiency(trace, 8) == pytest.approx(trace.runs.cpu_ns.sum() / 1e9 / whole)
    assert busy(trace, 8) == pytest.approx((trace.runs.stop - trace.runs.start).sum() / 1e9 / whole)
    assert efficiency(trace, 0) == 0.0
    assert busy(trace, 0.001) == 1.0


def test_a_task_that_has_left_its_slot_holds_no_thread() -> None:
    trace = seceded()
    held = np.where(trace.runs.seceded >= 0, trace.runs.seceded, trace.runs.stop) - trace.runs.start
    assert busy(trace, 8) == pytest.approx(held.sum() / 1e9 / 8 / makespan_seconds(trace))


def test_the_figures_of_a_run_are_those_of_its_slots() -> None:
    trace = tree()
    found = RunFigures.of(trace)
    assert (found.workers, found.nthreads, found.name) == (4, 8, "simulated")
    assert found.efficiency == pytest.approx(efficiency(trace, 8), rel=1e-3)
    assert sum(found.kinds.values()) == pytest.approx(found.makespan_seconds)


def test_a_trace_without_tasks_is_refused() -> None:
    with pytest.raises(EmptyTraceError):
        makespan_seconds(replace(tree(4), runs=Runs.empty()))
