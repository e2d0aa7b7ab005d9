from dataclasses import replace

import pytest

from dask_efficiency import RunTrace
from dask_efficiency.runs.trace.schema import WorkerChange, WorkerEvents
from dask_efficiency.simulation.engine.membership import membership_note, planned_workers
from dask_efficiency.simulation.model.cluster import ClusterSpec
from tests.simulated_traces import MS, Graph, simulate

JOINED, LEFT, RETIRING = WorkerChange.JOINED, WorkerChange.LEFT, WorkerChange.RETIRING


def recorded(*events: tuple[int, int, WorkerChange]) -> RunTrace:
    trace = simulate(Graph(["a"], [[]], [100 * MS], [1], {0}), workers=2, nthreads=1)
    at, worker, change = zip(*events, strict=True) if events else ((), (), ())
    columns = {"at": [trace.start + ns for ns in at], "worker": list(worker), "change": list(change)}
    return replace(trace, worker_events=WorkerEvents.from_columns(columns) if events else WorkerEvents.empty())


def when(trace: RunTrace, cluster: ClusterSpec | None = None) -> list[tuple[int, int, int]]:
    found = planned_workers(trace, cluster or ClusterSpec.from_trace(trace))
    return [(stay.joins, stay.retires, stay.leaves) for stay in found]


def test_workers_join_retire_and_are_lost_when_they_did() -> None:
    assert when(recorded()) == [(0, -1, -1)] * 2
    # A worker that retires leaves when its results have been moved.
    trace = recorded((0, 0, JOINED), (30, 1, JOINED), (50, 0, LEFT), (60, 1, RETIRING), (70, 1, LEFT))
    assert when(trace) == [(0, -1, 50), (30, 60, -1)]
    # One that had left before the start leaves at once.
    assert when(recorded((-20, 0, LEFT), (-10, 1, JOINED), (30, 1, LEFT))) == [(0, -1, 0), (0, -1, 30)]


def test_on_another_cluster_all_workers_are_there_and_noted() -> None:
    assert not membership_note(recorded(), ClusterSpec.from_trace(recorded()))
    trace = recorded((30, 1, JOINED))
    cluster = ClusterSpec.from_trace(trace)
    assert when(trace, cluster.with_workers(3)) == [(0, -1, -1)] * 3
    assert "all are there" in membership_note(trace, cluster.with_workers(3))[0]
    assert "when they did" in membership_note(trace, cluster)[0]


@pytest.mark.parametrize("memory", [1_000_000, 2_000_000])
def test_a_worker_that_takes_the_name_of_a_lost_one_is_another_one(memory: int) -> None:
    trace = recorded((40, 0, LEFT), (60, 1, JOINED))
    trace = replace(trace, workers=(trace.workers[0], replace(trace.workers[1], name=trace.workers[0].name)))
    cluster = ClusterSpec.from_trace(trace).with_workers(1, memory_limit=memory)
    found = planned_workers(trace, cluster)
    assert [(stay.joins, stay.leaves) for stay in found] == [(0, 40), (60, -1)]
    assert [stay.spec.address for stay in found] == [worker.address for worker in trace.workers]
    assert {stay.spec.memory_limit for stay in found} == {memory}
