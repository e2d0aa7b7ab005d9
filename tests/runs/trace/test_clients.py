from dataclasses import replace

import numpy as np
import pytest

from dask_efficiency import RunTrace, critical_path
from dask_efficiency.accounts.tables import MISSING, Texts
from dask_efficiency.runs.trace.clients import ClientLog, Nested, heard_by_clients
from dask_efficiency.runs.trace.schema import (
    PHASES,
    RUN_INSTANTS,
    Graphs,
    Phases,
    RunOutcome,
    Runs,
    Stimuli,
    Tasks,
    Transitions,
)
from tests.runs.trace.samples import NO_DELAYS
from tests.simulated_traces import MS, Graph, simulate

OPTIMIZE, UPLOAD, GATHER = range(len(PHASES))


def trace_of(phases: list[tuple[int, int, int]], results: list[int], received: list[int] | None = None) -> RunTrace:
    """One client: its (phase, start, stop), when each result that it wanted was reported, and its graphs."""
    received, tasks = [0] if received is None else received, len(results)
    zeros = np.zeros(tasks, np.int32)
    phase, start, stop = np.array(phases, np.int64).reshape(-1, 3).T
    return RunTrace(
        name="by hand",
        start=0,
        stop=1000,
        keys=Texts.of(f"t-{i}" for i in range(tasks)),
        tasks=Tasks.from_columns({"graph": zeros, "wanted": np.ones(tasks, np.bool_)}),
        dependency_starts=np.zeros(tasks + 1, np.int64),
        dependencies=np.empty(0, np.int32),
        runs=Runs.from_columns({"task": np.arange(tasks), "outcome": zeros, "reported": np.array(results, np.int64)}),
        graphs=Graphs.from_columns({"client": [0] * len(received), "received": received, "taken_in": received}),
        phases=Phases.from_columns({"client": 0 * phase, "phase": phase, "start": start, "stop": stop}),
        clients=("c",),
    )


#: By what the client did: its phases, when the result was reported, until when; the way back, and whose result it is.
WAYS_BACK = {
    "it goes on soon after a result": ([(UPLOAD, 10, 20)], [300], 310, ([(300, False)], 0)),
    # As Future.result() does.
    "it gathers as soon as it hears of a result": (
        [(UPLOAD, 10, 20), (GATHER, 310, 320)],
        [300],
        320,
        ([(320, False), (310, True), (300, True)], 0),
    ),
    "it gathers when a result comes": (
        [(OPTIMIZE, 0, 10), (UPLOAD, 10, 20), (GATHER, 20, 100)],
        [60, 90],
        150,
        ([(100, False), (90, True)], 1),
    ),
    # For 470 ns after the result had come.
    "it does something else before it gathers": (
        [(UPLOAD, 10, 20), (GATHER, 500, 510)],
        [30],
        520,
        ([(510, False), (500, True), (0, False)], MISSING),
    ),
    "it thinks for long": ([(UPLOAD, 10, 20)], [30], 310, ([(0, False)], MISSING)),
    "nothing is known": ([], [], 50, ([(0, False)], MISSING)),
}


@pytest.mark.parametrize(("phases", "results", "at", "expected"), WAYS_BACK.values(), ids=WAYS_BACK)
def test_a_client_waited_for_the_result_after_which_it_went_on_at_once(phases, results, at, expected):
    assert ClientLog(trace_of(phases, results)).back(0, at, 0) == expected


def test_a_client_that_gathers_a_result_that_another_asked_for_waits_for_that() -> None:
    gather = Phases.from_columns({"client": [1], "phase": [GATHER], "start": [20], "stop": [100]})
    log = ClientLog(replace(trace_of([], [90]), phases=gather))
    assert log.back(1, 100, 0) == ([(100, False), (90, True)], 0)
    # and one that sends graph after graph waits for nothing
    trace = trace_of([(UPLOAD, 98, 130)], [105, 115, 125], received=[100, 110, 120, 130])
    assert ClientLog(trace).back(0, 130, 0)[1] == MISSING


def test_a_failure_that_was_the_last_of_its_task_was_waited_for() -> None:
    trace = trace_of([(UPLOAD, 10, 20)], [300])
    failed = replace(trace.runs, outcome=np.full(1, RunOutcome.FAILED, trace.runs.outcome.dtype))
    # Also where another task, which needs it, was asked for.
    tasks = replace(trace.tasks, wanted=np.zeros(1, np.bool_))
    assert ClientLog(replace(trace, runs=failed, tasks=tasks)).back(0, 310, 0) == ([(300, False)], 0)
    # One that was tried again was not.
    tries = {"task": [0, 0], "outcome": [RunOutcome.FAILED, RunOutcome.SUCCEEDED], "reported": [300, 900]}
    twice = replace(trace, runs=Runs.from_columns(tries))
    assert heard_by_clients(twice).tolist() == [False, True]
    assert ClientLog(twice).back(0, 310, 0)[1] == MISSING


def asking() -> RunTrace:
    """A task of 100 ms that secedes at 50 and asks at 60 for another one of 30 ms, which ends at 90."""
    graph = Graph(["asks", "asked"], [[], []], [100 * MS, 30 * MS], [1, 1], {0, 1})
    trace = simulate(graph, workers=1, nthreads=2, saturation=2.0, seceding=frozenset({0}), **NO_DELAYS)
    runs, start = trace.runs, int(trace.runs.start[0])
    columns = {name: column.copy() for name, column in runs.columns().items()}
    for name in RUN_INSTANTS:
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


def test_a_graph_that_a_seceded_task_sent_is_its_own_and_so_are_its_results() -> None:
    nested, reported = Nested(asking()), int(asking().runs.reported[1])
    assert (nested.parent(0), nested.parent(1)) == (MISSING, 0)
    assert nested.last_result(0, reported) == 1
    assert nested.last_result(0, reported - 1) == MISSING
    assert nested.last_result(1, reported) == MISSING


def test_the_path_goes_through_a_task_that_another_waited_for_if_its_client_is_known() -> None:
    path = critical_path(asking())
    assert path.seconds_computing() == {"asks": 0.070, "asked": 0.030}
    assert path.unattributed == 0.0
    unknown = replace(asking(), clients=("Client-1", "Client-2"))
    assert critical_path(unknown).seconds_computing() == {"asks": 0.100}


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
