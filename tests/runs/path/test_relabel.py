from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.simulated_cluster import EPOCH
from benchmarks.simulated_traces import MS, SAMPLES, Graph, simulate
from dask_efficiency import CriticalPath, RunTrace, critical_path
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.path.kinds import KINDS, Kind
from dask_efficiency.runs.path.relabel import loop_causes, relabel, without_workers
from dask_efficiency.runs.path.segments import Segments
from dask_efficiency.runs.trace.schema import BLOCKED_BY, Blocked, Runs, WorkerChange, WorkerEvents
from tests.runs.trace.samples import traces

SCHEDULER = MISSING


def relabelled(
    kind: Kind, blocked: list[tuple[int, int, int]], *, worker: int = 0, sender: int = MISSING, moving: int = 0
) -> list[tuple[str, int, int]]:
    """One segment from 100 to 200, of worker 0; what becomes of it."""
    trace = replace(
        SAMPLES["tree"](),
        runs=Runs.empty(),
        blocked=Blocked.from_columns(
            {
                "worker": [process for process, _, _ in blocked],
                "start": [start for _, start, _ in blocked],
                "stop": [stop for _, _, stop in blocked],
                "moving_ns": [moving] * len(blocked),
            }
        ),
    )
    columns = {"kind": [KINDS.index(kind)], "start": [100], "stop": [200], "worker": [worker], "sender": [sender]}
    found = relabel(Segments.from_columns(columns), trace)
    return [
        (str(KINDS[k]), a, b)
        for k, a, b in zip(found.kind.tolist(), found.start.tolist(), found.stop.tolist(), strict=True)
    ]


@pytest.mark.parametrize("kind", [Kind.REPORT, Kind.SCHEDULER_TO_WORKER, Kind.RESULT_GATHER, Kind.SCHEDULER_QUEUE])
def test_a_blocked_scheduler_is_named(kind: Kind) -> None:
    assert relabelled(kind, [(SCHEDULER, 120, 150)]) == [
        (str(kind), 100, 120),
        ("scheduler-transition", 120, 150),
        (str(kind), 150, 200),
    ]


@pytest.mark.parametrize("kind", [Kind.REPORT, Kind.SCHEDULER_TO_WORKER, Kind.TRANSFER, Kind.READY_WAIT])
def test_a_blocked_worker_is_named(kind: Kind) -> None:
    assert relabelled(kind, [(0, 50, 180)]) == [("worker-loop", 100, 180), (str(kind), 180, 200)]


def test_a_blocked_sender_of_a_transfer_is_named() -> None:
    assert relabelled(Kind.TRANSFER, [(3, 90, 210)], sender=3) == [("worker-loop", 100, 200)]


def test_while_a_loop_moves_data_a_transfer_stays_one_and_the_rest_of_that_time_is_the_loops() -> None:
    for kind in (Kind.TRANSFER, Kind.TRANSFER_QUEUE):
        assert relabelled(kind, [(0, 120, 180)], moving=60) == [(str(kind), 100, 200)]
        assert relabelled(kind, [(0, 120, 180)], moving=20) == [
            (str(kind), 100, 140),
            ("worker-loop", 140, 180),
            (str(kind), 180, 200),
        ]
    assert relabelled(Kind.TRANSFER, [(3, 90, 210)], sender=3, moving=120) == [("transfer", 100, 200)]


def test_while_the_scheduler_passes_results_on_they_are_being_gathered() -> None:
    assert relabelled(Kind.RESULT_GATHER, [(SCHEDULER, 90, 210)], moving=120) == [("result-gather", 100, 200)]


@pytest.mark.parametrize("kind", [Kind.REPORT, Kind.SCHEDULER_TO_WORKER, Kind.READY_WAIT])
def test_a_message_waits_for_the_loop_also_while_that_moves_data(kind: Kind) -> None:
    assert relabelled(kind, [(0, 90, 210)], moving=120) == [("worker-loop", 100, 200)]


@pytest.mark.parametrize("kind", [Kind.COMPUTE_CPU, Kind.GRAPH_UPDATE, Kind.CLIENT_SUBMIT, Kind.SPILL])
def test_what_goes_on_meanwhile_stays_what_it_is(kind: Kind) -> None:
    assert relabelled(kind, [(SCHEDULER, 90, 210), (0, 90, 210)]) == [(str(kind), 100, 200)]


def test_another_worker_that_is_blocked_does_not_matter() -> None:
    assert relabelled(Kind.TRANSFER, [(2, 90, 210)]) == [("transfer", 100, 200)]


def test_a_loop_that_is_blocked_by_the_disk_is_spill_whatever_task_it_is_for() -> None:
    trace = SAMPLES["tree"]()
    runs = Runs.from_columns({"task": [5], "worker": [0], "ended": [180], "spill_ns": [60]})
    segments = Segments.from_columns({"kind": [KINDS.index(Kind.REPORT)], "start": [100], "stop": [200], "worker": [0]})
    blocked = Blocked.from_columns({"worker": [0], "start": [110], "stop": [190]})
    found = relabel(segments, replace(trace, runs=runs, blocked=blocked))
    assert [str(KINDS[kind]) for kind in found.kind] == ["report", "worker-loop", "spill", "worker-loop", "report"]
    assert found.start.tolist() == [100, 110, 120, 180, 190]


@pytest.mark.parametrize("cause", ["spill", "unspill"])
@pytest.mark.parametrize("kind", [Kind.WORKER_LOOP, Kind.REPORT, Kind.SCHEDULER_TO_WORKER, Kind.READY_WAIT])
def test_a_loop_that_spills_because_memory_is_full_is_named_so(kind: Kind, cause: str) -> None:
    segments = Segments.from_columns({"kind": [KINDS.index(kind)], "start": [100], "stop": [200], "worker": [0]})
    # It does not turn from 110 to 190, and most of that is seen to be at the disk; another worker's is not its own.
    blocked = Blocked.from_columns(
        {
            "worker": [0, 0, 1],
            "start": [110, 120, 100],
            "stop": [190, 180, 200],
            "moving_ns": [0, 0, 0],
            "cause": [MISSING, BLOCKED_BY.index(cause), BLOCKED_BY.index(cause)],
        }
    )
    found = relabel(segments, replace(SAMPLES["tree"](), runs=Runs.empty(), blocked=blocked))
    named = [str(KINDS[kind]) for kind in found.kind]
    if kind is Kind.WORKER_LOOP:
        assert named == ["worker-loop", cause, "worker-loop"]
        assert found.start.tolist() == [100, 120, 180]
    else:
        assert named == [str(kind), "worker-loop", cause, "worker-loop", str(kind)]
        assert found.start.tolist() == [100, 110, 120, 180, 190]


def test_what_kept_a_loop_busy_is_counted_where_the_path_waited_for_it() -> None:
    columns = {"kind": [KINDS.index(Kind.WORKER_LOOP)] * 2, "start": [100, 300], "stop": [200, 400], "worker": [0, 1]}
    rows = [(0, 90, 150, "gil"), (0, 150, 170, "computing"), (1, 90, 390, "gil"), (2, 100, 400, "call")]
    blocked = Blocked.from_columns(
        {
            "worker": [row[0] for row in rows],
            "start": [row[1] for row in rows],
            "stop": [row[2] for row in rows],
            "moving_ns": [0] * len(rows),
            "cause": [BLOCKED_BY.index(row[3]) for row in rows],
        }
    )
    found = loop_causes(Segments.from_columns(columns), replace(SAMPLES["tree"](), blocked=blocked))
    assert found == {"gil": (50 + 90) / 1e9, "computing": 20 / 1e9}


@given(
    st.lists(
        st.tuples(st.integers(-1, 4), st.integers(0, 400), st.integers(-5, 400), st.integers(-1, 500)), max_size=30
    ),
    st.sampled_from(sorted(SAMPLES)),
)
@settings(max_examples=100, deadline=None)
def test_whatever_was_blocked_the_segments_tile(intervals: list[tuple[int, int, int, int]], name: str) -> None:
    trace = SAMPLES[name]()
    columns = {
        "worker": [worker for worker, _, _, _ in intervals],
        "start": [trace.start + start * 1_000_000 for _, start, _, _ in intervals],
        "stop": [trace.start + (start + length) * 1_000_000 for _, start, length, _ in intervals],
        "moving_ns": [moving * 1_000_000 for _, _, _, moving in intervals],
        "cause": [moving % (len(BLOCKED_BY) + 1) - 1 for _, _, _, moving in intervals],
    }
    blocked = Blocked.from_columns({key: np.array(column, np.int64) for key, column in columns.items()})
    path = critical_path(replace(trace, blocked=blocked))
    segments = path.segments
    assert (segments.start[1:] == segments.stop[:-1]).all()
    assert (segments.start < segments.stop).all()
    assert (segments.start[0], segments.stop[-1]) == (path.scope.start, path.scope.stop)


JOINED, LEFT = WorkerChange.JOINED, WorkerChange.LEFT


def with_events(trace: RunTrace, *events: tuple[int, int, WorkerChange]) -> CriticalPath:
    at, worker, change = zip(*events, strict=True)
    columns = {"at": list(at), "worker": list(worker), "change": list(change)}
    return critical_path(replace(trace, worker_events=WorkerEvents.from_columns(columns)))


def one_task() -> RunTrace:
    return simulate(Graph(["a"], [[]], [100 * MS], [1], {0}), workers=2, nthreads=1)


def test_work_that_waits_for_any_worker_is_named_so_and_bounds_do_not_count_it() -> None:
    trace = one_task()
    start = int(trace.runs.start[0])
    before = critical_path(trace)
    path = with_events(trace, (start - MS // 2, 0, JOINED), (start - MS // 2, 1, JOINED))
    waited = path.seconds("kind")["no-workers"]
    assert 0 < waited <= (start - MS // 2 - path.scope.start) / 1e9
    assert sum(path.seconds("kind").values()) == pytest.approx(before.makespan_seconds)
    assert path.slots == 2.0
    assert path.slot_bound_seconds == pytest.approx(0.050)


def test_one_worker_is_enough() -> None:
    trace = one_task()
    assert "no-workers" not in with_events(trace, (int(trace.runs.start[0]), 1, JOINED)).seconds("kind")


def test_gaps_are_found_between_workers_that_come_and_go() -> None:
    trace = one_task()
    scope = critical_path(trace).scope
    third = (scope.stop - scope.start) // 3
    a, b = scope.start + third, scope.start + 2 * third
    path = with_events(trace, (EPOCH, 0, JOINED), (a, 0, LEFT), (b, 1, JOINED))
    assert without_workers(path.trace, scope) == [(a, b)]


@given(traces(), st.lists(st.tuples(st.floats(0, 1), st.integers(-1, 5), st.sampled_from(WorkerChange)), max_size=8))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whoever_comes_and_goes_the_segments_tile_the_makespan(
    trace: RunTrace, events: list[tuple[float, int, WorkerChange]]
) -> None:
    scope = critical_path(trace).scope
    if not events:
        return
    span = scope.stop - scope.start
    path = with_events(trace, *sorted((scope.start + int(span * share), w, c) for share, w, c in events))
    segments = path.segments
    assert segments.start[0] == scope.start
    assert segments.stop[-1] == scope.stop
    assert np.array_equal(segments.stop[:-1], segments.start[1:])
    assert (segments.stop > segments.start).all()
    assert path.slots >= 0
