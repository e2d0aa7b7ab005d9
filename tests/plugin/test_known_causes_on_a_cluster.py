"""Known answers: the cause of each workload with one cause built in, on the line that waits.

They hold on a busy machine: waiting for a core is compared with the kernel's clock that the tasks read themselves, and
left out of the shares of the other causes, which it would dilute. And they hold for few looks: each thread has one
task, a long one. Where short ones follow each other in all threads at once, one look that meets them as they begin, at
the GIL, stands for as much time as any other; in a second, that is a fifth of all. ``benchmarks/waiting.py`` has more
workloads.
"""

from __future__ import annotations

import ctypes
import os
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from dask_efficiency import EfficiencyPlugin, efficiency_report
from dask_efficiency.accounts.buckets import Bucket
from tests import waiting_tasks as work
from tests.plugin.watch import eventually, nothing_runs
from tests.thread_marks import Mark, Marking
from tests.waiting_tasks import MAX_UNKNOWN, MIN_RIGHT

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not Path("/proc/self/syscall").exists(), reason="/proc/PID/syscall is not there: no cause is"),
]

THREADS = 4
#: For which a task waits, so that a look at one thread is little of it.
SECONDS = 2.0
#: What a task's clocks miss: its thread's time just before the task and just after it.
ABSOLUTE = 0.02


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Of one worker with four threads, which all have been started."""
    from tests.clusters import _cluster

    with _cluster(n_workers=1, threads_per_worker=THREADS) as cluster, Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin())
        work.marks_of(client, work.nap, [0.05] * THREADS)
        eventually(lambda: nothing_runs(client))
        yield client


class _Late(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.recv(1000)
        time.sleep(SECONDS)
        self.request.sendall(b"HTTP/1.0 204 No Content\r\n\r\n")


@pytest.fixture(scope="module")
def late_server() -> Iterator[int]:
    """The port of a server that takes its time."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Late) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


#: Tasks with one cause of waiting built in: their argument, and the cause.
ALONE: dict[Callable[..., list[Mark]], tuple[float, str]] = {
    work.add_up: (12_000_000, "gil"),
    work.nap: (SECONDS, "sleep"),
    work.want_lock: (SECONDS, "lock"),
    work.begin_transaction: (SECONDS, "lock"),
    work.await_event: (SECONDS, "cluster"),
    work.run_program: (SECONDS, "child-process"),
    work.run_program_for_output: (SECONDS, "child-process"),
}


def reported(client: Client, function: Callable[..., list[Mark]], *columns: Any) -> tuple[Any, list[Mark]]:
    """A report of such tasks, and their marks."""
    with efficiency_report(client) as report:
        marks = work.marks_of(client, function, *columns)
    return report, marks


def must_be(report: Any, marks: list[Mark], cause: str) -> None:
    """The waiting is what was built in, as far as it is not waiting for a core; and that is what the kernel says."""
    assert not report.not_sampled
    waiting = dict(report.waiting)
    assert sum(waiting.values()) == pytest.approx(report.breakdown[Bucket.THREAD_NONCPU], rel=0, abs=1e-6)
    for_a_core = waiting.get("core", 0.0) + waiting.get("throttled", 0.0)
    by_kernel = sum(mark.core_wait for mark in marks) / 1e9
    # On a busy machine a thread waits for a core just before and after its task, too.
    assert for_a_core <= 2 * by_kernel + 0.25 * report.breakdown[Bucket.THREAD_NONCPU]
    # What a task waits before the first look at it and after the last is not seen: all of it, where it just sleeps.
    if cause in ("gil", "core"):
        assert for_a_core >= 0.5 * by_kernel - ABSOLUTE * len(marks)
    if cause == "core":
        assert for_a_core >= MIN_RIGHT * report.breakdown[Bucket.THREAD_NONCPU]
        return
    rest = report.breakdown[Bucket.THREAD_NONCPU] - for_a_core
    assert waiting[cause] >= MIN_RIGHT * rest
    assert waiting.get("unknown", 0.0) <= MAX_UNKNOWN * rest


@pytest.mark.parametrize("function", ALONE)
def test_the_cause_is_named_and_its_first_culprit_is_on_a_line_that_waits(client, function):
    argument, cause = ALONE[function]
    report, marks = reported(client, function, [argument] * THREADS)
    must_be(report, marks, cause)
    first = next(one for one in report.culprits[:5] if (one.bucket, one.cause) == (Bucket.THREAD_NONCPU, cause))
    assert first.prefix == function.__name__
    assert first.line in work.waiting_lines(function)


@pytest.mark.parametrize("function", [work.ask, work.receive], ids=["in poll", "in recv"])
def test_waiting_for_a_slow_server_is_network(client, late_server, function):
    report, marks = reported(client, function, [late_server] * THREADS)
    must_be(report, marks, "network")


def test_four_threads_on_one_core_wait_for_it(new_cluster):
    with new_cluster(n_workers=1, threads_per_worker=THREADS) as cluster, Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin())
        work.marks_of(client, work.checksum, [1] * THREADS, [1] * THREADS)
        client.run(work.keep_to, min(os.sched_getaffinity(0)))
        report, marks = reported(client, work.checksum, [32] * 12, [10] * 12)
        must_be(report, marks, "core")


def compute_in_own_threads(seconds: float) -> dict[str, float]:
    """Compute in threads that Python does not know, one after the other, as libraries do, and wait for each.

    Gives seconds: ``wall``, ``core`` (waiting for one) and CPU of this ``thread`` and of the ``others`` of the process.
    """
    libc = ctypes.CDLL(None)
    text = ctypes.create_string_buffer(b"x" * 50_000_000)
    thread, count = ctypes.c_ulong(), ctypes.cast(libc.strlen, ctypes.c_void_p)
    clocks, process = Marking(), time.process_time()
    while True:
        libc.pthread_create(ctypes.byref(thread), None, count, text)
        libc.pthread_join(thread, None)
        mark, others = clocks.read(), time.process_time() - process
        if others - mark.cpu / 1e9 > seconds:
            break
    own = mark.cpu / 1e9
    wall, core = (mark.stop - mark.start) / 1e9, mark.core_wait / 1e9
    return {"wall": wall, "core": core, "thread": own, "others": others - own}


def test_time_of_a_librarys_threads_is_useful_and_no_waiting(client):
    with efficiency_report(client) as report:
        # One task at a time: what else the process computes is little, and none of it another task's.
        results = [client.submit(compute_in_own_threads, 0.5, pure=False).result() for _ in range(4)]
    computed = sum(task["others"] for task in results)
    found = report.breakdown["library-threads"]
    waited = sum(task["wall"] - task["thread"] - task["core"] for task in results)
    # Looks at a busy machine are few, and each stands for much; what the tasks do not wait for is in free slots.
    assert 0.6 * min(computed, waited) <= found <= 1.4 * computed
    finalized = sum(report.breakdown[b] for b in report.breakdown if b not in ("no-work", "running"))
    assert report.efficiency >= found / finalized
