"""Attribution of calls that are nested, recorded into graphs, late, or without an operation."""

from __future__ import annotations

import numpy as np
import pytest

from dask_efficiency.gpu import attribution as attribution_module
from dask_efficiency.gpu.attribution import MAX_AGE, Attribution, Joined
from dask_efficiency.gpu.meter import (
    BEGINS_GRAPH,
    BLOCKS,
    CALL,
    ENDS_GRAPH,
    KERNEL,
    OPERATION,
    RETURNS,
    SPINS,
    GpuBatch,
    TaskId,
    TaskWindow,
)
from dask_efficiency.gpu.tasks import NOBODY, TaskTable

A = (0x7F00 << 32) + 5
LOW = 5


def fed(*windows: tuple[int, int]) -> tuple[TaskTable, Attribution]:
    """Tasks of one thread, numbered from 0."""
    tasks = TaskTable(str)
    tasks.see([TaskWindow(TaskId(A, start), stop, "key") for start, stop in windows])
    for start, _ in windows:
        tasks.find(TaskId(A, start))
    return tasks, Attribution(tasks)


def join(
    attribution: Attribution,
    *,
    calls: list[tuple[int, int, int, int, int]] = [],  # noqa: B006
    ops: list[tuple[int, int, int]] = [],  # noqa: B006
    known: int = 1000,
    **options: bool,
) -> Joined:
    """Calls are (start, end, thread, correlation, waits), operations (start, end, correlation)."""
    operations = np.array([(start, end, 0, 7, correlation, KERNEL, 0) for start, end, correlation in ops], OPERATION)
    return attribution.join(GpuBatch(operations, np.array(calls, CALL), known_until=known), **options)


def owners(found: Joined) -> dict[int, int]:
    """Owner by correlation."""
    return dict(zip(found.work["correlation"].tolist(), found.work["owner"].tolist(), strict=True))


def test_an_operation_belongs_to_the_task_in_whose_window_its_call_began() -> None:
    _, attribution = fed((10, 50), (60, 90))
    calls = [(20, 21, LOW, 1, RETURNS), (50, 55, LOW, 2, RETURNS), (70, 71, LOW, 3, RETURNS)]
    found = join(attribution, calls=calls, ops=[(25, 30, 1), (80, 85, 3), (56, 57, 2)])
    assert owners(found) == {1: 0, 2: 0, 3: 1}
    assert found.work["asked"].tolist() == [20, 70, 50]
    assert found.complete_until == 1000
    assert (found.callers.tolist(), found.last_calls.tolist()) == ([0, 1], [55, 71])


def test_a_graph_has_many_operations_in_many_batches() -> None:
    _, attribution = fed((10, 50))
    first = join(attribution, calls=[(20, 21, LOW, 1, RETURNS)], ops=[(25, 30, 1), (30, 35, 1)], known=40)
    later = join(attribution, ops=[(45, 50, 1)], known=60)
    assert [*first.work["owner"], *later.work["owner"]] == [0, 0, 0]


@pytest.mark.parametrize("answered", [1, 2])
def test_either_of_a_runtime_call_and_the_drivers_call_in_it_may_have_the_operation(answered: int) -> None:
    _, attribution = fed((10, 50))
    calls = [(22, 23, LOW, 2, RETURNS), (20, 25, LOW, 1, RETURNS)]
    assert join(attribution, calls=calls, known=100).complete_until == 20
    found = join(attribution, ops=[(30, 110, answered)], known=200)
    assert found.complete_until == 200
    assert found.work["owner"].tolist() == [0]


def test_two_calls_of_one_correlation_are_one_call() -> None:
    _, attribution = fed((10, 50))
    found = join(attribution, calls=[(22, 23, LOW, 1, RETURNS), (20, 25, LOW, 1, RETURNS)], ops=[(30, 40, 1)])
    assert found.complete_until == 1000


def test_a_call_under_way_between_two_batches_is_not_waited_for() -> None:
    _, attribution = fed((10, 500))
    join(attribution, calls=[(22, 23, LOW, 2, RETURNS)], known=24)
    found = join(attribution, calls=[(20, 25, LOW, 1, RETURNS)], ops=[(30, 40, 1)], known=100)
    assert found.complete_until == 100


@pytest.mark.parametrize("later", [0, 1, 2, 3])
def test_calls_that_are_recorded_into_a_graph_are_not_waited_for(later: int) -> None:
    """In one batch, or over two."""
    _, attribution = fed((10, 500))
    calls = [
        (20, 21, LOW, 0, BEGINS_GRAPH),
        (22, 23, LOW, 1, RETURNS),
        (60, 61, LOW, 2, RETURNS),
        (80, 81, LOW, 0, ENDS_GRAPH),
        (85, 86, LOW, 3, RETURNS),
    ]
    known = calls[later][0]
    assert join(attribution, calls=calls[:later], known=known).complete_until == known
    assert join(attribution, calls=calls[later:], known=100).complete_until == 85


def test_an_operation_before_its_call_waits_for_one_batch() -> None:
    _, attribution = fed((10, 500))
    first = join(attribution, ops=[(30, 40, 1), (31, 41, 9)], known=50)
    assert len(first.work) == 0
    assert first.complete_until == 30
    second = join(attribution, calls=[(20, 60, LOW, 1, SPINS)], known=70)
    assert owners(second) == {1: 0, 9: NOBODY}
    assert second.complete_until == 70


def test_at_the_end_nothing_waits() -> None:
    _, attribution = fed((10, 15))
    found = join(attribution, calls=[(30, 31, LOW, 1, RETURNS)], ops=[(30, 40, 2), (32, 33, 1)], final=True)
    assert found.work["owner"].tolist() == [NOBODY, NOBODY]


@pytest.mark.parametrize(
    ("windows", "owner", "waits"), [([TaskWindow(TaskId(A, 25), -1, "key")], 1, [1]), ([], NOBODY, [])]
)
def test_a_call_in_no_known_window_waits_for_one_batch(windows: list[TaskWindow], owner: int, waits: list[int]) -> None:
    tasks, attribution = fed((10, 15))
    first = join(attribution, calls=[(30, 31, LOW, 1, BLOCKS)], ops=[(32, 33, 1)], known=40)
    assert (len(first.work), first.complete_until) == (0, 30)
    tasks.see(windows)
    second = join(attribution, known=50)
    assert (second.work["owner"].tolist(), second.complete_until) == ([owner], 50)
    assert second.waits["owner"].tolist() == waits


def test_a_call_of_another_thread_is_never_a_wait_of_the_task() -> None:
    _, attribution = fed((10, 50))
    found = join(attribution, calls=[(20, 30, 77, 1, SPINS)], ops=[(22, 25, 1)])
    assert found.work["owner"].tolist() == [0]
    assert len(found.waits) == 0


def test_calls_without_an_operation_are_kept_for_a_minute() -> None:
    _, attribution = fed((10, -1))
    join(attribution, calls=[(20, 21, LOW, 1, RETURNS)], known=30)
    assert join(attribution, known=MAX_AGE).complete_until == 20
    assert join(attribution, known=MAX_AGE + 21).complete_until == MAX_AGE + 21


def test_of_too_many_calls_those_with_an_operation_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attribution_module, "MAX_CALLS", 10)
    _, attribution = fed((10, -1))
    calls = [(20 + 2 * index, 21 + 2 * index, LOW, 1 + index, RETURNS) for index in range(8)]
    join(attribution, calls=calls, ops=[(40, 41, correlation) for correlation in range(2, 9)], known=50)
    more = [(100 + 2 * index, 101 + 2 * index, LOW, 101 + index, RETURNS) for index in range(8)]
    join(attribution, calls=more, ops=[(130, 131, 101 + index) for index in range(8)], known=140)
    assert sum(len(asked.start) for asked in attribution._asked) <= 10
    found = join(attribution, ops=[(30, 200, 1)], known=250)
    assert found.work["owner"].tolist() == [0]
    assert found.complete_until == 250
