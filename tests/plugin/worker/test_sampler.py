from __future__ import annotations

import asyncio
import itertools
import logging
import os
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from types import SimpleNamespace

import pytest
from distributed.threadpoolexecutor import ThreadPoolExecutor

from dask_efficiency.plugin.stacks import has_gil
from dask_efficiency.plugin.worker.file_reads import FileWindows
from dask_efficiency.plugin.worker.look import Look
from dask_efficiency.plugin.worker.sampler import WaitingSampler, stood_still, why_not
from tests.plugin.watch import eventually
from tests.plugin.worker.test_threads import Worker
from tests.plugin.worker.threads_in_states import needs_threads

pytestmark = needs_threads

KEY = ("span", "inc")
SECOND = 1_000_000_000
MS = 1_000_000


class Task:
    """Task upstream, as far as a sampler reads it."""

    span_id, prefix = KEY


class Scene:
    """A worker, as far as a sampler reads it, that runs functions as its tasks."""

    def __init__(self):
        self.numbers = itertools.count()
        self.pool = ThreadPoolExecutor(4, thread_name_prefix="Dask-Default-Threads")
        self.worker = Worker()
        self.worker.executors = {"default": self.pool}
        self.worker.state = SimpleNamespace(tasks={}, executing=set(), nthreads=4)
        self.loop = asyncio.new_event_loop()
        self.worker.io_loop = SimpleNamespace(asyncio_loop=self.loop)
        self.threads = self.worker.threads
        self.threads.attach()
        self.worker.local_directory = tempfile.gettempdir()
        self.sampler = WaitingSampler(self.worker, self.threads, FileWindows())

    def submit(self, function):
        name = f"inc-{next(self.numbers)}"
        state, ts = self.worker.state, Task()
        state.tasks[name] = ts
        state.executing.add(ts)

        def task():
            try:
                return self.worker.run(function, name)
            finally:
                state.executing.remove(ts)

        return self.pool.submit(task)

    def stop(self):
        self.sampler.stop()
        self.threads.detach()
        self.pool.shutdown(wait=False)
        self.loop.close()

    def sampled(self):
        self.sampler.tick_now()
        return dict(self.sampler.sums._totals.get(KEY, {}))


@pytest.fixture
def scene():
    scene = Scene()
    yield scene
    scene.stop()


def test_sleeping_and_receiving_tasks_are_distinguished(scene):
    here, there = socket.socketpair()
    with here, there:
        scene.sampler.start()
        done = threading.Event()
        scene.submit(lambda: [time.sleep(0.05) for _ in iter(done.is_set, True)])
        scene.submit(lambda: here.recv(1))
        eventually(lambda: min(scene.sampled().get("sleep", 0), scene.sampled().get("network", 0)) > SECOND)
        done.set()
        there.send(b"x")
    assert scene.sampler.off is None
    row = scene.sampled()
    others = sum(row.values()) - row["sleep"] - row["network"] - row.get("core", 0) - row.get("stopped", 0)
    assert others <= sum(row.values()) // 10


def test_a_window_keeps_its_samples_when_another_sampler_goes_on(scene):
    scene.sampler.start()
    scene.sampler.open_window("w")
    done = threading.Event()
    scene.submit(lambda: [time.sleep(0.05) for _ in iter(done.is_set, True)])
    eventually(lambda: scene.sampled().get("sleep", 0) > SECOND // 2)
    done.set()
    scene.sampler.stop()
    former, scene.sampler = scene.sampler, WaitingSampler(scene.worker, scene.threads, FileWindows())
    scene.sampler.go_on(former)
    profile = scene.sampler.close_window("w").profile
    assert sum(ns for row, ns in profile.items() if row.cause == "sleep") > SECOND // 4
    assert scene.sampled()["sleep"] > SECOND // 2


def test_a_window_that_opens_while_the_sampler_begins_has_stacks(scene, monkeypatch):
    begin = Look.begin

    def opens(look, at):
        monkeypatch.setattr(Look, "begin", begin)
        scene.sampler._windows.open("w")  # as the event loop does before the look is there
        begin(look, at)

    monkeypatch.setattr(Look, "begin", opens)
    scene.sampler.start()
    done = threading.Event()
    scene.submit(lambda: [time.sleep(0.05) for _ in iter(done.is_set, True)])
    eventually(lambda: scene.sampled().get("sleep", 0) > SECOND // 2)
    done.set()
    assert scene.sampler.close_window("w").profile


@pytest.mark.skipif(not has_gil(), reason="this Python has no GIL")
def test_tasks_that_spin_wait_for_the_gil_at_their_line(scene):
    done = threading.Event()

    def spin():
        while not done.is_set():
            pass

    scene.sampler.start()
    scene.sampler.open_window("w")
    for _ in range(4):
        scene.submit(spin)
    eventually(lambda: scene.sampled().get("gil", 0) > 2 * SECOND)
    done.set()
    closed = scene.sampler.close_window("w")
    row = scene.sampled()
    # A busy machine gives no core, or stands still.
    assert row["gil"] >= 0.9 * (sum(row.values()) - row.get("core", 0) - row.get("stopped", 0))
    rows = [(place.stack, ns) for place, ns in closed.profile.items() if place.cause == "gil"]
    here = [ns for stack, ns in rows if any(function.endswith("spin") for function, _, _ in stack)]
    assert sum(here) >= 0.9 * sum(ns for _, ns in rows)
    assert {holder.prefix for holder in closed.holders} == {"inc"}
    assert any(holder.holder == "inc" for holder in closed.holders)


@pytest.mark.parametrize(
    ("late", "turns", "faults", "still"),
    [
        (500 * MS, 2, 0, 480 * MS),  # woken up as it goes on, and once more
        (500 * MS, 100, 0, 0),  # asks for the GIL each 5 ms
        (500 * MS, 60, 0, 0),  # and is late for it, on a busy machine
        (500 * MS, 2, 1, 0),  # swapping
        (40 * MS, 1, 0, 0),
        (0, 0, 0, 0),
    ],
)
def test_a_thread_that_waits_for_the_gil_wakes_up_meanwhile_and_a_stopped_one_does_not(late, turns, faults, still):
    assert stood_still(late, turns, faults) == still


def test_a_block_of_the_event_loop_before_the_first_task_is_seen_while_a_window_is_open(scene):
    tick = SimpleNamespace(callback_time=20.0, callback=int)
    scene.worker.periodic_callbacks = {"tick": tick}
    scene.sampler.start()
    eventually(lambda: scene.threads.wake is not None)
    scene.sampler._blocks._over.append((1.0, 9.0))  # nobody had asked
    scene.sampler.open_window("w")
    blocks = scene.sampler._blocks  # of the loop, which is this thread, and has not ticked since
    eventually(lambda: blocks._since is not None and time.monotonic() - blocks._since > 0.2)
    tick.callback()
    eventually(lambda: any(table == "loop_blocks" for table, _, _ in list(scene.sampler._samples)))
    (block,) = scene.sampler.close_window("w").loop_blocks
    assert SECOND // 10 < block.ns != 8 * SECOND
    scene.sampler.stop()
    eventually(lambda: tick.callback is int)


def test_the_sampler_sleeps_while_nothing_runs_and_a_task_wakes_it(scene):
    scene.sampler.start()
    eventually(lambda: scene.threads.wake is not None)
    done = threading.Event()
    # A line of the task's own: the stack of a bare wait goes on to the worker's frames, and to the scene's around them.
    scene.submit(lambda: done.wait(60))
    eventually(lambda: scene.sampled().get("lock", 0) > 0)
    assert scene.threads.wake is None
    done.set()
    eventually(lambda: scene.threads.wake is not None)


def test_a_failure_is_logged_once_and_nothing_is_guessed_after_it(scene, caplog, monkeypatch):
    monkeypatch.setattr(Task, "prefix", property(lambda task: 1 // 0))
    done = threading.Event()
    with caplog.at_level(logging.ERROR, "dask_efficiency"):
        scene.sampler.start()
        future = scene.submit(done.wait)
        eventually(lambda: caplog.records)
        done.set()
    assert future.result(60)["op"] == "task-finished"
    scene.sampler.tick_now()
    assert "ZeroDivisionError" in scene.sampler.off
    assert len(caplog.records) == 1
    assert scene.sampler.sums.explain({"inc": 5}) == {"inc": {"unknown": 5}}


def test_a_stopped_sampler_leaves_no_thread_and_no_descriptor(scene):
    before = set(os.listdir("/proc/self/fd"))
    scene.sampler.start()
    done = threading.Event()
    scene.submit(done.wait)
    eventually(lambda: scene.sampled())
    scene.sampler.stop()
    scene.sampler.stop()
    scene.sampler._thread.join(60)
    done.set()
    assert not scene.sampler._thread.is_alive()
    assert scene.sampler.off is None
    assert set(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("reason", ["not Linux", "PermissionError"])
def test_a_sampler_gives_the_reason_for_not_sampling(scene, monkeypatch, reason):
    def refused(*args):
        raise PermissionError(13, "Permission denied")

    if reason == "not Linux":
        monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr("dask_efficiency.plugin.worker.sampler.ThreadFiles", refused)
    scene.sampler.start()
    assert scene.sampler.off.startswith(f"no /proc/self/task/*/syscall: {reason}")
    assert scene.sampler._thread is None
    scene.sampler.open_window("w")
    assert scene.sampler.close_window("w").profile == {}
    assert scene.sampler.sums.explain({"inc": 5}) == {"inc": {"unknown": 5}}


def test_sampling_ends_with_the_event_loop_of_a_worker_that_was_left_open(scene):
    scene.sampler.start()
    eventually(lambda: scene.sampler._look)
    scene.loop.close()
    scene.sampler.open_window("w")  # wakes it
    scene.sampler._thread.join(60)
    assert not scene.sampler._thread.is_alive()


def test_sampling_survives_threads_that_come_and_go_forks_and_the_end_of_the_process():
    code = textwrap.dedent(
        """
        import os, random, threading, time
        from dask_efficiency.plugin.worker import sampler
        from tests.plugin.worker.test_sampler import Scene
        sampler.MIN_INTERVAL_NS = 1_000_000
        sampler.MAX_SHARE = 1
        scene = Scene()
        scene.sampler.start()
        scene.sampler.open_window("w")

        def forks():
            child = os.fork()
            if not child:
                os._exit(sum(range(1000)) % 1)
            assert os.waitpid(child, 0)[1] == 0

        def threads():
            found = [threading.Thread(target=time.sleep, args=(random.random() / 100,)) for _ in range(10)]
            for thread in found: thread.start()
            for thread in found: thread.join()

        futures = [scene.submit(random.choice([forks, threads, lambda: time.sleep(0.001)])) for _ in range(300)]
        while not all(future.done() for future in futures):
            scene.sampler.tick_now()
            time.sleep(0.001)
        assert {future.result()["op"] for future in futures} == {"task-finished"}
        assert scene.sampler.off is None, scene.sampler.off
        assert scene.sampler.close_window("w").profile
        scene.submit(lambda: time.sleep(0.2))
        print("ended")
        """
    )
    ended = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=240)
    assert (ended.returncode, ended.stdout) == (0, "ended\n"), ended.stderr


def test_a_new_thread_finds_that_threads_can_be_sampled():
    found = []
    for _ in range(300):
        thread = threading.Thread(target=lambda: found.append(why_not()))
        thread.start()
        thread.join()
    assert {*found} == {None}
