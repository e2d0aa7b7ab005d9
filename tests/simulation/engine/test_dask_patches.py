from __future__ import annotations

import pytest
from distributed.worker_state_machine import TaskState

from dask_efficiency.simulation.engine.dask_patches import NO_TASKS, SmallTasks


@pytest.fixture
def task() -> TaskState:
    return TaskState("x")


def test_a_task_whose_result_is_there_has_no_empty_sets(task: TaskState) -> None:
    other = TaskState("y")
    task.dependencies.add(other)
    SmallTasks({"x": task}).transition("x", "executing", "memory")
    assert task.dependencies == {other}
    assert task.waiters is task.waiting_for_data is NO_TASKS
    assert not task.metadata


def test_a_task_whose_result_is_gone_has_sets_that_can_be_added_to(task: TaskState) -> None:
    small = SmallTasks({"x": task})
    small.transition("x", "flight", "memory")
    small.transition("x", "memory", "released")
    task.waiters.add(task)
    task.startstops.append({"action": "compute", "start": 1.0, "stop": 2.0})
    assert task.waiting_for_data == set()
    assert not NO_TASKS


def test_a_task_that_is_forgotten_is_left_alone() -> None:
    SmallTasks({}).transition("x", "memory", "forgotten")


def test_an_empty_set_of_tasks_can_be_discarded_from_and_not_added_to() -> None:
    NO_TASKS.discard("x")
    NO_TASKS.clear()
    assert not hasattr(NO_TASKS, "add")
