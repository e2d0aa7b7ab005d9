from distributed.worker_state_machine import TaskState

from dask_efficiency.simulation.engine.dask_patches import NO_TASKS, SmallTasks


def test_a_task_whose_result_is_there_has_no_empty_sets_until_it_is_gone() -> None:
    task, other = TaskState("x"), TaskState("y")
    task.dependencies.add(other)
    small = SmallTasks({"x": task})
    small.transition("x", "executing", "memory")
    assert task.dependencies == {other}
    assert task.waiters is task.waiting_for_data is NO_TASKS
    assert not task.metadata
    small.transition("x", "memory", "released")
    task.waiters.add(task)
    task.startstops.append({"action": "compute", "start": 1.0, "stop": 2.0})
    assert task.waiting_for_data == set()
    assert not NO_TASKS
    SmallTasks({}).transition("x", "memory", "forgotten")
    # Dask may discard from the empty set, and not add to it.
    NO_TASKS.discard("x")
    NO_TASKS.clear()
    assert not hasattr(NO_TASKS, "add")
