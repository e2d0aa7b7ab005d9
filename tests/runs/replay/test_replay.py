from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from dask_efficiency import RunTrace, critical_path
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.replay.changes import changes
from dask_efficiency.runs.replay.replay import replay
from dask_efficiency.runs.trace.errors import EmptyTraceError, UnknownNameError
from dask_efficiency.runs.trace.schema import RUN_INSTANTS, Runs
from tests.runs.trace.samples import NO_DELAYS, damaged_traces, traces
from tests.simulated_traces import MS, SAMPLES, Graph, simulate


def seconds(trace: RunTrace) -> float:
    """From the first task's start to the last one's end."""
    return float(trace.runs.stop.max() - trace.runs.start[trace.runs.start != MISSING].min()) / 1e9


def replayed(trace: RunTrace, **changed: Any) -> RunTrace:
    return replay(trace, changes(trace, **changed))


def in_order(runs: Runs) -> Runs:
    return runs.take(np.lexsort((runs.run_id, runs.assigned)))


@pytest.mark.parametrize("name", SAMPLES)
def test_with_nothing_changed_every_instant_is_as_it_was(name: str) -> None:
    trace = SAMPLES[name]()
    again = replay(trace)
    before, after = in_order(trace.runs), in_order(again.runs)
    for column in (*RUN_INSTANTS, "seceded", "worker", "task", "outcome", "after", "cpu_ns", "spill_ns"):
        np.testing.assert_array_equal(getattr(before, column), getattr(after, column), err_msg=column)
    assert again.name == f"{trace.name} (replayed)"
    assert "replay" in again.notes[-1]
    assert len(replay(replace(trace, runs=Runs.empty())).runs) == 0


@given(traces())
def test_with_nothing_changed_any_run_takes_as_long_as_it_did(trace: RunTrace) -> None:
    before, after = critical_path(trace), critical_path(replay(trace))
    assert after.makespan_seconds == pytest.approx(before.makespan_seconds, rel=0.02)


@given(damaged_traces())
def test_every_run_of_a_damaged_trace_is_replayed_once_and_in_order(trace: RunTrace) -> None:
    again = replayed(trace, speed_up=dict.fromkeys(trace.prefixes, 2.0), without=("transfer", "spill", "scheduler"))
    assert sorted(again.runs.run_id.tolist()) == sorted(trace.runs.run_id.tolist())
    assert (np.diff(again.runs.assigned) >= 0).all()
    try:
        path = critical_path(again)
    except EmptyTraceError:
        return
    assert (path.segments.start[1:] == path.segments.stop[:-1]).all()


@given(traces())
def test_no_slot_holds_two_runs_at_once_and_no_run_starts_before_its_inputs(trace: RunTrace) -> None:
    again = replayed(trace, speed_up=dict.fromkeys(trace.prefixes[:1], 3.0), repair=[trace.workers[0].name])
    runs = again.runs
    freed = np.where(runs.seceded != MISSING, runs.seceded, runs.ended)
    rows = np.flatnonzero(runs.executing != MISSING)
    rows = rows[np.lexsort((runs.executing[rows], runs.slot[rows], runs.worker[rows]))]
    first, second = rows[:-1], rows[1:]
    same = (runs.worker[first] == runs.worker[second]) & (runs.slot[first] == runs.slot[second])
    assert (runs.executing[second] >= freed[first])[same].all()
    done = dict(zip(runs.task[runs.outcome == 0].tolist(), runs.reported[runs.outcome == 0].tolist(), strict=True))
    for task, assigned in zip(runs.task.tolist(), runs.assigned.tolist(), strict=True):
        first, last = again.dependency_starts[task], again.dependency_starts[task + 1]
        assert all(done[i] <= assigned for i in again.dependencies[first:last].tolist())


ALONE, TWO_SLOTS = {"workers": 1, "nthreads": 1}, {"workers": 1, "nthreads": 2, "saturation": 2.0}
CHAIN = Graph(["a", "b", "c"], [[], [0], [1]], [10 * MS, 20 * MS, 30 * MS], [1, 1, 1], {2})

#: Seconds of a run, and with changes, worked out by hand: graph, cluster, changes.
KNOWN: dict[str, tuple[Graph, dict[str, Any], dict[str, Any], float, float]] = {
    "10 + 20 + 30 ms one after the other, b in half of its time": (CHAIN, ALONE, {"speed_up": {"b": 2.0}}, 0.06, 0.05),
    "b in twice its time": (CHAIN, ALONE, {"speed_up": {"b": 0.5}}, 0.06, 0.08),
    "50 beside 40 ms, then 10: the longer one ten times as fast leaves 40 + 10, not 5 + 10": (
        Graph(["long", "short", "both"], [[], [], [0, 1]], [50 * MS, 40 * MS, 10 * MS], [1, 1, 1], {2}),
        TWO_SLOTS,
        {"speed_up": {"long": 10.0}},
        0.06,
        0.05,
    ),
    "four of 10 ms on two slots, then twice as fast": (
        Graph(["t"] * 4, [[]] * 4, [10 * MS] * 4, [1] * 4, set(range(4))),
        TWO_SLOTS,
        {"speed_up": {"t": 2.0}},
        0.02,
        0.01,
    ),
    # In 90 ms the fast worker does 9 of 12 tasks of 10 ms, the slow one 3. Repaired, each does 6 in 60 ms; had the
    # tasks stayed where they were, it would be 90 ms again.
    "a slow worker that is repaired takes its share of the queue": (
        Graph(["t"] * 12, [[]] * 12, [10 * MS] * 12, [1] * 12, set(range(12))),
        {"workers": 2, "nthreads": 1, "saturation": 1.0, "slow": {1: 3.0}},
        {"repair": ["w1"]},
        0.09,
        0.06,
    ),
}


@pytest.mark.parametrize(("graph", "cluster", "changed", "before", "after"), KNOWN.values(), ids=KNOWN)
def test_a_replay_takes_as_long_as_worked_out_by_hand(graph, cluster, changed, before, after):
    trace = simulate(graph, **cluster, **NO_DELAYS)
    assert (seconds(trace), seconds(replayed(trace, **changed))) == (before, after)


def test_without_transfers_a_task_has_its_inputs_at_once() -> None:
    # 10 MB at 100 MB/s: 100 ms, give or take a half.
    graph = Graph(["a", "b", "both"], [[], [], [0, 1]], [10 * MS] * 3, [10_000_000] * 3, {2})
    trace = simulate(graph, workers=2, nthreads=1, bytes_per_second=1e8, **NO_DELAYS)
    assert len(trace.transfers) == 1
    again = replayed(trace, without=("transfer",))
    assert seconds(trace) == pytest.approx(0.020 + float(trace.transfers.stop[0] - trace.transfers.queued[0]) / 1e9)
    assert seconds(again) == 0.020
    assert not len(again.transfers)


def test_without_spilling_neither_writing_nor_reading_takes_time() -> None:
    graph = Graph(["a", "b"], [[], [0]], [10 * MS] * 2, [1] * 2, {1})
    trace = simulate(graph, workers=1, nthreads=1, spill=5 * MS, unspill=7 * MS, **NO_DELAYS)
    assert seconds(replayed(trace, without=("spill",))) == 0.020
    assert seconds(trace) > 0.028
    assert not critical_path(replayed(trace, without=("spill",))).seconds("kind").keys() & {"spill", "unspill"}


def test_without_the_scheduler_a_chain_takes_as_long_as_its_work() -> None:
    graph = Graph(["t"] * 5, [[], [0], [1], [2], [3]], [MS] * 5, [1] * 5, {4})
    trace = simulate(graph, workers=1, nthreads=1, latency=2 * MS, loop=0, handoff=0)
    assert seconds(trace) > 0.012
    assert seconds(replayed(trace, without=("scheduler",))) == 0.005
    found = critical_path(replayed(trace, without=("scheduler",))).seconds("kind")
    assert not found.keys() & {"report", "scheduler-to-worker", "scheduler-transition", "graph-update"}


def test_the_next_computation_is_asked_for_as_long_after_the_last_result_as_it_was() -> None:
    graph = Graph(["t"], [[]], [100 * MS], [1], {0})
    trace = simulate([graph, graph], **NO_DELAYS)
    again = replayed(trace, speed_up={"t": 2.0})
    assert again.graphs.received[1] == trace.graphs.received[1] - 50 * MS
    assert again.phases.stop.max() == trace.phases.stop.max() - 100 * MS


def test_a_faster_part_may_make_the_whole_slower() -> None:
    # Graham's anomaly, by hand, on two slots: b ends at 9 ms, and d waits for a slot behind c. When a ends at 10, d
    # gets one and takes until 30; when a ends at 1, "long" gets it, and d follows on that at 11.
    needs, ms = [[], [], [0], [1], [1]], [10, 9, 10, 5, 20]
    graph = Graph(["a", "b", "long", "c", "d"], needs, [n * MS for n in ms], [1] * 5, {2, 3, 4})
    trace = simulate(graph, **TWO_SLOTS, **NO_DELAYS)
    assert (seconds(trace), seconds(replayed(trace, speed_up={"a": 10.0}))) == (0.030, 0.031)


def test_a_killed_worker_dies_when_it_did() -> None:
    trace = SAMPLES["lost-worker"]()
    again = replayed(trace, speed_up={"work": 1.1})
    lost = trace.runs.reported[trace.runs.outcome == 3]
    np.testing.assert_array_equal(np.sort(again.runs.reported[again.runs.outcome == 3]), np.sort(lost))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"speed_up": {"laod": 2.0}}, "no prefix 'laod' in this trace; there is: 'load', 'sum'"),
        ({"without": ["disk"]}, "no part to leave out 'disk' in this trace; there is: 'transfer', 'spill', "),
        ({"repair": ["w9"]}, "no worker 'w9' in this trace; there is: 'w0', 'w1', 'w2', 'w3'"),
        *(({"speed_up": {"load": speed}}, "speed_up['load'] is") for speed in (0, -1.0, float("nan"), "2")),
    ],
)
def test_changes_that_cannot_be_made_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises((UnknownNameError, ValueError)) as caught:
        changes(SAMPLES["tree"](), **changed)
    assert str(caught.value).startswith(message)
