from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.simulated_traces import MS, Graph, simulate
from dask_efficiency import RunTrace, critical_path
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.path.nested import Nested
from dask_efficiency.runs.trace.schema import Graphs, Stimuli, Transitions

NO_DELAYS = {"latency": 0, "scheduler_message": 0, "scheduler_task": 0, "handoff": 0, "loop": 0}


def asking() -> RunTrace:
    """A task of 100 ms that secedes at 50 and asks at 60 for another one of 30 ms, which ends at 90."""
    graph = Graph(["asks", "asked"], [[], []], [100 * MS, 30 * MS], [1, 1], {0, 1})
    trace = simulate(graph, workers=1, nthreads=2, saturation=2.0, seceding=frozenset({0}), **NO_DELAYS)
    runs, start = trace.runs, int(trace.runs.start[0])
    columns = {name: column.copy() for name, column in runs.columns().items()}
    for name in ("assigned", "received", "ready", "executing", "submitted", "start", "stop", "ended", "reported"):
        columns[name][1] += 60 * MS
    received = np.array([trace.graphs.received[0], start + 60 * MS])
    return replace(
        trace,
        clients=("Client-1", "Client-worker-9"),
        graphs=Graphs.from_columns({"client": [0, 1], "received": received, "taken_in": received}),
        tasks=replace(trace.tasks, graph=np.array([0, 1], np.int32)),
        runs=replace(runs, **columns),
        stimuli=Stimuli.from_columns({"kind": [0, 0], "at": received, "graph": [0, 1]}),
        transitions=Transitions.from_columns(
            {"at": columns["assigned"], "task": [0, 1], "start": [1, 1], "finish": [4, 4], "stimulus": [0, 1]}
        ),
    )


def test_a_graph_that_a_seceded_task_sent_is_its_own() -> None:
    nested = Nested(asking())
    assert (nested.parent(0), nested.parent(1)) == (MISSING, 0)


def test_a_result_is_found_from_when_it_was_there() -> None:
    trace = asking()
    reported = int(trace.runs.reported[1])
    assert Nested(trace).last_result(0, reported) == 1
    assert Nested(trace).last_result(0, reported - 1) == MISSING
    assert Nested(trace).last_result(1, reported) == MISSING


def test_the_path_goes_through_what_a_task_waited_for_and_back() -> None:
    path = critical_path(asking())
    assert path.seconds_computing() == {"asks": 0.070, "asked": 0.030}
    assert path.unattributed == 0.0


def test_without_the_worker_clients_name_the_task_is_all_there_is() -> None:
    trace = replace(asking(), clients=("Client-1", "Client-2"))
    assert critical_path(trace).seconds_computing() == {"asks": 0.100}


def test_a_walk_through_two_tasks_that_seem_to_have_submitted_each_other_ends() -> None:
    trace = asking()
    columns = {name: column.copy() for name, column in trace.runs.columns().items()}
    start = int(trace.runs.start[0])
    for name in ("stop", "ended", "reported"):
        columns[name][:] = start + 100 * MS
    columns["start"][1], columns["seceded"][:] = start + 20 * MS, start + 30 * MS
    received = np.array([start + 25 * MS, start + 15 * MS])
    trace = replace(
        trace,
        clients=("Client-1", "Client-worker-9"),
        runs=replace(trace.runs, **columns),
        graphs=Graphs.from_columns({"client": [1, 1], "received": received, "taken_in": received}),
    )
    assert (Nested(trace).parent(0), Nested(trace).parent(1)) == (1, 0)
    path = critical_path(trace)
    assert sum(path.seconds().values()) == pytest.approx(path.makespan_seconds)
