from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from dask_efficiency import critical_path
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import PHASES, Graphs, Phases, Runs
from dask_efficiency.simulation.engine.client import NoWorkerError, put_data, with_phases
from tests.runs.trace.samples import traces
from tests.simulated_traces import MS, tree, two_computations


def cluster(data: list[int]) -> Any:
    """A cluster without workers, and results from before the recording."""
    return SimpleNamespace(workload=SimpleNamespace(data=data), scheduler=None, workers={})


def test_results_from_before_the_recording_need_a_worker_at_the_start() -> None:
    put_data(cluster([]))
    with pytest.raises(NoWorkerError, match="^2 results were there before the recording, but no worker is there"):
        put_data(cluster([0, 1]))


def later(trace: RunTrace, ns: int) -> RunTrace:
    """Delay everything in a run but the arrival of its first graph."""
    columns = trace.runs.columns()
    instants = ("assigned", "received", "ready", "executing", "submitted", "start", "stop", "ended", "reported")
    moved = {name: np.where(columns[name] >= 0, columns[name] + ns, columns[name]) for name in instants}
    return replace(trace, runs=Runs(**columns | moved), phases=Phases.empty(), stop=trace.stop + ns)


def test_a_graph_that_follows_a_result_still_follows_it() -> None:
    trace = tree(8)
    last, first = int(trace.runs.reported.max()), int(trace.graphs.received[0])
    columns = {
        "client": np.full(2, trace.graphs.client[0], np.int32),
        "phase": np.array([PHASES.index("upload"), PHASES.index("gather")], np.int8),
        "start": np.array([first - 3 * MS, last + MS]),
        "stop": np.array([first - MS, last + 5 * MS]),
    }
    phases = Phases(**columns)
    found = with_phases(later(trace, 70 * MS), replace(trace, phases=phases, stop=trace.stop + 10 * MS)).phases
    assert found.start.tolist() == [first - 3 * MS, last + 71 * MS]
    assert found.stop.tolist() == [first - MS, last + 75 * MS]


def test_phases_of_a_client_that_the_simulated_run_lacks_stay() -> None:
    trace = two_computations()
    nobody = replace(trace, graphs=Graphs.empty(), clients=(), phases=Phases.empty())
    found = with_phases(nobody, trace).phases
    assert sorted(found.start.tolist()) == sorted(trace.phases.start.tolist())


@settings(max_examples=15)
@given(traces())
def test_a_run_keeps_its_own_phases(trace: RunTrace) -> None:
    found = with_phases(replace(trace, phases=Phases.empty()), trace)
    columns = [[column.tolist() for column in each.phases.columns().values()] for each in (found, trace)]
    after, before = (sorted(zip(*each, strict=True)) for each in columns)
    assert after == before
    assert critical_path(found).makespan_seconds == pytest.approx(critical_path(trace).makespan_seconds)
