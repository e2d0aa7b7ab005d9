from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import msgpack
import pytest

from dask_efficiency.plugins.executor import MeteredThreadPoolExecutor, ThreadRun, TimedThreadPoolExecutor, live_used

MILLISECOND = 1_000_000


class InlineExecutor(Executor):
    """Runs what is submitted at once, in the thread that submits it."""

    def submit(self, fn, /, *args, **kwargs):
        future: Future = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


def spin(milliseconds):
    """Use CPU for so long, by this thread's own clock."""
    until = time.thread_time_ns() + milliseconds * MILLISECOND
    while time.thread_time_ns() < until:
        pass


def task(milliseconds=0):
    """A task's message, as upstream's ``apply_function`` returns it."""
    spin(milliseconds)
    return {"op": "task-finished", "thread": threading.get_ident(), "result": milliseconds}


def metered(executor, failed=pytest.fail):
    """A metered executor of which no failure is expected."""
    return MeteredThreadPoolExecutor(executor, failed)


def run_apart(program: str) -> str:
    """What a program prints that might crash its process."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_task_s_thread_remembers_what_it_used():
    with ThreadPoolExecutor(1) as pool:
        before = time.monotonic_ns()
        result = metered(pool).submit(task, 50).result()
        after = time.monotonic_ns()
    start, stop, cpu = result["thread"].used
    assert before <= start <= stop <= after
    assert 50 * MILLISECOND <= cpu < 100 * MILLISECOND
    assert cpu <= stop - start + MILLISECOND


def test_waiting_is_no_cpu():
    with ThreadPoolExecutor(1) as pool:
        result = metered(pool).submit(lambda: time.sleep(0.05) or task()).result()
    start, stop, cpu = result["thread"].used
    assert stop - start >= 50 * MILLISECOND
    assert cpu < 40 * MILLISECOND


def test_a_thread_run_is_the_ident_to_everyone_else():
    result = metered(InlineExecutor()).submit(task).result()
    run = result["thread"]
    assert type(run) is ThreadRun
    assert run == threading.get_ident()
    assert {run: 1} == {threading.get_ident(): 1}


def test_a_thread_run_travels_as_a_plain_int():
    run = ThreadRun(140_000_000_000_001)
    run.used = 1, 2, 3
    assert msgpack.unpackb(msgpack.packb(run)) == run
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        pickled = pickle.dumps(run, protocol)
        assert b"dask_efficiency" not in pickled
        assert type(pickle.loads(pickled)) is int
        assert pickle.loads(pickled) == run


def test_an_exception_passes_through_and_leaves_nothing_behind():
    class Odd(BaseException):
        pass

    def fail(error):
        raise error

    executor = metered(InlineExecutor())
    for error in (ValueError("x"), Odd()):
        assert executor.submit(fail, error).exception() is error
    assert executor.live == {}


@pytest.mark.parametrize(
    "result",
    [
        None,
        {"thread": 1, "op": "task-finished"},
        {"thread": threading.get_ident()},
        {"op": "task-finished"},
        {},
        [("thread", threading.get_ident()), ("op", "x")],
    ],
)
def test_what_a_user_s_function_returns_is_untouched(result):
    before = copy.deepcopy(result)
    found = metered(InlineExecutor()).submit(lambda: result).result()
    assert found is result
    assert found == before
    if isinstance(found, dict):
        assert type(found.get("thread", 0)) is int


def test_a_dictionary_of_a_class_of_its_own_is_untouched():
    class Message(dict):
        pass

    message = Message(task())
    found = metered(InlineExecutor()).submit(lambda: message).result()
    assert type(found["thread"]) is int


def test_arguments_named_like_the_executor_s_own_pass_through():
    def echo(*args, **kwargs):
        return args, kwargs

    executor = metered(InlineExecutor())
    assert executor.submit(echo, 1, args=2, kwargs=3, self=4, fn=5).result() == (
        (1,),
        {"args": 2, "kwargs": 3, "self": 4, "fn": 5},
    )


def test_a_wrapped_executor_is_the_pool_in_all_else():
    with ThreadPoolExecutor(3) as pool:
        for wrapped in (metered(pool), TimedThreadPoolExecutor(pool)):
            assert wrapped._max_workers == 3
            assert "ThreadPoolExecutor" in str(type(wrapped))
            assert list(wrapped.map(abs, [-1, 2])) == [1, 2]
            with pytest.raises(AttributeError, match="no_such"):
                wrapped.no_such  # noqa: B018
    wrapped.shutdown(wait=True)
    with pytest.raises(RuntimeError):
        wrapped.submit(task)


def test_a_copy_of_a_wrapped_executor_does_not_recurse():
    blank = MeteredThreadPoolExecutor.__new__(MeteredThreadPoolExecutor)
    with pytest.raises(AttributeError, match="wrapped"):
        blank.submit(task)


@pytest.mark.parametrize("clock", ["thread_time_ns", "monotonic_ns"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_task_does_not_notice_that_measuring_it_failed(monkeypatch, clock, when):
    def broken():
        raise OSError("no such clock")

    def breaking():
        monkeypatch.setattr(time, clock, broken)
        return message

    message = {"op": "task-finished", "thread": threading.get_ident(), "result": 1}
    failures: list[Exception] = []
    executor = metered(InlineExecutor(), failures.append)
    if when == "before":
        breaking()
    assert executor.submit(breaking).result() is message
    assert [str(failure) for failure in failures] == ["no such clock"]
    assert type(message["thread"]) is int


def test_a_live_task_is_in_the_books_until_it_ends():
    executor = metered(InlineExecutor())
    seen = executor.submit(lambda: dict(executor.live)).result()
    assert seen.keys() == {threading.get_ident()}
    assert executor.live == {}


def test_actor_methods_are_summed_whether_they_return_or_raise():
    with ThreadPoolExecutor(2) as pool:
        executor = TimedThreadPoolExecutor(pool)
        assert executor.spent == 0
        before = time.monotonic_ns()
        futures = [executor.submit(time.sleep, 0.02) for _ in range(2)] + [executor.submit(time.sleep, "x")]
        errors = [future.exception() for future in futures]
        around = time.monotonic_ns() - before
        spent = executor.spent
    assert [type(error) for error in errors] == [type(None), type(None), TypeError]
    assert 40 * MILLISECOND <= spent <= 2 * around
    assert executor.spent == spent


# -- clocks of other threads: in a process of their own, for they may crash it ----------------------

WORKER = """
import os, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
sys.path.insert(0, ".")
from dask_efficiency.plugins.executor import MeteredThreadPoolExecutor, live_used

class Worker:
    # What is read of a worker: which threads are at which task.
    active_threads_lock = threading.Lock()
    active_threads = {}

def task(key, work, worker=Worker):
    with worker.active_threads_lock:
        worker.active_threads[threading.get_ident()] = key
    try:
        return work()
    finally:
        with worker.active_threads_lock:
            del worker.active_threads[threading.get_ident()]

def metered(pool):
    return MeteredThreadPoolExecutor(pool, failed=lambda error: os._exit(3))

def spin(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass
"""


def test_the_cpu_of_a_live_task_is_read_from_outside():
    out = run_apart(
        WORKER
        + """
pool = ThreadPoolExecutor(2)
executor = metered(pool)
ready, done = threading.Event(), threading.Event()
def work():
    spin(0.1); ready.set(); done.wait()
future = executor.submit(task, "x", work)
ready.wait()
used = live_used(Worker, [executor])
done.set(); future.result()
cpu, wall = used["x"]
assert used.keys() == {"x"}, used
assert 0.1e9 <= cpu <= 0.2e9 and cpu <= wall + 1e6, used
assert live_used(Worker, [executor]) == {}
print("ok")
"""
    )
    assert out == "ok"


def test_dead_threads_and_foreign_idents_do_not_crash_the_worker():
    out = run_apart(
        WORKER
        + """
executors = []
for _ in range(20):
    pool = ThreadPoolExecutor(4)
    executor = metered(pool)
    executors.append(executor)
    for i in range(8):
        executor.submit(task, i, lambda: spin(0.0005))
    live_used(Worker, executors)
    pool.shutdown()          # its threads are dead now
    live_used(Worker, executors)
# Threads that are gone, a child's ident and nonsense, in a careless worker's table.
dead = threading.Thread(target=lambda: None); dead.start(); dead.join()
Worker.active_threads.update({dead.ident: "dead", 1: "child", 0: "none"})
assert live_used(Worker, executors) == {}
print("ok")
"""
    )
    assert out == "ok"


def test_many_short_tasks_are_read_while_they_come_and_go():
    out = run_apart(
        WORKER
        + """
pool = ThreadPoolExecutor(4)
executor = metered(pool)
futures = [executor.submit(task, i, lambda: spin(0.0002)) for i in range(2000)]
looks = 0
while not all(f.done() for f in futures[-4:]):
    for cpu, wall in live_used(Worker, [executor]).values():
        assert cpu >= 0 and wall >= 0
    looks += 1
assert all(f.exception() is None for f in futures) and executor.live == {}
print("ok" if looks else "never looked")
"""
    )
    assert out == "ok"


def test_without_clocks_of_other_threads_cpu_is_zero_until_the_task_ends(monkeypatch):
    monkeypatch.delattr(time, "pthread_getcpuclockid", raising=False)
    executor = metered(InlineExecutor())

    class Worker:
        active_threads_lock = threading.Lock()
        active_threads = {threading.get_ident(): "x"}  # noqa: RUF012

    cpu, wall = executor.submit(lambda: live_used(Worker, [executor])).result()["x"]
    assert cpu == 0
    assert wall >= 0
    assert live_used(Worker, [executor]) == {}


def test_a_run_is_unclaimed_until_the_event_loop_has_heard_of_it():
    with ThreadPoolExecutor(1) as threads:
        executor = MeteredThreadPoolExecutor(threads, failed=pytest.fail)
        results = [
            executor.submit(lambda: {"op": "task-finished", "thread": threading.get_ident()}).result() for _ in range(3)
        ]
        results[1]["thread"].claimed = True
        assert [id(run) for run in executor.unclaimed()] == [id(results[i]["thread"]) for i in (0, 2)]
        results[0]["thread"].claimed = results[2]["thread"].claimed = True
        assert executor.unclaimed() == []
