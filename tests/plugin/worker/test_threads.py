from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.accounts.worker.activity import SlotReservation
from dask_efficiency.accounts.worker.log import Run
from dask_efficiency.gpu.records import TaskId
from dask_efficiency.plugin.worker.threads import TaskThreads
from tests.plugin.worker.test_task_meter import Worker


@pytest.fixture
def worker():
    worker = Worker()
    worker.pool = ThreadPoolExecutor(2)
    worker.executors = {"default": worker.pool, "processes": object()}
    worker.state = SimpleNamespace(stimulus_log=[None], executing=set(), long_running=set())
    yield worker
    worker.pool.shutdown()


@pytest.fixture
def threads(worker) -> Iterator[TaskThreads]:
    threads = TaskThreads(worker)
    threads.attach()
    yield threads
    threads.restore()


def submit(worker: Any, function: Callable[[], Any] = int, key: str = "key") -> Future[Any]:
    """A task, in a thread of the worker's."""
    return worker.pool.submit(worker.run, function, key)


def ran(worker: Any, threads: TaskThreads, key: str = "key") -> Run:
    """What a task used that has run."""
    submit(worker, key=key).result()
    return threads.meter.done[key]


class Going:
    """A task that is at work until the block ends."""

    def __init__(self, worker: Any) -> None:
        self._begun, self._go_on = threading.Event(), threading.Event()
        self._future = submit(worker, self._work)

    def _work(self) -> None:
        self._begun.set()
        self._go_on.wait()

    def __enter__(self) -> None:
        self._begun.wait()

    def __exit__(self, *raised: object) -> None:
        self._go_on.set()
        self._future.result()


def test_threads_of_tasks_are_those_of_the_thread_pools(worker, threads):
    assert threads.native_ids() == set()
    native_id = worker.pool.submit(threading.get_native_id).result()
    assert threads.native_ids() == {native_id}


def test_the_cpu_of_all_tasks_counts_those_that_run_and_have_just_ended(worker, threads):
    first = ran(worker, threads, "first")
    second = ran(worker, threads, "second")
    assert threads.cpu() == first[2] + second[2]
    threads.claimed += threads.meter.done.pop("first")[2]
    assert threads.cpu() == first[2] + second[2]
    with Going(worker):
        assert threads.cpu() >= first[2] + second[2]


def test_runs_of_which_the_event_loop_never_hears_are_not_kept_for_ever(worker, threads, monkeypatch):
    monkeypatch.setattr("dask_efficiency.plugin.worker.threads.MAX_UNCLAIMED", 3)
    cpu = sum(ran(worker, threads, str(i))[2] for i in range(5))
    assert threads.cpu() == cpu
    assert list(threads.meter.done) == ["2", "3", "4"]


def test_windows_are_noted_from_the_first_question_on(worker, threads):
    ran(worker, threads)
    assert not threads.watched
    assert threads.windows() == []
    assert threads.watched
    start, stop, _, ident, _ = ran(worker, threads)
    assert threads.windows() == [(TaskId(ident, start), stop, "key")]
    assert threads.windows() == []


def test_a_task_that_ran_before_somebody_watched_has_an_end_as_well(worker, threads):
    with Going(worker):
        (running,) = threads.windows()
        assert (running.stop, running.key) == (-1, "key")
    assert threads.windows() == [(running.task, threads.meter.done["key"][1], "key")]


def test_a_task_that_fails_ends_its_window(worker, threads):
    threads.windows()
    submit(worker, lambda: 1 / 0).result()
    assert len(threads.windows()) == 1
    assert threads.windows() == []


def test_what_surrounds_tasks_is_called_in_their_threads_with_their_ids_and_keys(worker, threads):
    calls: list[tuple[str, Any, int]] = []

    def around(task: TaskId, key: str) -> Any:
        assert key == "key"
        calls.append(("before", task, threading.get_ident()))
        return lambda: calls.append(("after", task, threading.get_ident()))

    threads.windows()
    threads.surround(around)
    start, _, _, ident, _ = ran(worker, threads)
    task = TaskId(ident, start)
    assert calls == [("before", task, ident), ("after", task, ident)]
    threads.unwatch()
    ran(worker, threads)
    assert len(calls) == 2
    assert not threads.watched


def test_a_profile_ends_where_the_gpu_s_meter_fails_to_begin(worker, threads):
    calls: list[str] = []
    threads.profile(lambda task, key: lambda: calls.append("ended"))
    threads.surround(lambda task, key: 1 // 0)
    assert submit(worker, lambda: calls.append("ran")).result() is not None
    assert calls == ["ended", "ran"]


def test_profiles_are_around_what_the_gpu_s_meter_puts_around_a_task(worker, threads):
    calls: list[str] = []

    def noting(name: str) -> Any:
        def around(task: TaskId, key: str) -> Any:
            calls.append(f"{name} {key}")
            return lambda: calls.append(f"after {name}")

        return around

    threads.surround(noting("gpu"))
    threads.profile(noting("profile"))
    ran(worker, threads)
    assert calls == ["profile key", "gpu key", "after gpu", "after profile"]
    threads.unwatch()
    ran(worker, threads)
    assert calls[4:] == ["profile key", "after profile"]
    threads.profile(None)
    assert threads.meter.around is None


def test_one_of_them_may_have_nothing_to_do_for_a_task(worker, threads):
    calls: list[str] = []
    threads.surround(lambda task, key: lambda: calls.append("after"))
    threads.profile(lambda task, key: None)
    ran(worker, threads)
    assert calls == ["after"]


def test_of_a_task_that_ran_in_no_thread_of_ours_upstream_says_how_long(worker, threads):
    assert threads.told_elsewhere("key") == 0
    worker.state.stimulus_log.append(SimpleNamespace(key="key", start=5.0, stop=5.0 + 600e-9))
    assert threads.told_elsewhere("another") == 0
    assert threads.told_elsewhere("key") == 600
    worker.state.stimulus_log.append(SimpleNamespace(key="key", start=6.0, stop=5.0))
    assert threads.told_elsewhere("key") == 0
    assert threads.elsewhere(1_000, 600) == (1_000, 1_600, 0, 0, -1)
    assert threads.elsewhere(2_000, 0) == (2_000, 2_000, 0, 0, -1)
    assert threads.not_measured == 600


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
    start, stop, cpu, *_ = ran(worker, threads, "first")
    # One is done, which took its slot first; the other has not begun.
    held = executing(worker, first=start - 100, second=start - 50)
    spilled = overlap((start - 60, start - 40), (start, stop), (stop, stop + 30))
    assert threads.so_far(held, spilled, no_library) == {
        "first": (cpu, stop - start, 0, 0, 50),
        "second": (0, 0, 0, 0, 10 + stop - start + 30),
    }
    assert threads.waiting() == 2


def test_a_task_whose_thread_is_at_work_does_not_wait_for_the_loop(worker, threads):
    with Going(worker):
        held = executing(worker, key=0)
        assert threads.waiting() == 0
        used = threads.so_far(held, overlap((5, 10), (1 << 62, 1 << 63)), lambda reservation, waited: waited)["key"]
    assert (used.gpu, used.library, used.spill) == (0, used.wall - used.cpu, 5)
    assert threads.waiting() == 1


@pytest.mark.parametrize(
    "task", [{"annotations": {"executor": "processes"}}, {"run_spec": SimpleNamespace(is_coro=True)}, {}]
)
def test_what_is_measured_in_no_thread_is_at_work_since_upstream_began_it(worker, threads, task):
    if not task:
        threads.restore()  # there is no meter
    worker.state.executing = [
        SimpleNamespace(**{"key": "x", "start_time": 0.0, "annotations": {}, "run_spec": None, **task})
    ]
    used = threads.so_far({"x": SlotReservation("inc", "", "", 0)}, overlap((0, 10)), no_library)["x"]
    assert used.wall > 1e18
    assert (used.cpu, used.spill) == (0, 0)
    assert threads.waiting() == 0
