from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.activity import SlotReservation
from dask_efficiency.gpu.records import TaskId
from dask_efficiency.plugins.worker.threads import TaskThreads


@pytest.fixture
def worker():
    executors = {"default": ThreadPoolExecutor(2), "actor": ThreadPoolExecutor(1)}
    yield SimpleNamespace(
        executors=dict(executors),
        state=SimpleNamespace(threads={}, stimulus_log=[None], executing=set(), long_running=set()),
        active_threads={},
        active_threads_lock=threading.Lock(),
    )
    for executor in executors.values():
        executor.shutdown()


@pytest.fixture
def threads(worker) -> TaskThreads:
    threads = TaskThreads(worker, pytest.fail)
    threads.attach()
    return threads


def task_of(*seen: Any) -> dict[str, Any]:
    """What upstream's function that runs a task gives."""
    return {"op": "task-finished", "thread": threading.get_ident()}


def submit(worker: Any, run: Callable[[], Any]) -> Future[Any]:
    """Submit to a worker's executor as upstream does: a closure over arguments, the worker's table among them."""
    args = (run, worker.active_threads)
    return worker.executors["default"].submit(lambda: args[0]())


def test_the_worker_s_executors_stay_its_own_and_are_left_as_they_were(worker):
    own = dict(worker.executors)
    before = [dict(vars(executor)) for executor in own.values()]
    threads = TaskThreads(worker, pytest.fail)
    threads.attach()
    assert worker.executors == own
    assert submit(worker, task_of).result()["thread"].used
    threads.restore()
    assert worker.executors == own
    assert all("submit" not in vars(executor) for executor in own.values())
    assert [vars(executor).keys() for executor in own.values()] == [attributes.keys() for attributes in before]


def test_an_executor_under_two_names_is_metered_once(worker):
    worker.executors["same"] = worker.executors["default"]
    threads = TaskThreads(worker, pytest.fail)
    threads.attach()
    assert len(threads.metered) == 2
    threads.restore()
    assert "submit" not in vars(worker.executors["same"])


def test_windows_are_noted_from_the_first_question_on(worker, threads):
    submit(worker, task_of).result()
    assert not threads.watched
    assert threads.windows() == []
    assert threads.watched
    run = submit(worker, task_of).result()["thread"]
    start, stop, _ = run.used
    assert threads.windows() == [(TaskId(run, start), stop)]
    assert threads.windows() == []


def test_a_task_that_ran_before_somebody_watched_has_an_end_as_well(worker, threads):
    begun, go_on = threading.Event(), threading.Event()

    def work() -> dict[str, Any]:
        begun.set()
        go_on.wait()
        return task_of()

    future = submit(worker, work)
    begun.wait()
    (running,) = threads.windows()
    worker.active_threads[running.task.thread] = "key"
    assert running.stop == -1
    assert threads.running() == {running.task: "key"}
    go_on.set()
    run = future.result()["thread"]
    assert threads.windows() == [(running.task, run.used[1])]


def test_a_function_that_raises_ends_its_window(worker, threads):
    threads.windows()
    with pytest.raises(ZeroDivisionError):
        submit(worker, lambda: 1 / 0).result()
    assert len(threads.windows()) == 1
    assert threads.windows() == []


def test_what_surrounds_tasks_is_called_in_their_threads_with_their_ids(worker, threads):
    calls: list[tuple[str, Any, int]] = []

    def around(task: TaskId) -> Any:
        calls.append(("before", task, threading.get_ident()))
        return lambda: calls.append(("after", task, threading.get_ident()))

    threads.windows()
    threads.surround(around)
    run = submit(worker, task_of).result()["thread"]
    task = TaskId(run, run.used[0])
    assert calls == [("before", task, run), ("after", task, run)]
    threads.unwatch()
    submit(worker, task_of).result()
    assert len(calls) == 2
    assert not threads.watched


def test_the_window_of_an_ended_task_is_found_by_its_run(worker, threads):
    threads.windows()
    run = submit(worker, task_of).result()["thread"]
    start, stop, cpu = run.used
    worker.state.threads["key"] = run
    assert threads.claim("key", reservation(start - 5, stop + 5)) == ((start, stop, cpu), TaskId(run, start))
    assert threads.cpu() == cpu
    # Part of it lay before its slot was taken: then whose the GPU time was is not known.
    worker.state.threads["key"] = run
    assert threads.claim("key", reservation(start + 1, stop + 5)) == ((start, stop, cpu), None)


def reservation(start: int, stop: int) -> SlotReservation:
    reservation = SlotReservation("inc", "", False, start)
    reservation.ns = stop - start
    return reservation


def overlap(*times: tuple[int, int]) -> Any:
    """How much was spilled between two instants, where it was at these times."""
    return lambda start, stop: sum(max(0, min(last, stop) - max(first, start)) for first, last in times)


def executing(worker: Any, **starts: int) -> dict[object, Any]:
    """Tasks that hold slots since then."""
    worker.state.executing = [
        SimpleNamespace(key=key, start_time=None, annotations=None, run_spec=None) for key in starts
    ]
    return {key: SimpleNamespace(start=start, ns=-1) for key, start in starts.items()}


def no_library(reservation: SlotReservation, waited: int) -> int:
    return 0


def test_a_task_waits_for_spilling_before_its_thread_begins_and_after_it_is_done(worker, threads):
    run = submit(worker, task_of).result()["thread"]
    start, stop, cpu = run.used
    # One is done, which took its slot first; the other has not begun.
    held = executing(worker, first=start - 100, second=start - 50)
    spilled = overlap((start - 60, start - 40), (start, stop), (stop, stop + 30))
    assert threads.so_far(held, spilled, no_library) == {
        "first": (cpu, stop - start, 0, 0, 50),
        "second": (0, 0, 0, 0, 10 + stop - start + 30),
    }
    assert threads.waiting() == 2


def test_a_task_whose_thread_is_at_work_does_not_wait_for_the_loop(worker, threads):
    begun, go_on = threading.Event(), threading.Event()

    def work() -> dict[str, Any]:
        worker.active_threads[threading.get_ident()] = "key"
        begun.set()
        go_on.wait()
        return task_of()

    future = submit(worker, work)
    begun.wait()
    try:
        held = executing(worker, key=0)
        assert threads.waiting() == 0
        used = threads.so_far(held, overlap((5, 10), (1 << 62, 1 << 63)), lambda reservation, waited: waited)["key"]
    finally:
        go_on.set()
    assert (used.gpu, used.library, used.spill) == (0, used.wall - used.cpu, 5)
    future.result()
    assert threads.waiting() == 1
