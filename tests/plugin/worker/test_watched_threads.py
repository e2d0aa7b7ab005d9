from __future__ import annotations

import threading

import pytest
from distributed import Scheduler, Worker

from dask_efficiency.plugin.thread_clocks import ThreadClocks
from dask_efficiency.plugin.worker.watched_threads import LibraryThreads, Watched, WatchedThreads
from tests.plugin.tasks import burn
from tests.plugin.watch import eventually
from tests.plugin.worker.threads_in_states import in_thread, needs_threads

pytestmark = needs_threads

MILLISECOND = 1_000_000


@pytest.fixture
def threads(reader):
    threads = WatchedThreads(reader, {})
    yield threads
    threads.close()


def test_time_is_cpu_waiting_for_a_core_and_the_rest():
    watched = Watched(None, ThreadClocks(100, 10, 1), at=1000)  # type: ignore[arg-type]
    watched.state = "sleep"
    assert watched.read(ThreadClocks(100, 10, 1), 1050) == 0
    assert (watched.cpu, watched.rest, watched.state) == (0, 50, "sleep")
    assert watched.read(ThreadClocks(120, 15, 2), 1100) == 5
    assert (watched.cpu, watched.rest, watched.state) == (20, 75, None)


def test_a_thread_is_found_and_lost(threads):
    stop = threading.Event()
    with in_thread(stop.wait, stop.set) as thread:
        threads.look()
        found = threads.task_thread(thread.ident, 5)
        watched = found[0]
        assert watched.files.native_id == thread.native_id
        assert threads.task_thread(thread.ident, 6)[0] is watched
    eventually(lambda: not thread.is_alive())
    threads.look()
    assert threads.task_thread(thread.ident, 7) is None
    assert watched.files.clocks() is None


def test_a_thread_with_a_reused_ident_is_another_thread(threads):
    seen = {}
    for i in range(200):
        stop = threading.Event()
        with in_thread(stop.wait, stop.set) as thread:
            threads.look()
            watched, _ = threads.task_thread(thread.ident, i)
            assert watched.files.native_id == thread.native_id
            assert watched.at == i
            seen[thread.ident] = seen.get(thread.ident, 0) + 1
    if max(seen.values()) == 1:
        pytest.skip("no ident was used again")


def test_cpu_of_threads_of_dask_is_no_librarys(reader, monkeypatch):
    """Dask's threads are known by their names."""
    # Other tests of this process may have left some behind.
    monkeypatch.setattr(Scheduler, "_instances", set())
    monkeypatch.setattr(Worker, "_instances", set())
    threads = WatchedThreads(reader, {})
    try:
        for name, is_library in (("Dask-Offload-1", False), ("somebody", True)):
            threads.look()
            threads.read_cpu()
            done, stop = threading.Event(), threading.Event()

            def work(done=done, stop=stop):
                burn(0.2)
                done.set()
                stop.wait()

            thread = threading.Thread(target=work, name=name)
            thread.start()
            done.wait()
            threads.look()
            computed = threads.read_cpu()
            stop.set()
            thread.join()
            assert threads.cpu_of(thread.ident) >= 200 * MILLISECOND
            assert (computed >= 150 * MILLISECOND) == is_library
    finally:
        threads.close()


def test_threads_that_are_not_of_python_are_read(reader):
    libraries = LibraryThreads(reader)
    stop = threading.Event()
    with in_thread(stop.wait, stop.set) as thread:
        libraries.find({threading.get_native_id()}, at=0)
        assert thread.native_id in libraries._kept
        assert libraries.core_wait(0) >= 0
        assert libraries.core_wait(10**12) == 0  # long ago
    libraries.close()
    assert not libraries._kept
