from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from benchmarks.simulated_cluster import EPOCH
from benchmarks.simulated_traces import MS, SAMPLES, Graph, simulate
from dask_efficiency import RunTrace, critical_path
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.path.kinds import COMPUTE, KINDS
from dask_efficiency.runs.replay.changes import Changes
from dask_efficiency.runs.replay.replay import replay_with
from dask_efficiency.runs.trace.errors import EmptyTraceError
from dask_efficiency.runs.trace.schema import WorkerChange, WorkerEvents
from dask_efficiency.show.finding import MAX_HEADLINE
from tests.runs.trace.samples import damaged_traces, traces

NO_DELAYS = {"latency": 0, "scheduler_message": 0, "scheduler_task": 0, "handoff": 0, "loop": 0}


def diamond() -> Graph:
    """a (10), then b (30) beside c (5), then d (20): the longest path is 60 ms of 65."""
    return Graph(["a", "b", "c", "d"], [[], [0], [0], [1, 2]], [10 * MS, 30 * MS, 5 * MS, 20 * MS], [1] * 4, {3})


def test_tasks_that_each_worker_has_one_of_are_no_single_long_task() -> None:
    def said(ms: list[int], workers: int) -> bool:
        alone = [[] for _ in ms]
        graph = Graph(["fit"] * len(ms), alone, [n * MS for n in ms], [1] * len(ms), set(range(len(ms))))
        return not critical_path(simulate(graph, workers=workers, nthreads=1)).to_summary().divisible

    assert said([90, 100], 2)
    assert said([90, 100, 60], 3)
    assert not said([40, 100], 2)
    assert not said([100], 1)
    assert not said([100] * 4, 2)
    path = critical_path(simulate(diamond(), workers=2, nthreads=1))
    assert path.to_summary().divisible
    assert not path.to_summary({"b"}).divisible
    assert path.to_summary({"a"}).divisible


def test_one_task_that_is_much_longer_than_the_others_of_its_prefix_is_to_be_split() -> None:
    def said(ms: list[int], prefixes: list[str] | None = None) -> bool:
        names = prefixes or ["load"] * len(ms)
        graph = Graph(names, [[] for _ in ms], [n * MS for n in ms], [1] * len(ms), set(range(len(ms))))
        return critical_path(simulate(graph, workers=2, nthreads=1)).findings[0].kind == "path/uneven-task"

    assert said([10] * 40 + [80])  # a third of the run
    assert not said([10] * 40 + [30])
    assert not said([30] * 10 + [80])
    # Others of another prefix are another matter.
    assert not said([10] * 40 + [80], ["load"] * 40 + ["sum"])


def test_the_floor_is_the_longest_path_of_pure_computing() -> None:
    for cluster in ({"workers": 1, "nthreads": 1}, {"workers": 2, "nthreads": 2}):
        assert critical_path(simulate(diamond(), **cluster)).floor_seconds == 0.060


def test_the_slot_bound_is_work_by_slots() -> None:
    assert critical_path(simulate(diamond(), workers=2, nthreads=2)).slot_bound_seconds == pytest.approx(0.065 / 4)


def test_a_worker_that_came_late_has_fewer_slots_to_give() -> None:
    trace = simulate(diamond(), workers=2, nthreads=1)
    path = critical_path(trace)
    half = (path.scope.start + path.scope.stop) // 2
    events = WorkerEvents.from_columns(
        {"at": [EPOCH, half], "worker": [0, 1], "change": [WorkerChange.JOINED, WorkerChange.JOINED]}
    )
    assert critical_path(replace(trace, worker_events=events)).slots == pytest.approx(1.5)


def test_a_worker_that_left_has_none_from_then_on() -> None:
    trace = simulate(diamond(), workers=2, nthreads=1)
    path = critical_path(trace)
    half = (path.scope.start + path.scope.stop) // 2
    events = WorkerEvents.from_columns({"at": [half], "worker": [1], "change": [WorkerChange.LEFT]})
    assert critical_path(replace(trace, worker_events=events)).slots == pytest.approx(1.5)


@given(traces())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_run_is_faster_than_its_floor_and_its_slots_allow(trace: RunTrace) -> None:
    path = critical_path(trace)
    assert path.floor_seconds <= path.makespan_seconds
    # Work in slots; seceded tasks are outside of them.
    if not (trace.runs.seceded != MISSING).any():
        assert path.slot_bound_seconds <= path.makespan_seconds * (1 + 1e-12)


@given(traces())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_computes_on_the_path_has_nothing_to_spare(trace: RunTrace) -> None:
    path = critical_path(trace)
    computing = np.isin(path.segments.kind, [KINDS.index(kind) for kind in COMPUTE])
    runs = np.unique(path.segments.run[computing])
    # A task that gives its slot away ends when it likes.
    runs = runs[trace.runs.seceded[runs] == MISSING]
    assert (path.run_slack_ns[runs] == 0).all()


@given(damaged_traces())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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


def test_slack_is_what_a_task_could_have_taken_longer() -> None:
    # c ends 25 ms before b does.
    trace = simulate(diamond(), workers=1, nthreads=2, **NO_DELAYS)
    slack = critical_path(trace).slack()
    assert slack.to_dict() == {"a-0": 0.0, "b-1": 0.0, "c-2": 0.025, "d-3": 0.0}


def waiting_for_a_slot() -> RunTrace:
    """Two slots: a (10) and then e (40), b (30) and then c (30), which needs a and was ready 20 ms before b ended."""
    graph = Graph(["a", "b", "e", "c"], [[], [], [], [0]], [10 * MS, 30 * MS, 40 * MS, 30 * MS], [1] * 4, {1, 2, 3})
    return simulate(graph, workers=1, nthreads=2, saturation=2.0, **NO_DELAYS)


def test_an_input_may_be_late_by_as_long_as_its_task_waits_for_a_slot() -> None:
    # a could end 20 ms later for c, but e, which follows on it, has only 10 to spare.
    assert critical_path(waiting_for_a_slot()).slack().to_dict() == {"a-0": 0.01, "b-1": 0.0, "e-2": 0.01, "c-3": 0.0}


def test_what_holds_a_slot_that_is_waited_for_has_no_more_to_spare_than_what_waits() -> None:
    # It takes the event loop 1 us to hand the slot on, which is no slack.
    trace = waiting_for_a_slot()
    executing = trace.runs.executing + np.where(trace.runs.after != MISSING, 1000, 0)
    path = critical_path(replace(trace, runs=replace(trace.runs, executing=executing)))
    assert path.slack()["b-1"] == 0.0


def test_a_task_that_uses_up_its_slack_does_not_delay_the_end_and_more_does() -> None:
    trace = simulate(diamond(), workers=1, nthreads=2, **NO_DELAYS)
    makespan = critical_path(trace).makespan_seconds
    # 5 ms and 25 ms of slack: six times as long is just as good.
    longer = {times: replay_with(trace, Changes(prefixes={"c": float(times)})) for times in (6, 7)}
    assert critical_path(longer[6]).makespan_seconds == makespan
    assert critical_path(longer[7]).makespan_seconds == pytest.approx(makespan + 0.005)


def test_tasks_that_did_not_end_have_no_slack() -> None:
    trace = SAMPLES["tree"]()
    reported = trace.runs.reported.copy()
    reported[0] = MISSING
    path = critical_path(replace(trace, runs=replace(trace.runs, reported=reported)))
    assert path.run_slack_ns[0] == MISSING
    assert len(path.slack()) == len(trace.runs) - 1
