from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial

import msgpack
import pytest

from dask_efficiency.plugins.worker.executor import ActorTimer, TaskMeter, ThreadRun, live_used

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


def metered(executor, fn, meter=None):
    """What becomes of a function on an executor, metered; no failure of the measuring is expected."""
    return (meter or TaskMeter(pytest.fail)).submit(executor.submit, fn)


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
        result = metered(pool, lambda: task(50)).result()
        after = time.monotonic_ns()
    start, stop, cpu = result["thread"].used
    assert before <= start <= stop <= after
    assert 50 * MILLISECOND <= cpu < 100 * MILLISECOND
    assert cpu <= stop - start + MILLISECOND


def test_waiting_is_no_cpu():
    with ThreadPoolExecutor(1) as pool:
        result = metered(pool, lambda: time.sleep(0.05) or task()).result()
    start, stop, cpu = result["thread"].used
    assert stop - start >= 50 * MILLISECOND
    assert cpu < 40 * MILLISECOND


def test_a_thread_run_is_the_ident_to_everyone_else():
    result = metered(InlineExecutor(), task).result()
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

    meter = TaskMeter(pytest.fail)
    for error in (ValueError("x"), Odd()):
        assert metered(InlineExecutor(), partial(fail, error), meter).exception() is error
    assert meter.live == {}


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
def test_what_is_no_task_s_message_is_untouched(result):
    before = copy.deepcopy(result)
    found = metered(InlineExecutor(), lambda: result).result()
    assert found is result
    assert found == before
    if isinstance(found, dict):
        assert type(found.get("thread", 0)) is int


def test_a_dictionary_of_a_class_of_its_own_is_untouched():
    class Message(dict):
        pass

    message = Message(task())
    found = metered(InlineExecutor(), lambda: message).result()
    assert type(found["thread"]) is int


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
    meter = TaskMeter(failures.append)
    if when == "before":
        breaking()
    assert metered(InlineExecutor(), breaking, meter).result() is message
    assert [str(failure) for failure in failures] == ["no such clock"]
    assert type(message["thread"]) is int


def test_a_live_task_is_in_the_books_until_it_ends():
    meter = TaskMeter(pytest.fail)
    seen = metered(InlineExecutor(), lambda: dict(meter.live), meter).result()
    assert seen.keys() == {threading.get_ident()}
    assert meter.live == {}


def test_actor_methods_are_summed_whether_they_return_or_raise():
    with ThreadPoolExecutor(2) as pool:
        timer = ActorTimer()
        assert timer.spent == 0
        before = time.monotonic_ns()
        futures = [timer.submit(pool.submit, time.sleep, (seconds,)) for seconds in (0.02, 0.02, "x")]
        errors = [future.exception() for future in futures]
        around = time.monotonic_ns() - before
        spent = timer.spent
    assert [type(error) for error in errors] == [type(None), type(None), TypeError]
    assert 40 * MILLISECOND <= spent <= 2 * around
    assert timer.spent == spent


# -- clocks of other threads: in a process of their own, for they may crash it ----------------------

WORKER = """
import os, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
sys.path.insert(0, ".")
from dask_efficiency.plugins.worker.executor import ActorTimer, TaskMeter, live_used
from dask_efficiency.plugins.worker.submit import MeteredSubmit, WorkerCalls

class Worker:
    # What is read of a worker: which threads are at which task.
    active_threads_lock = threading.Lock()
    active_threads = {}

def task(key, work, table, worker=Worker):
    with worker.active_threads_lock:
        worker.active_threads[threading.get_ident()] = key
    try:
        return work()
    finally:
        with worker.active_threads_lock:
            del worker.active_threads[threading.get_ident()]

def metered(pool):
    meter = TaskMeter(failed=lambda error: os._exit(3))
    assert MeteredSubmit.attach(pool, WorkerCalls(Worker.active_threads, meter, ActorTimer()))
    return meter

def submit(pool, key, work):
    args = key, work, Worker.active_threads
    return pool.submit(lambda: task(*args))

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
meter = metered(pool)
ready, done = threading.Event(), threading.Event()
def work():
    spin(0.1); ready.set(); done.wait()
future = submit(pool, "x", work)
ready.wait()
used = live_used(Worker, [meter])
done.set(); future.result()
cpu, wall = used["x"]
assert used.keys() == {"x"}, used
assert 0.1e9 <= cpu <= 0.2e9 and cpu <= wall + 1e6, used
assert live_used(Worker, [meter]) == {}
print("ok")
"""
    )
    assert out == "ok"


def test_dead_threads_and_foreign_idents_do_not_crash_the_worker():
    out = run_apart(
        WORKER
        + """
meters = []
for _ in range(20):
    pool = ThreadPoolExecutor(4)
    meters.append(metered(pool))
    for i in range(8):
        submit(pool, i, lambda: spin(0.0005))
    live_used(Worker, meters)
    pool.shutdown()          # its threads are dead now
    live_used(Worker, meters)
# Threads that are gone, a child's ident and nonsense, in a careless worker's table.
dead = threading.Thread(target=lambda: None); dead.start(); dead.join()
Worker.active_threads.update({dead.ident: "dead", 1: "child", 0: "none"})
assert live_used(Worker, meters) == {}
print("ok")
"""
    )
    assert out == "ok"


def test_many_short_tasks_are_read_while_they_come_and_go():
    out = run_apart(
        WORKER
        + """
pool = ThreadPoolExecutor(4)
meter = metered(pool)
futures = [submit(pool, i, lambda: spin(0.0002)) for i in range(2000)]
looks = 0
while not all(f.done() for f in futures[-4:]):
    for cpu, wall in live_used(Worker, [meter]).values():
        assert cpu >= 0 and wall >= 0
    looks += 1
assert all(f.exception() is None for f in futures) and meter.live == {}
print("ok" if looks else "never looked")
"""
    )
    assert out == "ok"


def test_without_clocks_of_other_threads_cpu_is_zero_until_the_task_ends(monkeypatch):
    monkeypatch.delattr(time, "pthread_getcpuclockid", raising=False)
    meter = TaskMeter(pytest.fail)

    class Worker:
        active_threads_lock = threading.Lock()
        active_threads = {threading.get_ident(): "x"}  # noqa: RUF012

    cpu, wall = metered(InlineExecutor(), lambda: live_used(Worker, [meter]), meter).result()["x"]
    assert cpu == 0
    assert wall >= 0
    assert live_used(Worker, [meter]) == {}


def test_a_run_is_unclaimed_until_the_event_loop_has_heard_of_it():
    with ThreadPoolExecutor(1) as threads:
        meter = TaskMeter(pytest.fail)
        results = [metered(threads, task, meter).result() for _ in range(3)]
        results[1]["thread"].claimed = True
        assert [id(run) for run in meter.unclaimed()] == [id(results[i]["thread"]) for i in (0, 2)]
        results[0]["thread"].claimed = results[2]["thread"].claimed = True
        assert meter.unclaimed() == []
