from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from dask_efficiency import RunTrace
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace.run_causes import RunCauses
from dask_efficiency.runs.trace.schema import RunOutcome, Transitions
from tests.runs.trace.samples import damaged_traces, traces
from tests.simulated_traces import SAMPLES


@given(traces())
def test_every_run_comes_after_a_graph_or_after_a_run_that_was_reported_by_then(trace: RunTrace) -> None:
    causes = RunCauses(trace)
    assert ((causes.graph != MISSING) ^ (causes.run != MISSING)).all()
    caused = np.flatnonzero(causes.run != MISSING)
    assert (trace.runs.reported[causes.run[caused]] <= trace.runs.assigned[caused]).all()
    making, needing = causes.inputs(trace)
    assert (trace.runs.reported[making] <= trace.runs.assigned[needing]).all()
    assert len(making) == sum(
        trace.dependency_starts[task + 1] - trace.dependency_starts[task] for task in trace.runs.task.tolist()
    )


def test_a_second_try_comes_after_the_first() -> None:
    trace = SAMPLES["retried"]()
    causes = RunCauses(trace)
    failed = np.flatnonzero(trace.runs.outcome == RunOutcome.FAILED)
    again = [run for run in range(len(trace.runs)) if causes.by_task.before(run) != MISSING]
    assert sorted(causes.run[again].tolist()) == failed.tolist()


@pytest.mark.parametrize("name", SAMPLES)
def test_runs_of_queued_tasks_are_marked_as_queued(name: str) -> None:
    trace = SAMPLES[name]()
    queued = set(trace.transitions.task[trace.transitions.finish == 3].tolist())
    assert set(trace.runs.task[RunCauses(trace).queued].tolist()) == queued
    # and a run that no transition gave out has no cause
    causes = RunCauses(replace(trace, transitions=Transitions.empty()))
    assert (causes.transition == MISSING).all()
    assert (causes.run == MISSING).all()


@given(damaged_traces())
def test_causes_of_a_damaged_trace_are_runs_and_graphs_that_exist(trace: RunTrace) -> None:
    causes = RunCauses(trace)
    making, needing = causes.inputs(trace)
    for found, length in ((causes.run, len(trace.runs)), (causes.graph, len(trace.graphs)), (making, len(trace.runs))):
        assert ((found >= MISSING) & (found < length)).all()
    assert (needing < len(trace.runs)).all()
