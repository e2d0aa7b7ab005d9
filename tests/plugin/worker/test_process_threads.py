from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.accounts.wire.wire import CORE_WAIT, OTHER_CORE_WAIT, OTHER_CPU
from dask_efficiency.plugin.worker import process_threads
from dask_efficiency.plugin.worker.process_threads import CoreWait, ProcessThreads

SECOND = 1_000_000_000


class Threads:
    """Task threads that have these native ids, and so much CPU."""

    def __init__(self, ids: set[int], cpu: int = 0) -> None:
        self.ids = ids
        self.spent = cpu

    def native_ids(self) -> set[int]:
        return self.ids

    def cpu(self) -> int:
        return self.spent


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """How long each thread is said to have waited."""
    told: dict[int, int] = {}
    monkeypatch.setattr(process_threads, "_waited", lambda: dict(told))
    monkeypatch.setattr(process_threads, "_is_told", lambda: True)
    return told


def test_waiting_is_told_apart_by_whose_thread_it_is_and_counts_from_now(waited: dict[int, int]) -> None:
    loop = threading.get_native_id()
    waited.update({1: 500, 2: 100, loop: 7})
    wait = CoreWait()
    waited.update({1: 530, 2: 105, 3: 2, loop: 9})
    wait.read({1, 3})
    assert (wait.all, wait.tasks, wait.others) == (39, 32, 5)
    del waited[1]  # it ended
    waited[2] = 106
    wait.read({3})
    assert (wait.all, wait.tasks, wait.others) == (40, 32, 6)


def test_where_the_system_does_not_tell_nothing_is_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_threads, "_THREADS", "/nowhere")
    threads = ProcessThreads(Threads(set()))
    threads.read()
    assert threads.core_wait.all is None
    assert threads.details == {}


def alone(monkeypatch: pytest.MonkeyPatch, workers: int = 1) -> None:
    monkeypatch.setattr(process_threads, "Worker", SimpleNamespace(_instances=[object()] * workers))
    monkeypatch.setattr(process_threads, "Scheduler", SimpleNamespace(_instances=[]))


def test_cpu_of_other_threads_is_what_neither_tasks_nor_the_loop_used(
    monkeypatch: pytest.MonkeyPatch, waited: dict[int, int]
) -> None:
    alone(monkeypatch)
    clocks = iter([(20 * SECOND, 3 * SECOND), (21 * SECOND, 3 * SECOND)])
    monkeypatch.setattr(process_threads, "_clocks", lambda: next(clocks))
    tasks = Threads({1}, cpu=4 * SECOND)
    threads = ProcessThreads(tasks)
    threads._began = 10 * SECOND, 1 * SECOND
    waited.update({1: 6, 2: 5})
    threads.read()
    assert threads.outside == {OTHER_CPU: 4 * SECOND, OTHER_CORE_WAIT: 5}
    assert threads.details == {CORE_WAIT: 6}
    # a task's CPU may be known a little later than the process's: the sum does not fall
    tasks.spent = 9 * SECOND
    threads.read()
    assert threads.outside[OTHER_CPU] == 4 * SECOND


def test_of_a_process_that_several_workers_share_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    alone(monkeypatch, workers=2)
    threads = ProcessThreads(Threads(set()))
    began = time.process_time_ns()
    while time.process_time_ns() - began < 10_000_000:
        pass
    threads.read()
    assert threads.outside == {}


def test_a_thread_of_a_library_is_seen_by_the_system_s_own_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    alone(monkeypatch)
    threads = ProcessThreads(Threads(set()))
    used: list[int] = []

    def compute() -> None:
        while time.thread_time_ns() < 50_000_000:
            pass
        used.append(time.thread_time_ns())

    worker: Any = threading.Thread(target=compute)
    worker.start()
    worker.join()
    threads.read()
    assert threads.outside[OTHER_CPU] >= used[0]
