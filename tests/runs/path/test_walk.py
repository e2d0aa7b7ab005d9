from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from dask_efficiency import CriticalPath, RunTrace, critical_path
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.path.kinds import KINDS, Kind
from dask_efficiency.runs.trace.errors import EmptyTraceError
from dask_efficiency.runs.trace.schema import RunOutcome, Shuffled, Transfers, Transitions, WorkerChange
from tests.runs.trace.samples import damaged_traces, traces
from tests.simulated_cluster import EPOCH
from tests.simulated_traces import MS, SAMPLES, Graph, simulate


def tiles(path: CriticalPath) -> bool:
    segments = path.segments
    if path.scope.start == path.scope.stop:
        return len(segments) == 0
    return bool(
        segments.start[0] == path.scope.start
        and segments.stop[-1] == path.scope.stop
        and (segments.start[1:] == segments.stop[:-1]).all()
        and (segments.start < segments.stop).all()
    )


@given(traces())
def test_segments_tile_the_makespan_to_the_nanosecond_and_leave_nothing_unexplained(trace: RunTrace) -> None:
    path = critical_path(trace)
    assert tiles(path)
    assert path.unattributed == 0.0


@given(damaged_traces())
def test_segments_tile_whatever_was_not_recorded_or_contradicts_itself(trace: RunTrace) -> None:
    try:
        path = critical_path(trace)
    except EmptyTraceError:
        return
    assert tiles(path)
    assert sum(path.seconds("kind").values()) == pytest.approx(path.makespan_seconds)


@pytest.mark.parametrize("name", SAMPLES)
def test_no_run_on_the_path_is_walked_through_twice(name: str) -> None:
    segments = critical_path(SAMPLES[name]()).segments
    runs = segments.run[segments.run != MISSING]
    assert len(np.unique(runs)) == 1 + np.count_nonzero(np.diff(runs))


def chain(**changes: object) -> RunTrace:
    """One task after the other on one slot: 10, 20 and 30 ms."""
    graph = Graph(["a", "b", "c"], [[], [0], [1]], [10 * MS, 20 * MS, 30 * MS], [1, 1, 1], {2})
    return simulate(graph, **({"workers": 1, "nthreads": 1, "cpu_share": 0.5} | changes))


def kinds(path: CriticalPath) -> list[str]:
    """The kinds in time order, one that follows on itself once."""
    names = [str(KINDS[i]) for i in path.segments.kind.tolist()]
    return [name for i, name in enumerate(names) if not i or names[i - 1] != name]


def test_while_a_shuffle_s_barrier_runs_the_path_waits_for_its_messages() -> None:
    plain = chain()
    start, stop = (int(column[1]) for column in (plain.runs.start, plain.runs.stop))
    # One from before it to 4 ms after its start, one from 9 ms to 5 ms before its end; and another shuffle's.
    sent, arrived = [start - 7 * MS, stop - 9 * MS, start], [start + 4 * MS, stop - 5 * MS, stop]
    columns = {"task": [1, 1, 0], "sender": [0] * 3, "receiver": [0] * 3, "nbytes": [5] * 3}
    shuffled = Shuffled.from_columns(columns | {"start": sent, "stop": arrived})
    path = critical_path(replace(plain, shuffled=shuffled))
    segments = path.segments.take(path.segments.run == 1)
    named = [(str(KINDS[kind]), stop - start) for kind, start, stop, *_ in segments.rows()]
    assert [pair for pair in named if pair[0] in ("transfer", "compute-cpu", "compute-noncpu")] == [
        ("transfer", 4 * MS),
        ("compute-noncpu", 7 * MS),
        ("transfer", 4 * MS),
        ("compute-noncpu", 5 * MS),
    ]
    assert tiles(path)


def test_a_chain_goes_through_every_step_of_every_task_in_order() -> None:
    a_task = ["scheduler-to-worker", "worker-loop", "executor-handoff", "compute-cpu", "compute-noncpu"]
    a_task += ["worker-loop", "report"]
    # From one task's booking to the next one's message the scheduler makes one transition.
    between = [*a_task, "scheduler-transition", *a_task, "scheduler-transition", *a_task]
    path, phases = critical_path(chain()), chain().phases
    assert kinds(path) == ["client-submit", "graph-update", *between, "result-gather"]
    assert (path.scope.start, path.scope.stop) == (EPOCH, phases.stop.max())
    assert phases.start.min() == EPOCH
    # computing is split in proportion to CPU
    found = path.seconds("kind")
    assert (found["compute-cpu"], found["compute-noncpu"]) == (pytest.approx(0.030), pytest.approx(0.030))


def test_a_task_that_waits_for_a_slot_or_in_the_queue_comes_after_the_task_that_held_it() -> None:
    # Both are sent at once, as one more than there are threads may be.
    graph = Graph(["first", "second"], [[], []], [40 * MS, 5 * MS], [1, 1], {0, 1})
    path = critical_path(simulate(graph, workers=1, nthreads=1))
    assert path.seconds("prefix")["first"] > 0.040
    assert "ready-wait" not in path.seconds("kind")
    # A queued task comes after the one that made room.
    graph = Graph(["t"] * 6, [[]] * 6, [10 * MS] * 6, [1] * 6, set(range(6)))
    path = critical_path(simulate(graph, workers=1, nthreads=1, saturation=1.0))
    assert len(set(path.segments.task.tolist()) - {MISSING}) == 6
    assert "scheduler-queue" not in path.seconds("kind")


def test_a_transfer_is_split_into_its_queue_and_itself() -> None:
    graph = Graph(["a", "b", "c", "both"], [[], [], [], [0, 1, 2]], [MS] * 4, [10_000_000] * 4, {3})
    trace = simulate(graph, workers=4, nthreads=1, bytes_per_second=1e8, incoming_connections=1, spread=True)
    path = critical_path(trace)
    arrived = trace.transfers.stop.max()
    last = trace.transfers.take(trace.transfers.stop == arrived)
    found = path.segments.take(path.segments.kind == KINDS.index(Kind.TRANSFER))
    assert (found.start[-1], found.stop[-1]) == (last.start[0], last.stop[0])
    assert found.sender[-1] == last.sender[0]
    # It had to wait for the two others, as there is one connection.
    assert path.seconds("kind")["transfer-queue"] > path.seconds("kind")["transfer"]


def test_a_failed_try_is_on_the_path_of_the_one_that_succeeds() -> None:
    trace = chain(failing=frozenset({1}))
    path = critical_path(trace)
    tries = np.flatnonzero(trace.runs.task == 1)
    assert len(tries) == 2
    assert set(tries.tolist()) <= set(path.segments.run.tolist())
    assert path.seconds("prefix")["b"] > 0.030


def test_a_task_of_a_killed_worker_is_on_the_path_until_the_worker_left() -> None:
    graph = Graph(["t"], [[]], [50 * MS], [1], {0})
    trace = simulate(graph, workers=2, nthreads=1, dies=(0, 40 * MS))
    path = critical_path(trace)
    left = trace.worker_events.at[trace.worker_events.change == WorkerChange.LEFT][0]
    lost = path.segments.take(path.segments.kind == KINDS.index(Kind.LOST_WORKER))
    assert lost.start[0] == trace.runs.assigned[0]
    assert lost.stop[-1] >= left
    assert "unattributed" not in path.seconds("kind")


def test_a_task_follows_its_own_try_among_those_lost_with_a_worker() -> None:
    # The first and the last are on worker 0, and the last is what the end waits for.
    graph = Graph(["short", "elsewhere", "long"], [[], [], []], [80 * MS, MS, 90 * MS], [1] * 3, {0, 1, 2})
    trace = simulate(graph, workers=2, nthreads=2, dies=(0, 40 * MS), saturation=1.0)
    lost = np.flatnonzero(trace.runs.outcome == RunOutcome.LOST)
    assert trace.runs.task[lost].tolist() == [0, 2]
    path = critical_path(trace)
    assert [run for run in np.unique(path.segments.run).tolist() if run in lost] == [lost[1]]


def test_no_task_waits_for_a_transfer_that_was_still_under_way() -> None:
    trace = SAMPLES["tree"]()
    path = critical_path(trace)
    run = int(path.segments.run[path.segments.run != MISSING][-1])
    first = trace.dependency_starts[trace.runs.task[run]]
    late = {
        "task": [trace.dependencies[first]],
        "sender": [1],
        "receiver": [trace.runs.worker[run]],
        "queued": [trace.runs.received[run] + 1],
        "start": [trace.runs.received[run] + 1],
        "stop": [trace.runs.ready[run] + MS],
        "arrived": [True],
    }
    again = critical_path(replace(trace, transfers=Transfers.from_columns(late)))
    of_run = again.segments.take(again.segments.run == run)
    assert KINDS.index(Kind.TRANSFER) not in of_run.kind


def test_a_stolen_task_waited_where_it_was_taken_from() -> None:
    trace = chain()
    runs = trace.runs
    # The last task waited 7 ms on worker 1 before it was given to worker 0.
    stolen = runs.take(np.array([0, 1, 2, 2]))
    columns = {name: column.copy() for name, column in stolen.columns().items()}
    for name in ("executing", "submitted", "start", "stop", "ended", "reported"):
        columns[name][2] = MISSING
    for name in ("received", "ready", "executing", "submitted", "start", "stop", "ended", "reported", "assigned"):
        columns[name][3] += 7 * MS
    columns["outcome"][2] = 2
    moved = replace(trace, runs=type(runs)(**columns), phases=type(trace.phases).empty(), stop=trace.stop + 7 * MS)
    found = critical_path(moved).seconds("kind")
    # 7 ms, less what it took to hear of it, which the thief's messages then take again.
    waited = 7 * MS - (runs.ready[2] - runs.assigned[2])
    assert found["ready-wait"] == pytest.approx(waited / 1e9)
    assert "unattributed" not in found


def test_a_slot_that_a_seceding_task_left_was_held_until_then() -> None:
    graph = Graph(["first", "second"], [[], []], [40 * MS, 35 * MS], [1, 1], {0, 1})
    trace = simulate(graph, workers=1, nthreads=1, latency=0, loop=0, seceding=frozenset({0}))
    path = critical_path(trace)
    first = path.segments.take(path.segments.task == 0)
    assert first.stop[-1] == trace.runs.seceded[0]
    assert path.seconds("prefix")["second"] > 0.035


def test_a_client_that_waits_before_it_asks_again_is_followed_to_the_result() -> None:
    graph = Graph(["t"], [[]], [10 * MS], [1], {0})
    path = critical_path(simulate([graph, graph, graph]))
    assert path.seconds("kind")["compute-cpu"] + path.seconds("kind")["compute-noncpu"] == pytest.approx(0.030)
    assert kinds(path).count("client-submit") == 3


@pytest.mark.parametrize(
    ("names", "run", "ends"),
    [
        (("submitted",), slice(None), ("executing", "start")),
        (("received", "ready", "executing", "submitted", "start", "stop", "ended"), 1, ("assigned", "reported")),
    ],
)
def test_time_next_to_missing_instants_is_unattributed(names: Any, run: Any, ends: Any) -> None:
    trace = chain()
    columns = {name: getattr(trace.runs, name).copy() for name in names}
    for column in columns.values():
        column[run] = MISSING
    path = critical_path(replace(trace, runs=replace(trace.runs, **columns)))
    first, last = (getattr(trace.runs, name)[run] for name in ends)
    assert path.seconds("kind")["unattributed"] == (last - first).sum() / 1e9


def test_the_path_follows_the_inputs_that_came_last_also_without_transitions_or_transfers() -> None:
    trace = chain()
    path = critical_path(replace(trace, transitions=Transitions.empty()))
    assert path.seconds("kind") == critical_path(trace).seconds("kind")
    moved = critical_path(replace(SAMPLES["transfer-bound"](), transfers=Transfers.empty()))
    assert "transfer" not in moved.seconds("kind")
    assert tiles(moved)
    graph = Graph(["short", "long", "both"], [[], [], [0, 1]], [5 * MS, 50 * MS, MS], [1, 1, 1], {2})
    assert set(critical_path(simulate(graph)).seconds_computing()) == {"long", "both"}
