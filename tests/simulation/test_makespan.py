from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.simulated_traces import seceded, tree, two_computations
from dask_efficiency import critical_path
from dask_efficiency.simulation.makespan import RunFigures, busy, efficiency, makespan_seconds
from dask_efficiency.trace.errors import EmptyTraceError
from dask_efficiency.trace.schema import Graphs, Runs


def test_the_makespan_is_that_of_the_path_without_what_the_client_does_before_and_after() -> None:
    trace = tree()
    kinds = critical_path(trace).seconds("kind")
    client = kinds.get("client-submit", 0.0) + kinds.get("result-gather", 0.0)
    assert makespan_seconds(trace) == pytest.approx(critical_path(trace).makespan_seconds - client)


def test_the_makespan_holds_all_computations_of_a_run() -> None:
    trace = two_computations()
    last = int(trace.runs.reported.max())
    assert makespan_seconds(trace) == (last - int(trace.graphs.received[0])) / 1e9


def test_tasks_that_nobody_wanted_do_not_count_unless_nobody_wanted_any() -> None:
    trace = tree(8)
    late = trace.runs.columns() | {"reported": trace.runs.reported.copy()}
    unwanted = int(np.flatnonzero(~trace.tasks.wanted[trace.runs.task])[0])
    late["reported"][unwanted] = trace.stop
    longer = replace(trace, runs=Runs(**late))
    assert makespan_seconds(longer) == makespan_seconds(trace)
    nobody = replace(longer, tasks=replace(trace.tasks, wanted=np.zeros(len(trace.tasks), np.bool_)))
    assert makespan_seconds(nobody) == (trace.stop - int(trace.graphs.received[0])) / 1e9


def test_without_any_graph_the_first_assignment_is_the_start() -> None:
    trace = replace(tree(8), graphs=Graphs.empty())
    assert makespan_seconds(trace) == (int(trace.runs.reported.max()) - int(trace.runs.assigned.min())) / 1e9


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
    assert found.kinds == critical_path(trace).seconds("kind")


def test_a_trace_without_tasks_is_refused() -> None:
    with pytest.raises(EmptyTraceError):
        makespan_seconds(replace(tree(4), runs=Runs.empty()))
