from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import wraps
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import pytest
from dask._task_spec import Task
from distributed import Client, Reschedule, Scheduler
from distributed import Worker as RealWorker
from distributed import worker as upstream
from distributed.utils import _offload_executor

from dask_efficiency import EfficiencyPlugin, snapshot
from dask_efficiency.accounts.worker.log import Run
from dask_efficiency.accounts.worker.reservations import SlotReservation
from dask_efficiency.gpu.meter import TaskId
from dask_efficiency.plugin.worker import threads as module
from dask_efficiency.plugin.worker.process_memory import MIN_TASK_NS
from dask_efficiency.plugin.worker.threads import TaskThreads
from tests.plugin.tasks import burn, spin
from tests.plugin.watch import near

MILLISECOND = 1_000_000

RUN_TASK, RUN_ACTOR = upstream._run_task, upstream._run_actor


def as_upstream_has_them() -> bool:
    return upstream._run_task is RUN_TASK and upstream._run_actor is RUN_ACTOR


class Worker:
    """Runs functions as a worker runs tasks, in the calling thread."""

    def __init__(self) -> None:
        self.active_threads: dict[int, Any] = {}
        self.active_threads_lock = threading.Lock()
        self.pool = ThreadPoolExecutor(2)
        self.executors = {"default": self.pool, "processes": object()}
        self.state = SimpleNamespace(stimulus_log=[None], executing=set(), long_running=set())
        self.threads = TaskThreads(self)  # type: ignore[arg-type]

    def run(self, function: Callable[[], Any], key: str = "x") -> Any:
        """Upstream's message of a task."""
        table, lock = self.active_threads, self.active_threads_lock
        return upstream._run_task(Task(key, function), {}, {"worker": None}, key, table, lock, 0.0)

    def call(self, method: Callable[..., Any], *args: Any) -> Any:
        """Result of a method of an actor."""
        table, lock = self.active_threads, self.active_threads_lock
        return upstream._run_actor(method, args, {}, {"worker": None}, "actor", table, lock)

    def metered(self) -> bool:
        """True if a task is metered, which runs as ever."""
        assert self.run(lambda: 7)["result"] == 7
        return self.threads.done.pop("x", None) is not None


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    worker.threads.attach()
    yield worker
    worker.threads.detach()
    worker.pool.shutdown()
    assert as_upstream_has_them()


@pytest.fixture
def threads(worker: Worker) -> TaskThreads:
    return worker.threads


def test_cpu_and_wall_time_of_a_task_are_found_by_its_key(worker):
    with ThreadPoolExecutor(1) as pool:
        ident = pool.submit(threading.get_ident).result()
        before = time.monotonic_ns()
        assert pool.submit(worker.run, lambda: burn(0.05), "key").result()["op"] == "task-finished"
        after = time.monotonic_ns()
    start, stop, cpu, thread, native_id = worker.threads.done["key"]
    assert before <= start <= stop <= after
    assert 50 * MILLISECOND <= cpu <= stop - start + MILLISECOND
    assert (thread, native_id) == (ident, -1)
    worker.threads.recording = True  # then the native thread id is noted
    worker.run(lambda: time.sleep(0.05))
    start, stop, cpu, _, native_id = worker.threads.done["x"]
    assert stop - start >= 50 * MILLISECOND
    assert cpu < 40 * MILLISECOND
    assert native_id == threading.get_native_id()


class Readings:
    """Readings of memory, which say whether they were taken."""

    def __init__(self) -> None:
        self.measures_from = self.ended = 0
        self.begun: list[int] = []

    def begin(self, others: int) -> Any:
        self.begun.append(others)
        return len(self.begun)

    def end(self, begun: Any, others: int) -> Any:
        return begun, others


def test_the_memory_of_a_long_task_is_measured_if_the_one_before_was_as_long_or_ended_as_long_ago(monkeypatch):
    clock, readings = SimpleNamespace(now=100 * MIN_TASK_NS), Readings()
    monkeypatch.setattr(module, "monotonic_ns", lambda: clock.now)
    monkeypatch.setattr(module, "PROCESS_MEMORY", readings)
    worker = Worker()
    worker.threads.attach()

    def runs(key: str, ns: int) -> Any:
        def task() -> None:
            clock.now += ns

        worker.run(task, key)
        return worker.threads.worked.pop(key, None)

    try:
        assert runs("not asked", MIN_TASK_NS) is None
        worker.threads.measures_memory = True
        assert runs("long", MIN_TASK_NS) == (1, 0)
        assert readings.ended == clock.now
        assert runs("short", MIN_TASK_NS - 1) is None
        assert runs("at once", MIN_TASK_NS) is None
        assert len(readings.begun) == 2
        assert runs("after a long one", MIN_TASK_NS) == (3, 0)
        runs("short", 1)
        clock.now += MIN_TASK_NS
        assert runs("later", MIN_TASK_NS) == (5, 0)
        worker.threads.live[1] = clock.now, 0, "another"
        assert runs("beside another", MIN_TASK_NS) == (6, 1)
        assert readings.begun == [0, 0, 0, 0, 0, 1]
    finally:
        worker.threads.detach()
        worker.pool.shutdown()


def test_a_failure_of_a_task_or_of_upstream_passes_through_and_leaves_nothing_behind(worker):
    error = ValueError("of a task")

    def fail() -> None:
        raise error

    assert worker.run(fail)["actual_exception"] is error
    worker.active_threads_lock = None
    with pytest.raises(TypeError):
        worker.run(fail, "y")
    assert worker.threads.live == {}
    assert worker.threads.done.keys() == {"x", "y"}


def test_reschedule_by_a_shuffle_is_distinguished_from_that_by_the_user(worker):
    def of_the_user() -> None:
        raise Reschedule

    protocol = {"Reschedule": Reschedule, "__name__": "distributed.shuffle._core"}
    exec("def unpack():\n    raise Reschedule", protocol)

    def of_a_shuffle() -> None:
        protocol["unpack"]()

    worker.run(of_the_user, "user")
    worker.run(of_a_shuffle, "shuffle")
    worker.run(lambda: 1 / 0, "failed")
    assert worker.threads.stopped_by_shuffle == {"shuffle"}


def test_a_task_is_live_until_it_ends_and_wakes_a_sleeper_before_it_begins(worker):
    woken: list[str] = []
    worker.threads.wake = lambda: woken.append("now")
    assert worker.run(lambda: (list(worker.threads.live), list(woken)))["result"] == ([threading.get_ident()], ["now"])
    assert worker.threads.live == {}


def test_times_of_actors_methods_are_summed_even_if_they_raise_and_are_not_those_of_tasks(worker):
    before = time.monotonic_ns()
    assert worker.call(max, 2, 3) == 3
    worker.call(time.sleep, 0.02)
    with pytest.raises(TypeError):
        worker.call(time.sleep, "x")
    spent = worker.threads.in_methods
    assert 20 * MILLISECOND <= spent <= time.monotonic_ns() - before
    assert worker.threads.in_methods == spent
    assert worker.threads.done == {}


OFF = "dask_efficiency no longer measures the CPU time of tasks"


class Broken:
    """Fails at each use."""

    def __call__(self, *args: Any) -> Any:
        raise OSError("broken")

    __setitem__ = append = __call__

    def clear(self) -> None:
        pass


@pytest.mark.parametrize("part", ["wake", "around", "after", "live", "ended", "done"])
def test_a_task_does_not_notice_that_measuring_it_failed(worker, part, caplog):
    broken: Any = Broken()
    if part == "after":
        worker.threads.around = lambda task, key: broken
    else:
        setattr(worker.threads, part, broken)
    for _ in range(2):
        assert worker.run(lambda: 7)["result"] == 7
    assert not worker.threads.attached
    assert part == "live" or worker.threads.live == {}
    (record,) = caplog.records
    assert (record.getMessage(), record.exc_info[1].args) == (OFF, ("broken",))
    assert as_upstream_has_them()


def test_of_two_threads_that_fail_at_once_one_logs(worker, monkeypatch):
    logged = []

    def error(*args: Any, **kwargs: Any) -> None:
        logged.append(args)
        worker.threads.fail(ValueError("in another thread meanwhile"))

    monkeypatch.setattr(module.logger, "error", error)
    worker.threads.fail(ValueError("in one thread"))
    assert len(logged) == 1


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_workers_of_one_process_come_and_go_in_any_order(order):
    workers = [Worker() for _ in order]
    for worker in workers:
        worker.threads.attach()
    there = set(order)
    for going in order:
        assert [worker.metered() for worker in workers] == [i in there for i in range(3)]
        workers[going].threads.detach()
        workers[going].threads.detach()
        there.remove(going)
    assert as_upstream_has_them()


def test_a_new_meter_of_a_worker_replaces_the_former_one(worker):
    former, worker.threads = worker.threads, TaskThreads(worker)
    worker.threads.attach()
    former.detach()
    assert worker.metered()
    assert former.done == {}


def test_a_task_ends_as_ever_if_its_meter_is_detached_meanwhile(worker):
    def work() -> bool:
        worker.threads.detach()
        return as_upstream_has_them()

    assert worker.run(work)["result"] is True
    assert worker.threads.live == {}


def passing_on(function: Callable[..., Any], seen: list[str]) -> Callable[..., Any]:
    """Another's replacement of a function of upstream."""

    @wraps(function)
    def theirs(*args: Any, **kwargs: Any) -> Any:
        seen.append(function.__name__)
        return function(*args, **kwargs)

    return theirs


def test_a_later_replacement_by_others_stays_and_nothing_is_measured_twice(monkeypatch):
    worker, ours = Worker(), Worker().threads
    ours.attach()
    seen: list[str] = []
    for name in ("_run_task", "_run_actor"):
        monkeypatch.setattr(upstream, name, passing_on(getattr(upstream, name), seen))
    theirs = upstream._run_task
    ours.detach()
    assert upstream._run_task is theirs
    assert not worker.metered()
    worker.threads.attach()
    worker.threads.ended = windows = module.deque()
    worker.call(int)
    assert len(worker.threads._methods) == 1
    assert worker.metered()
    assert len(windows) == 1
    worker.threads.detach()
    assert upstream._run_task is theirs
    assert not worker.metered()
    monkeypatch.undo()
    # Ours is outermost again, and is removed with the next meter.
    worker.threads.detach()
    assert as_upstream_has_them()


def no_clock() -> int:
    raise OSError("no such clock")


@pytest.mark.parametrize(
    ("place", "name", "instead", "metered"),
    [
        (upstream, "_run_task", lambda task, data, key: 7, False),
        (upstream, "_run_task", "no function", False),
        (upstream, "_run_task", None, False),
        (module, "thread_time_ns", no_clock, False),
        (upstream, "_run_actor", max, True),
    ],
    ids=["other arguments", "no function", "missing", "no clock", "other arguments of actors"],
)
def test_another_upstream_is_left_alone(monkeypatch, place, name, instead, metered):
    if instead is None:
        monkeypatch.delattr(place, name)
    else:
        monkeypatch.setattr(place, name, instead)
    found = getattr(upstream, "_run_task", None), upstream._run_actor
    worker = Worker()
    worker.threads.attach()
    assert worker.threads.attached is metered
    assert (getattr(upstream, "_run_task", None) is found[0]) is not metered
    assert upstream._run_actor is found[1]
    if metered:
        assert worker.metered()
    worker.threads.detach()
    assert (getattr(upstream, "_run_task", None), upstream._run_actor) == found


def test_the_replacements_look_like_upstreams(worker):
    assert inspect.signature(upstream._run_task) == inspect.signature(RUN_TASK)
    assert inspect.signature(upstream._run_actor) == inspect.signature(RUN_ACTOR)
    assert upstream._run_task.__qualname__ == "_run_task"


#: Programs that read clocks of other threads, each in a process of its own, which they may crash.
PROGRAMS = {
    "the CPU of a live task is read from outside": """
        ready, done = threading.Event(), threading.Event()
        def work():
            burn(0.1); ready.set(); done.wait()
        with ThreadPoolExecutor(2) as pool:
            pool.submit(worker.run, work, "x")
            ready.wait()
            used = live()
            done.set()
        (cpu, wall), = used.values()
        assert list(used) == ["x"] and 0.1e9 <= cpu <= wall + 1e6, used
        assert live() == {}
        """,
    "dead threads and foreign idents": """
        for _ in range(20):
            pool = ThreadPoolExecutor(4)
            for i in range(8):
                pool.submit(worker.run, lambda: burn(0.001), i)
            live()
            pool.shutdown()          # its threads are dead now
            live()
        dead = threading.Thread(target=lambda: None); dead.start(); dead.join()
        worker.active_threads.update({dead.ident: "dead", 1: "child", 0: "none"})
        assert live() == {}
        """,
    "many short tasks are read while they come and go": """
        looks = 0
        with ThreadPoolExecutor(4) as pool:
            futures = [pool.submit(worker.run, lambda: sum(range(5_000)), i) for i in range(2000)]
            while not all(f.done() for f in futures[-4:]):
                assert all(cpu >= 0 and wall >= 0 for cpu, wall in live().values())
                looks += 1
        assert all(f.result()["op"] == "task-finished" for f in futures) and worker.threads.live == {}
        assert len(worker.threads.done) == 2000 and looks
        """,
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_reading_the_clocks_of_other_threads_does_not_crash_the_process(program):
    start = """
        import threading, time
        from concurrent.futures import ThreadPoolExecutor
        from tests.plugin.tasks import burn
        from tests.plugin.worker.test_threads import Worker

        worker = Worker()
        worker.threads.attach()
        live = worker.threads.live_used
    """
    code = textwrap.dedent(start) + textwrap.dedent(PROGRAMS[program]) + "print('ok')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


def test_without_clocks_of_other_threads_cpu_is_zero_until_the_task_ends(worker, monkeypatch):
    monkeypatch.delattr(time, "pthread_getcpuclockid", raising=False)
    ((cpu, wall),) = worker.run(worker.threads.live_used)["result"].values()
    assert cpu == 0
    assert wall >= 0
    assert worker.threads.live_used() == {}


@pytest.mark.cluster
def test_tasks_on_executors_that_a_user_gave_are_metered_and_the_executors_are_left_alone():
    async def run(own: Any) -> None:
        options: dict[str, Any] = {"nthreads": 1, "dashboard_address": ":0"}
        async with (
            Scheduler(port=0, dashboard_address=":0") as scheduler,
            Client(scheduler.address, asynchronous=True) as client,
            RealWorker(scheduler.address, name="own", executor=own, **options) as first,
            RealWorker(scheduler.address, name="offload", executor="offload", **options) as second,
        ):
            await client.register_plugin(EfficiencyPlugin())
            assert (first.executor, second.executor) == (own, _offload_executor)
            for worker in (first, second):
                used = await client.submit(spin, 0.1, workers=[worker.address], pure=False)
                assert (await snapshot(client)).by_worker[worker.name]["thread-cpu"] == near(used["cpu"])
            assert vars(own).keys() == attributes
        assert as_upstream_has_them()

    with ThreadPoolExecutor(2) as own:
        attributes = {*vars(own)}
        asyncio.run(run(own))


def submit(worker: Worker, function: Callable[[], Any] = int, key: str = "key") -> Future[Any]:
    """Run a task in a thread of the worker."""
    return worker.pool.submit(worker.run, function, key)


def ran(worker: Worker, key: str = "key") -> Run:
    submit(worker, key=key).result()
    return worker.threads.done[key]


@contextmanager
def going(worker: Worker) -> Iterator[None]:
    """A task is at work until the block ends."""
    begun, go_on = threading.Event(), threading.Event()
    future = submit(worker, lambda: (begun.set(), go_on.wait()))
    begun.wait()
    yield
    go_on.set()
    future.result()


def test_threads_of_tasks_are_those_of_the_thread_pools(worker, threads):
    assert threads.native_ids() == set()
    native_id = worker.pool.submit(threading.get_native_id).result()
    assert threads.native_ids() == {native_id}


def test_the_cpu_of_all_tasks_counts_those_that_run_and_have_just_ended(worker, threads):
    first = ran(worker, "first")
    second = ran(worker, "second")
    assert threads.cpu() == first[2] + second[2]
    threads.claimed += threads.done.pop("first")[2]
    assert threads.cpu() == first[2] + second[2]
    with going(worker):
        assert threads.cpu() >= first[2] + second[2]


def test_the_cpu_of_all_tasks_is_unknown_while_one_ends(worker, threads):
    ending, go_on = threading.Event(), threading.Event()
    threads.surround("profiles", lambda task, key: lambda: (ending.set(), go_on.wait()))
    future = submit(worker)
    ending.wait()
    assert threads.cpu() is None
    go_on.set()
    future.result()
    assert threads.cpu() == threads.done["key"][2]


def test_unclaimed_runs_are_bounded(worker, threads, monkeypatch):
    monkeypatch.setattr("dask_efficiency.plugin.worker.threads.MAX_UNCLAIMED", 3)
    cpu = sum(ran(worker, str(i))[2] for i in range(5))
    assert threads.cpu() == cpu
    assert list(threads.done) == ["2", "3", "4"]


def test_windows_are_noted_from_the_first_read_on_also_of_failing_and_of_running_tasks(worker, threads):
    ran(worker)
    assert threads.ended is None
    assert threads.windows() == []
    start, stop, _, ident, _ = ran(worker)
    assert threads.windows() == [(TaskId(ident, start), stop, "key")]
    assert threads.windows() == []
    submit(worker, lambda: 1 / 0).result()
    assert len(threads.windows()) == 1
    threads.unwatch()
    with going(worker):
        (running,) = threads.windows()
        assert (running.stop, running.key) == (-1, "key")
    assert threads.windows() == [(running.task, threads.done["key"][1], "key")]


def test_functions_around_tasks_are_called_in_their_threads_with_ids_and_keys(worker, threads):
    calls: list[tuple[str, Any, int]] = []

    def around(task: TaskId, key: str) -> Any:
        assert key == "key"
        calls.append(("before", task, threading.get_ident()))
        return lambda: calls.append(("after", task, threading.get_ident()))

    threads.windows()
    threads.surround("gpu", around)
    start, _, _, ident, _ = ran(worker)
    task = TaskId(ident, start)
    assert calls == [("before", task, ident), ("after", task, ident)]
    threads.unwatch()
    ran(worker)
    assert len(calls) == 2
    assert threads.ended is None


def test_a_profile_ends_if_the_meter_of_the_gpu_fails_to_begin(worker, threads):
    calls: list[str] = []
    threads.surround("profiles", lambda task, key: lambda: calls.append("ended"))
    threads.surround("gpu", lambda task, key: 1 // 0)
    assert submit(worker, lambda: calls.append("ran")).result() is not None
    assert calls == ["ended", "ran"]


def test_profiles_are_outside_the_meter_of_the_gpu_and_either_may_skip_a_task(worker, threads):
    calls: list[str] = []

    def noting(name: str) -> Any:
        def around(task: TaskId, key: str) -> Any:
            calls.append(f"{name} {key}")
            return lambda: calls.append(f"after {name}")

        return around

    threads.surround("gpu", noting("gpu"))
    threads.surround("profiles", noting("profile"))
    ran(worker)
    assert calls == ["profile key", "gpu key", "after gpu", "after profile"]
    threads.unwatch()
    ran(worker)
    assert calls[4:] == ["profile key", "after profile"]
    threads.surround("profiles", None)
    assert threads.around is None
    calls.clear()
    threads.surround("gpu", lambda task, key: lambda: calls.append("after"))
    threads.surround("profiles", lambda task, key: None)
    ran(worker)
    assert calls == ["after"]


def test_upstream_measures_a_task_outside_the_metered_threads(worker, threads):
    assert threads.measured_upstream("key") == 0
    worker.state.stimulus_log.append(SimpleNamespace(key="key", start=5.0, stop=5.0 + 600e-9))
    assert threads.measured_upstream("another") == 0
    assert threads.measured_upstream("key") == 600
    worker.state.stimulus_log.append(SimpleNamespace(key="key", start=6.0, stop=5.0))
    assert threads.measured_upstream("key") == 0
    assert threads.elsewhere(1_000, 600) == (1_000, 1_600, 0, 0, -1)
    assert threads.elsewhere(2_000, 0) == (2_000, 2_000, 0, 0, -1)
    assert threads.not_measured == 600


def overlap(*times: tuple[int, int]) -> Any:
    """Gives the time between two instants in which the loop spilled, of these times."""
    return lambda start, stop: sum(max(0, min(last, stop) - max(first, start)) for first, last in times)


def executing(worker: Worker, **starts: int) -> dict[object, Any]:
    """Reservations of tasks that hold slots since these instants."""
    worker.state.executing = [
        SimpleNamespace(key=key, start_time=None, annotations=None, run_spec=None) for key in starts
    ]
    return {key: SimpleNamespace(start=start, ns=-1) for key, start in starts.items()}


def no_library(reservation: SlotReservation, waited: int) -> int:
    return 0


def test_a_task_waits_for_spilling_before_its_thread_begins_and_after_it_is_done(worker, threads):
    start, stop, cpu, *_ = ran(worker, "first")
    # One is done, which took its slot first; the other has not begun.
    held = executing(worker, first=start - 100, second=start - 50)
    spilled = overlap((start - 60, start - 40), (start, stop), (stop, stop + 30))
    assert threads.so_far(held, spilled, no_library) == {
        "first": (cpu, stop - start, 0, 0, 50),
        "second": (0, 0, 0, 0, 10 + stop - start + 30),
    }
    assert threads.waiting() == 2


def test_a_task_whose_thread_is_at_work_does_not_wait_for_the_loop(worker, threads):
    with going(worker):
        held = executing(worker, key=0)
        assert threads.waiting() == 0
        used = threads.so_far(held, overlap((5, 10), (1 << 62, 1 << 63)), lambda reservation, waited: waited)["key"]
    assert (used.gpu, used.library, used.spill) == (0, used.wall - used.cpu, 5)
    assert threads.waiting() == 1


@pytest.mark.parametrize(
    "task", [{"annotations": {"executor": "processes"}}, {"run_spec": SimpleNamespace(is_coro=True)}, {}]
)
def test_a_task_outside_the_metered_threads_is_at_work_since_upstream_began_it(worker, threads, task):
    if not task:
        threads.detach()  # there is no meter
    worker.state.executing = [
        SimpleNamespace(**{"key": "x", "start_time": 0.0, "annotations": {}, "run_spec": None, **task})
    ]
    used = threads.so_far({"x": SlotReservation("inc", "", "", 0)}, overlap((0, 10)), no_library)["x"]
    assert used.wall > 1e18
    assert (used.cpu, used.spill) == (0, 0)
    assert threads.waiting() == 0
