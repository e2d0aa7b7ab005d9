"""Workloads whose tasks wait, or whose slots are idle, for a known cause, each on a cluster of processes of its own.

Each takes a scale, 1 for its full size, and a callable that measures: it takes the client and the work, which gives the
marks of its tasks (:class:`Mark`). Lines with ``# waits`` are those to be named. Tasks that a test has too are those of
:mod:`tests.waiting_tasks`.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import numpy as np
from distributed import Client

from benchmarks.diagnoses_work import SLOW_SERVER, number, process, sines, wait_for
from benchmarks.stragglers_work import burn
from benchmarks.worker_bed import CGROUPS, cgroup
from benchmarks.workload_runs import Ran, cluster, cores
from dask_efficiency import EfficiencyReport
from tests.thread_marks import Mark
from tests.waiting_tasks import (
    MEGABYTE,
    add_up,
    ask,
    await_event,
    begin_transaction,
    checksum,
    held_for,
    keep_to,
    marked,
    marks_of,
    nap,
    receive,
    run_program,
    run_program_for_output,
    want_lock,
)

PAGE = 4096

#: Seconds for which a task sleeps, or waits for somebody who does.
NAP = 0.2


#: Measures: (client, work).
Measure = Callable[[Client, Callable[[], list[Mark]]], None]


# -- one cause each --------------------------------------------------------------------------------


def python_loop(scale: float, measure: Measure) -> None:
    with cluster(workers=1, threads=4) as client:
        marks_of(client, add_up, [1000] * 4)
        measure(client, lambda: marks_of(client, add_up, [5_000_000] * number(32, scale)))


@marked
def count_letters(words: int) -> None:
    """String methods on objects: pure Python inside."""
    import pandas as pd

    text = pd.Series([f"word {i}" for i in range(words)], dtype=object)  # waits
    text.str.upper().str.replace("W", "v").str.len().sum()  # waits


def object_strings(scale: float, measure: Measure) -> None:
    with cluster(workers=1, threads=4) as client:
        marks_of(client, count_letters, [10] * 4)
        measure(client, lambda: marks_of(client, count_letters, [300_000] * number(32, scale)))


def sleeping(scale: float, measure: Measure) -> None:
    _in_four_threads(nap, scale, measure)


def _in_four_threads(
    task: Callable[..., list[Mark]], scale: float, measure: Measure, *, tasks: int = 80, seconds: float = NAP
) -> None:
    """Tasks that wait, after a short one in each thread."""
    with cluster(workers=1, threads=4) as client:
        marks_of(client, task, [0.001] * 4)
        measure(client, lambda: marks_of(client, task, [seconds] * number(tasks, scale)))


def slow_server(scale: float, measure: Measure) -> None:
    _of_slow_server(ask, scale, measure)


def _of_slow_server(task: Callable[..., list[Mark]], scale: float, measure: Measure) -> None:
    with process(SLOW_SERVER) as server, cluster(workers=1, threads=4) as client:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        marks_of(client, task, [port] * 4)
        measure(client, lambda: marks_of(client, task, [port] * number(80, scale)))


def slow_socket(scale: float, measure: Measure) -> None:
    _of_slow_server(receive, scale, measure)


def forget(path: str) -> None:
    """Have the kernel forget what it has in memory of a file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def read_pages(path: str, pages: int, seed: int) -> None:
    """Pages of a file, one at a time, that nobody has read: each waits for the disk."""
    there = os.path.getsize(path) // PAGE
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # or it would read ahead
        for page in np.random.default_rng(seed).integers(0, there, pages).tolist():
            os.pread(descriptor, PAGE, page * PAGE)  # waits
    finally:
        os.close(descriptor)


@marked
def read_cold(path: str, pages: int, seed: int) -> None:
    read_pages(path, pages, seed)


@contextmanager
def cold_file(megabytes: int) -> Iterator[str]:
    """A file on a disk of which nothing is in memory; :func:`no_disk` says where that cannot be."""
    with tempfile.TemporaryDirectory() as place:
        path = str(Path(place) / "cold")
        with open(path, "wb") as file:
            for _ in range(megabytes):
                file.write(os.urandom(MEGABYTE))
            os.fsync(file.fileno())
        forget(path)
        yield path


def no_disk() -> str:
    """Reason for which files cannot be read cold here; empty if they can. TMPDIR says where there is a disk."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_inblock
    with cold_file(4) as path:
        read_pages(path, 16, seed=0)
    if resource.getrusage(resource.RUSAGE_SELF).ru_inblock == before:
        return f"{tempfile.gettempdir()} is in memory: set TMPDIR to a folder on a disk"
    return ""


def cold_pages(scale: float, measure: Measure) -> None:
    with cold_file(1000) as path, cluster(workers=1, threads=1) as client:
        marks_of(client, read_cold, [path], [1], [0])

        def work() -> list[Mark]:
            forget(path)
            tasks = number(20, scale)
            return marks_of(client, read_cold, [path] * tasks, [4000] * tasks, range(tasks))

        measure(client, work)


def locked(scale: float, measure: Measure) -> None:
    _in_four_threads(want_lock, scale, measure)


def in_transactions(scale: float, measure: Measure) -> None:
    _in_four_threads(begin_transaction, scale, measure)


def events(scale: float, measure: Measure) -> None:
    _in_four_threads(await_event, scale, measure)


def programs(scale: float, measure: Measure) -> None:
    _in_four_threads(run_program, scale, measure, tasks=40, seconds=2 * NAP)


def programs_for_output(scale: float, measure: Measure) -> None:
    _in_four_threads(run_program_for_output, scale, measure, tasks=40, seconds=2 * NAP)


def one_core(scale: float, measure: Measure) -> None:
    with cluster(workers=1, threads=4) as client:
        marks_of(client, checksum, [1] * 4, [1] * 4)
        client.run(keep_to, cores()[0])
        tasks = number(16, scale)
        measure(client, lambda: marks_of(client, checksum, [32] * tasks, [10] * tasks))


#: The limited worker's share by CFS's bandwidth control: 20 of each 100 ms. A busy machine gives it more.
LIMIT = {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "20000"}


def no_limits() -> str:
    """Reason for which processes cannot be limited here; empty if they can."""
    if os.geteuid() != 0:
        return "a CPU limit takes root"
    if not (CGROUPS / "cpu" / "cpu.shares").exists():
        return "the cpu controller of cgroups of version 1 is not mounted"
    return ""


def limited(scale: float, measure: Measure) -> None:
    with cluster(workers=1, threads=1) as client:
        marks_of(client, checksum, [1], [1])
        pids = list(client.run(os.getpid).values())
        with cgroup("cpu", "waiting", LIMIT, pids):
            tasks = number(8, scale)
            measure(client, lambda: marks_of(client, checksum, [32] * tasks, [10] * tasks))


def product(side: int, times: int) -> None:
    """Matrix products, which BLAS computes in threads of its own."""
    a = np.ones((side, side))
    for _ in range(times):
        a @ a  # waits


@marked
def multiply(side: int, times: int) -> None:
    product(side, times)


def set_blas_threads(threads: int) -> None:
    from threadpoolctl import threadpool_limits

    threadpool_limits(threads)


def matmul(scale: float, measure: Measure) -> None:
    """Two threads multiply matrices.

    OpenBLAS takes one product at a time: one waits while the other computes with a thread of BLAS.
    """
    with cluster(workers=1, threads=2) as client:
        client.run(set_blas_threads, 2)
        marks_of(client, multiply, [500] * 2, [1] * 2)
        tasks = number(24, scale)
        measure(client, lambda: marks_of(client, multiply, [1500] * tasks, [4] * tasks))


@marked
def read_columns(path: str) -> None:
    """Arrow decodes the columns in threads of its own."""
    import pandas as pd

    pd.read_parquet(path)  # waits


@contextmanager
def parquet_file() -> Iterator[str]:
    """A file of 16 columns of a million integers."""
    import pandas as pd

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"column {i}": rng.integers(0, 10_000, MEGABYTE) for i in range(16)})
    with tempfile.TemporaryDirectory() as place:
        path = str(Path(place) / "frame.parquet")
        frame.to_parquet(path)
        yield path


def parquet(scale: float, measure: Measure) -> None:
    with parquet_file() as path, cluster(workers=1, threads=2) as client:
        marks_of(client, read_columns, [path] * 2)
        measure(client, lambda: marks_of(client, read_columns, [path] * number(60, scale)))


# -- causes mixed ----------------------------------------------------------------------------------


@marked
def loop_and_nap(numbers: int, seconds: float) -> None:
    total = 0
    for i in range(numbers):
        total += i  # waits
    time.sleep(seconds)  # waits


def gil_and_sleep(scale: float, measure: Measure) -> None:
    with cluster(workers=1, threads=4) as client:
        marks_of(client, loop_and_nap, [1000] * 4, [0.001] * 4)
        tasks = number(80, scale)
        measure(client, lambda: marks_of(client, loop_and_nap, [1_000_000] * tasks, [0.1] * tasks))


@marked
def read_ask_compute(path: str, port: int, seed: int) -> None:
    """Reads what is cold, asks a server, and computes."""
    read_pages(path, 1500, seed)
    urlopen(f"http://127.0.0.1:{port}", timeout=30).close()  # waits
    sines(50)


def file_network_compute(scale: float, measure: Measure) -> None:
    with (
        process(SLOW_SERVER) as server,
        cold_file(1000) as path,
        cluster(workers=1, threads=3) as client,
    ):
        assert server.stdout is not None
        port = int(server.stdout.readline())
        marks_of(client, read_ask_compute, [path] * 3, [port] * 3, range(3))

        def work() -> list[Mark]:
            forget(path)
            tasks = number(36, scale)
            return marks_of(client, read_ask_compute, [path] * tasks, [port] * tasks, range(tasks))

        measure(client, work)


@marked
def multiply_and_lock(side: int, times: int, seconds: float) -> None:
    """BLAS computes in its threads; then another thread holds a lock and sleeps."""
    product(side, times)
    with held_for(seconds):  # waits
        pass


def blas_and_lock(scale: float, measure: Measure) -> None:
    with cluster(workers=1, threads=2) as client:
        client.run(set_blas_threads, 2)
        marks_of(client, multiply_and_lock, [500] * 2, [1] * 2, [0.001] * 2)
        tasks = number(40, scale)
        measure(client, lambda: marks_of(client, multiply_and_lock, [1500] * tasks, [2] * tasks, [NAP] * tasks))


# -- idle slots ------------------------------------------------------------------------------------


def of_diagnosis(run: Callable[[float], Ran]) -> Callable[[float, Measure], EfficiencyReport]:
    """A workload of :mod:`benchmarks.diagnoses_work`, which measures itself."""
    return lambda scale, _: run(scale).report


def restrictions(scale: float, measure: Measure) -> None:
    with cluster() as client:
        wait_for(client, burn, [0.001] * 4)
        first = [min(client.scheduler_info(n_workers=-1)["workers"])]

        def work() -> list[Mark]:
            wait_for(client, burn, [0.2] * number(40, scale), workers=first)
            return []  # there are no marks

        measure(client, work)
