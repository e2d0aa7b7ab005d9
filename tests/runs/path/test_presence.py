from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.simulated_cluster import EPOCH
from benchmarks.simulated_traces import MS, Graph, simulate
from dask_efficiency import CriticalPath, RunTrace, critical_path
from dask_efficiency.runs.path.presence import without_workers
from dask_efficiency.runs.trace.schema import WorkerChange, WorkerEvents
from tests.runs.trace.samples import traces

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
