"""Tasks at work at an instant."""

from __future__ import annotations

import numpy as np

from dask_efficiency.gpu.meter import TaskId, TaskWindow
from dask_efficiency.gpu.tasks import NOBODY, TaskTable

A, B = (0x7F00 << 32) + 5, (0x7F00 << 32) + 6


def instants(*at: int) -> np.ndarray:
    return np.array(at, np.int64)


def table(*windows: tuple[int, int, int]) -> TaskTable:
    """Tasks by thread, start and stop, numbered from 0."""
    tasks = TaskTable(str)
    seen = [TaskWindow(TaskId(thread, start), stop, "key") for thread, start, stop in windows]
    tasks.see(seen)
    for window in seen:
        assert tasks.find(window.task) is not None
    return tasks


def test_a_task_is_at_work_from_its_start_to_its_end_with_both() -> None:
    tasks = table((A, 10, 20), (A, 30, -1))
    at = instants(9, 10, 20, 21, 30, 1 << 40)
    numbers, of_tasks = tasks.at_work(np.full(len(at), 5, np.uint32), at)
    assert numbers.tolist() == [NOBODY, 0, 0, NOBODY, 1, 1]
    assert of_tasks.all()


def test_a_thread_without_a_task_is_no_thread_of_tasks() -> None:
    _, of_tasks = table((A, 10, 20)).at_work(np.array([5, 6], np.uint32), instants(15, 15))
    assert of_tasks.tolist() == [True, False]


def test_a_task_is_the_only_one_at_work_up_to_its_very_end() -> None:
    tasks = table((A, 10, 20), (B, 15, 30))
    assert tasks.only_one(instants(9, 10, 14, 15, 20, 21, 30, 31)).tolist() == [-1, 0, 0, -1, -1, 1, 1, -1]


def test_of_several_at_work_the_only_one_that_uses_the_gpu_counts() -> None:
    tasks = table((A, 10, 20), (B, 15, 30))
    task = tasks.numbered(1)
    assert task is not None
    task.calls = True
    assert tasks.only_one(instants(12, 17, 25)).tolist() == [0, 1, 1]


def test_windows_may_come_in_any_order_and_end_later() -> None:
    tasks = table((A, 30, -1), (A, 10, 20))
    tasks.see([TaskWindow(TaskId(A, 30), 40, "key")])
    numbers, _ = tasks.at_work(np.full(4, 5, np.uint32), instants(15, 25, 35, 45))
    assert numbers.tolist() == [1, NOBODY, 0, NOBODY]
    task = tasks.numbered(0)
    assert task is not None
    assert task.stop == 40


def test_old_windows_are_forgotten() -> None:
    tasks = table((A, 10, 20), (B, 10, 60))
    tasks.forget_windows(50)
    numbers, of_tasks = tasks.at_work(np.array([5, 6], np.uint32), instants(15, 15))
    assert (numbers.tolist(), of_tasks.tolist()) == ([NOBODY, 1], [False, True])


def test_an_account_is_opened_when_a_task_is_looked_up() -> None:
    tasks = TaskTable(str.upper)
    tasks.see([TaskWindow(TaskId(A, start), start + 5, "key") for start in (10, 20, 30)])
    assert tasks.opened == []
    numbers, _ = tasks.at_work(np.full(3, 5, np.uint32), instants(22, 24, 27))
    assert numbers.tolist() == [0, 0, NOBODY]
    assert [(task.id, task.prefix, task.stop) for task in tasks.opened] == [(TaskId(A, 20), "KEY", 25)]
    assert tasks.find(TaskId(A, 11)) is None
    assert tasks.find(TaskId(B, 10)) is None
    assert tasks.only_one(instants(31)).tolist() == [1]


def test_a_window_that_is_forgotten_is_not_seen_once_more() -> None:
    tasks = table((A, 10, 20))
    tasks.forget_windows(50)
    tasks.see([TaskWindow(TaskId(A, 10), 20, "key"), TaskWindow(TaskId(A, 60), -1, "key")])
    assert (tasks.find(TaskId(A, 10)), tasks.find(TaskId(A, 60)) is None) == (None, False)


def test_the_end_of_a_task_that_was_seen_running_is_never_too_late() -> None:
    tasks = table((A, 10, -1), (B, 10, 60))
    tasks.forget_windows(50)
    tasks.see([TaskWindow(TaskId(A, 10), 20, "key")])
    task = tasks.find(TaskId(A, 10))
    assert task is not None
    assert task.stop == 20
    tasks.forget_windows(70)
    tasks.see([TaskWindow(TaskId(A, 10), 20, "key")])
    numbers, of_tasks = tasks.at_work(np.array([5, 6], np.uint32), instants(15, 15))
    assert (numbers.tolist(), of_tasks.tolist()) == ([NOBODY, NOBODY], [False, False])


def test_a_thread_may_be_in_a_call_since_its_last_one() -> None:
    tasks = table((A, 10, 20), (A, 30, -1), (B, 40, 90))
    assert [tasks.asking_since(at) for at in (5, 15, 25, 35, 45, 95)] == [5, 10, 25, 30, 30, 30]
    task = tasks.find(TaskId(A, 30))
    assert task is not None
    task.last_call = 80
    assert [tasks.asking_since(at) for at in (75, 85, 95)] == [40, 40, 80]
