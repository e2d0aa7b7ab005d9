from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from dask_efficiency import CriticalPath, RunTrace, critical_path
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.path.kinds import COMPUTE, KINDS
from dask_efficiency.runs.replay.changes import Changes
from dask_efficiency.runs.replay.replay import replay
from dask_efficiency.runs.trace.errors import EmptyTraceError
from dask_efficiency.runs.trace.schema import WorkerChange, WorkerEvents
from dask_efficiency.show.finding import MAX_HEADLINE
from tests.runs.trace.samples import NO_DELAYS, damaged_traces, traces
from tests.simulated_cluster import EPOCH
from tests.simulated_traces import MS, Graph, simulate


def diamond() -> Graph:
    """a (10), then b (30) beside c (5), then d (20): the longest path is 60 ms of 65."""
    return Graph(["a", "b", "c", "d"], [[], [0], [0], [1, 2]], [10 * MS, 30 * MS, 5 * MS, 20 * MS], [1] * 4, {3})


def independent(ms: list[int], workers: int, prefixes: list[str] | None = None) -> CriticalPath:
    """Path of tasks of so many milliseconds that need nothing."""
    names = prefixes or ["load"] * len(ms)
    graph = Graph(names, [[] for _ in ms], [n * MS for n in ms], [1] * len(ms), set(range(len(ms))))
    return critical_path(simulate(graph, workers=workers, nthreads=1))


@pytest.mark.parametrize(
    ("ms", "workers", "one_each"),
    [([90, 100], 2, True), ([90, 100, 60], 3, True), ([40, 100], 2, False), ([100], 1, False), ([100] * 4, 2, False)],
)
def test_tasks_that_each_worker_has_one_of_are_no_single_long_task(ms: list[int], workers: int, one_each: bool) -> None:
    assert independent(ms, workers).to_summary().divisible != one_each
    # nor are tasks with threads of their own divisible
    path = critical_path(simulate(diamond(), workers=2, nthreads=1))
    assert [path.to_summary(own).divisible for own in ((), {"b"}, {"a"})] == [True, False, True]


def test_one_task_that_is_much_longer_than_the_others_of_its_prefix_is_to_be_split() -> None:
    uneven = "path/uneven-task"
    assert independent([10] * 40 + [80], 2).findings[0].kind == uneven  # a third of the run
    assert independent([10] * 40 + [30], 2).findings[0].kind != uneven
    assert independent([30] * 10 + [80], 2).findings[0].kind != uneven
    # Others of another prefix are another matter.
    assert independent([10] * 40 + [80], 2, ["load"] * 40 + ["sum"]).findings[0].kind != uneven


def test_the_floor_is_the_longest_path_of_pure_computing_and_the_slot_bound_work_by_slots() -> None:
    paths = [critical_path(simulate(diamond(), workers=count, nthreads=count)) for count in (1, 2)]
    assert [path.floor_seconds for path in paths] == [0.060, 0.060]
    assert paths[1].slot_bound_seconds == pytest.approx(0.065 / 4)


def test_a_worker_has_slots_only_while_it_is_there() -> None:
    trace = simulate(diamond(), workers=2, nthreads=1)
    scope = critical_path(trace).scope
    half = (scope.start + scope.stop) // 2
    joins = {"at": [EPOCH, half], "worker": [0, 1], "change": [WorkerChange.JOINED] * 2}
    leaves = {"at": [half], "worker": [1], "change": [WorkerChange.LEFT]}
    for events in (joins, leaves):
        path = critical_path(replace(trace, worker_events=WorkerEvents.from_columns(events)))
        assert path.slots == pytest.approx(1.5)


@given(traces())
def test_no_run_is_faster_than_its_floor_and_its_slots_allow(trace: RunTrace) -> None:
    path = critical_path(trace)
    assert path.floor_seconds <= path.makespan_seconds
    # Work in slots; seceded tasks are outside of them.
    if not (trace.runs.seceded != MISSING).any():
        assert path.slot_bound_seconds <= path.makespan_seconds * (1 + 1e-12)


@given(traces())
def test_tasks_that_compute_on_the_path_have_no_slack(trace: RunTrace) -> None:
    path = critical_path(trace)
    computing = np.isin(path.segments.kind, [KINDS.index(kind) for kind in COMPUTE])
    runs = np.unique(path.segments.run[computing])
    # A task that gives its slot away ends when it likes.
    runs = runs[trace.runs.seceded[runs] == MISSING]
    assert (path.run_slack_ns[runs] == 0).all()


@given(damaged_traces())
def test_slack_and_bounds_of_a_damaged_trace_are_at_least_sane(trace: RunTrace) -> None:
    try:
        path = critical_path(trace)
    except EmptyTraceError:
        return
    assert path.run_slack_ns.min() >= MISSING
    assert path.floor_seconds >= 0
    assert path.slot_bound_seconds >= 0
    assert 0 < len(path.headline) <= MAX_HEADLINE
    assert all(one.saves_seconds is None or one.saves_seconds <= path.makespan_seconds for one in path.findings)


def test_slack_is_the_time_that_a_task_could_have_taken_longer() -> None:
    # c ends 25 ms before b does.
    trace = simulate(diamond(), workers=1, nthreads=2, **NO_DELAYS)
    assert critical_path(trace).slack().to_dict() == {"a-0": 0.0, "b-1": 0.0, "c-2": 0.025, "d-3": 0.0}
    # tasks that did not end have none
    reported = trace.runs.reported.copy()
    reported[0] = MISSING
    path = critical_path(replace(trace, runs=replace(trace.runs, reported=reported)))
    assert path.run_slack_ns[0] == MISSING
    assert len(path.slack()) == len(trace.runs) - 1


def waiting_for_a_slot() -> RunTrace:
    """Two slots: a (10) and then e (40), b (30) and then c (30), which needs a and was ready 20 ms before b ended."""
    graph = Graph(["a", "b", "e", "c"], [[], [], [], [0]], [10 * MS, 30 * MS, 40 * MS, 30 * MS], [1] * 4, {1, 2, 3})
    return simulate(graph, workers=1, nthreads=2, saturation=2.0, **NO_DELAYS)


def test_an_input_may_be_late_by_as_long_as_its_task_waits_for_a_slot() -> None:
    trace = waiting_for_a_slot()
    # a could end 20 ms later for c, but e, which follows on it, has only 10 to spare.
    assert critical_path(trace).slack().to_dict() == {"a-0": 0.01, "b-1": 0.0, "e-2": 0.01, "c-3": 0.0}
    # A task whose slot is waited for has no more slack than the waiting task: it takes the event loop 1 us to hand the
    # slot on, which is no slack.
    executing = trace.runs.executing + np.where(trace.runs.after != MISSING, 1000, 0)
    path = critical_path(replace(trace, runs=replace(trace.runs, executing=executing)))
    assert path.slack()["b-1"] == 0.0


def test_a_task_that_uses_up_its_slack_does_not_delay_the_end_and_more_does() -> None:
    trace = simulate(diamond(), workers=1, nthreads=2, **NO_DELAYS)
    makespan = critical_path(trace).makespan_seconds
    # 5 ms and 25 ms of slack: six times as long is just as good.
    longer = {times: replay(trace, Changes(prefixes={"c": float(times)})) for times in (6, 7)}
    assert critical_path(longer[6]).makespan_seconds == makespan
    assert critical_path(longer[7]).makespan_seconds == pytest.approx(makespan + 0.005)
