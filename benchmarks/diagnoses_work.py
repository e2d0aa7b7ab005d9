"""Workloads with one known fault each, every one on a cluster of processes of its own.

Each takes a scale, 1 for its full size, and whether the fault is mended, where it can be, and gives the report of it
with what a stopwatch and the kernel say. Mended, it does the same work.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import dask
import numpy as np
from dask.delayed import delayed
from distributed import Client, Lock, wait

from benchmarks.stragglers_work import burn
from benchmarks.workload_runs import CORES, Ran, cluster, cores, measured
from tests.waiting_tasks import keep_to

MEGABYTE = 1_000_000

#: Seconds of CPU that one byte of a partition costs.
SECONDS_A_BYTE = 1e-7


def number(full: float, scale: float) -> int:
    return max(2, round(full * scale))


def wait_for(client: Client, function: Callable[..., Any], *columns: Any, **options: Any) -> None:
    wait(client.map(function, *columns, pure=False, **options))


# -- what happens in the tasks ---------------------------------------------------------------------


def count_letters(words: int, dtype: str = "object") -> int:
    """String methods, which on objects are pure Python inside, and hold the GIL."""
    import pandas as pd

    text = pd.Series([f"word {i}" for i in range(words)], dtype=dtype)
    return int(text.str.upper().str.replace("W", "v").str.len().sum())


def object_strings(scale: float, *, mended: bool = False, dtype: str = "object") -> Ran:
    """Four threads of one process take turns; mended, each has a process, or the text is Arrow's."""
    with cluster(workers=4 if mended else 1, threads=1 if mended else 4) as client:
        wait_for(client, count_letters, [10] * 4, dtype=dtype)
        return measured(client, lambda: wait_for(client, count_letters, [200_000] * number(40, scale), dtype=dtype))


def sines(times: int) -> float:
    """Numpy lets go of the GIL meanwhile."""
    values = np.linspace(0.0, 1.0, 200_000)
    for _ in range(times):
        np.sin(values, out=values)
    return float(values[-1])


def threads_beyond_cores(scale: float, *, mended: bool = False) -> Ran:
    """Sixteen threads compute on two cores; mended, two do."""
    with cluster(workers=1, threads=2 if mended else 16) as client:
        wait_for(client, sines, [1] * 16)
        return measured(client, lambda: wait_for(client, sines, [100] * number(96, scale)))


def read_columns(path: str, alone: bool = False) -> int:
    """Arrow decodes the columns, in threads of its own unless the task is to do that alone."""
    import pandas as pd

    return len(pd.read_parquet(path, use_threads=not alone, to_pandas_kwargs={"use_threads": not alone}))


def parquet(scale: float, *, mended: bool = False) -> Ran:
    """Two threads read files; Arrow's threads do the work. Mended, the tasks' own threads do."""
    import pandas as pd

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"column {i}": rng.integers(0, 10_000, MEGABYTE) for i in range(16)})
    with tempfile.TemporaryDirectory() as place, cluster(workers=1, threads=2) as client:
        paths = [str(Path(place) / f"{i}.parquet") for i in range(2 + number(60, scale))]
        frame.to_parquet(paths[0])
        for path in paths[1:]:
            os.link(paths[0], path)  # a file for each task, of which the disk has one
        wait_for(client, read_columns, paths[:2])
        return measured(client, lambda: wait_for(client, read_columns, paths[2:], alone=mended))


def ask(port: int) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/")
    status = connection.getresponse().status
    connection.close()
    return status


SLOW_SERVER = """
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Slow(BaseHTTPRequestHandler):
    def do_GET(self):
        time.sleep(0.25)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
print(server.server_port, flush=True)
server.serve_forever()
"""

_HOG = """
import os, sys, time
os.sched_setaffinity(0, map(int, sys.argv[1:]))
until = time.monotonic() + 120
while time.monotonic() < until: pass
"""


@contextmanager
def process(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A program in another process, for as long as the block takes."""
    started = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def slow_server(scale: float, *, mended: bool = False) -> Ran:
    """Requests whose answers take 250 ms, four at a time; mended, eight."""
    with process(SLOW_SERVER) as server, cluster(threads=4 if mended else 2) as client:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        wait_for(client, ask, [port] * 4)
        return measured(client, lambda: wait_for(client, ask, [port] * number(80, scale)))


def one_at_a_time(seconds: float, waits: float = 0.0, lock: bool = True) -> None:
    """Computes while it holds a lock that all tasks want, and sleeps after it."""
    with Lock("the only one") if lock else nullcontext():
        burn(seconds)
    time.sleep(waits)


def distributed_lock(scale: float, *, mended: bool = False) -> Ran:
    """A lock lets one task of four work; mended, there is none."""
    tasks = number(30, scale)
    with cluster(threads=2) as client:
        wait_for(client, one_at_a_time, [0.001] * 4)
        return measured(client, lambda: wait_for(client, one_at_a_time, [0.2] * tasks, lock=not mended))


def lock_and_sleep(scale: float, *, mended: bool = False, threads: int = 2) -> Ran:
    """Tasks wait for a lock about as long as they sleep after it; mended, there is no lock."""
    tasks = number(30, scale)
    with cluster(threads=threads) as client:
        wait_for(client, one_at_a_time, [0.001] * 4)
        return measured(client, lambda: wait_for(client, one_at_a_time, [0.15] * tasks, waits=0.24, lock=not mended))


def forty_megabytes(seed: int) -> Any:
    return np.random.default_rng(seed).random(5_000_000)


def total(array: Any) -> float:
    return float(array.sum())


def spilling(scale: float, *, mended: bool = False) -> Ran:
    """Three times as much data as fits, read twice; more than fits at any scale. Mended, it fits."""
    with cluster(workers=1, threads=2, memory_limit="4 GB" if mended else "500 MB") as client:

        def work() -> None:
            arrays = client.map(forty_megabytes, range(max(20, number(40, scale))), pure=False)
            for _ in range(2):
                wait_for(client, total, arrays)

        return measured(client, work)


def partition(nbytes: int) -> bytes:
    return bytes(nbytes)


def convert(part: bytes) -> int:
    """Takes as long as its input is large."""
    burn(len(part) * SECONDS_A_BYTE)
    return len(part)


def skew(scale: float, *, mended: bool = False) -> Ran:
    """The last of many partitions is 20 times as large as the others; mended, all are alike."""
    sizes = [MEGABYTE] * number(40, scale) + ([MEGABYTE] * 20 if mended else [20 * MEGABYTE])
    with cluster() as client:
        wait_for(client, convert, [b""] * 2)

        def work() -> None:
            wait_for(client, convert, client.map(partition, sizes, pure=False))

        return measured(client, work)


def keyed(seed: int, rows: int, salts: int) -> Any:
    """A frame in which more than half of the rows have one key, or one of ``salts`` keys."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    key = np.where(rng.random(rows) < 0.55, -1 - rng.integers(0, salts, rows), rng.integers(0, 10_000, rows))
    return pd.DataFrame({"key": key, "x": rng.random(rows)})


def heavy(frame: Any) -> Any:
    """Takes as long as its frame is long."""
    burn(len(frame) * 8e-6)
    return frame.head(1)


def skewed_shuffle(scale: float, *, mended: bool = False) -> Ran:
    """More than half of the rows have one key, and so are one partition after the shuffle; mended, it is salted."""
    import dask.dataframe as dd

    parts, rows, salts = number(40, scale), 20_000, 1000 if mended else 1
    meta = keyed(0, 10, salts)
    with cluster(threads=2) as client:
        frame = dd.from_map(keyed, range(parts), rows=rows, salts=salts, meta=meta)
        wait_for(client, heavy, [meta] * 4)

        def work() -> None:
            frame.shuffle("key", npartitions=parts).map_partitions(heavy, meta=meta).compute()

        return measured(client, work)


def flood(scale: float, *, mended: bool = False) -> Ran:
    """So many tasks of a millisecond that they wait for the scheduler; mended, a hundred are one."""
    fused = 100 if mended else 1
    with cluster() as client:
        wait_for(client, burn, [0.001] * 100)
        return measured(client, lambda: wait_for(client, burn, [0.001 * fused] * number(50_000 / fused, scale)))


def chain(scale: float, *, mended: bool = False) -> Ran:
    """Each task needs the one before; mended, the one before that."""
    links, apart = number(40, scale), 2 if mended else 1
    with cluster() as client:

        def work() -> None:
            last: list[Any] = [None] * apart
            for _ in range(links):
                last.append(client.submit(burn, 0.2, 0.0, last[-apart], pure=False))
            wait(last[-apart:])

        return measured(client, work)


def build_and_compute(building: float, computing: float, scale: float, *, mended: bool) -> Ran:
    """The client builds a graph of eight tasks for a while, then computes it, ten times; mended, it does not wait."""

    def work() -> None:
        submitted = []
        for _ in range(number(10, scale)):
            graph = []
            for _ in range(8):
                burn(building / 8)
                graph.append(delayed(burn, pure=False)(computing * CORES / 8))
            if mended:
                submitted += client.compute(graph)
            else:
                dask.compute(*graph)
        wait(submitted)

    with cluster() as client:
        return measured(client, work)


def client_at_80_percent(scale: float, *, mended: bool = False) -> Ran:
    """It takes 0.8 s to build what takes 0.2 s to compute; mended, both go on at the same time."""
    return build_and_compute(0.8, 0.2, scale, mended=mended)


def client_at_48_percent(scale: float, *, mended: bool = False) -> Ran:
    """It takes 0.48 s to build what takes 0.52 s to compute; mended, both go on at the same time."""
    return build_and_compute(0.48, 0.52, scale, mended=mended)


def thinking_client(scale: float) -> Ran:
    """A script that sleeps for 0.9 s before each of five computations of 0.2 s; nobody mends that."""

    def work() -> None:
        for _ in range(number(5, scale)):
            time.sleep(0.9)
            wait_for(client, burn, [0.1] * 4)

    with cluster() as client:
        return measured(client, work)


def cpu_hog(scale: float, *, mended: bool = False) -> Ran:
    """Three processes that are not Dask's compute on the core of one worker of three; the others share the other core.

    Tasks sleep for half their time, so that one core is enough for two workers. Mended, there are no other processes.
    """
    first, *rest = cores()
    with ExitStack() as stack:
        client = stack.enter_context(cluster(workers=3))
        for worker, about in client.scheduler_info(n_workers=-1)["workers"].items():
            client.run(keep_to, rest[0] if about["name"] and rest else first, workers=[worker])
        for _ in range(0 if mended else 3):
            stack.enter_context(process(_HOG, str(first)))
        return measured(
            client, lambda: wait_for(client, burn, [0.08] * number(150, scale), [0.08] * number(150, scale))
        )


def busy_host(scale: float, *, mended: bool = False) -> Ran:
    """Four threads and four processes that are not Dask's compute on two cores; mended, without these."""
    with ExitStack() as stack:
        client = stack.enter_context(cluster(workers=1, threads=4))
        wait_for(client, sines, [1] * 4)
        for _ in range(0 if mended else 4):
            stack.enter_context(process(_HOG, *map(str, cores())))
        return measured(client, lambda: wait_for(client, sines, [100] * number(40, scale)))


STOPPER = """
import os, signal, sys, time
process = int(sys.argv[1])
try:
    while os.getppid() != 1:
        os.kill(process, signal.SIGSTOP)
        time.sleep(0.25)
        os.kill(process, signal.SIGCONT)
        time.sleep(0.25)
except ProcessLookupError:
    pass
"""


def stopped_worker(scale: float, *, mended: bool = False) -> Ran:
    """One worker of four, which have one thread each, is stopped for half of the time; mended, it is not."""
    tasks = number(200, scale)
    with ExitStack() as stack:
        client = stack.enter_context(cluster(workers=4))
        wait_for(client, burn, [0.001] * 4)
        (process_id, *_) = client.run(os.getpid).values()
        if not mended:
            stack.callback(os.kill, process_id, signal.SIGCONT)
            stack.enter_context(process(STOPPER, str(process_id)))
        return measured(client, lambda: wait_for(client, burn, [0.05] * tasks, [0.05] * tasks))


def products(seconds: float) -> float:
    """Multiplies matrices, in as many threads of OpenBLAS as it has."""
    matrix = np.random.default_rng(0).random((1000, 1000))
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        matrix = matrix @ matrix
        matrix /= np.abs(matrix).max()
    return float(matrix[0, 0])


def own_threads(scale: float) -> Ran:
    """One task on the only worker, which has two threads, computes in two threads of its own; there is no fault."""
    threads = {f"{name}_NUM_THREADS": 2 for name in ("OMP", "OPENBLAS", "MKL")}
    with dask.config.set({"distributed.nanny.pre-spawn-environ": threads}), cluster(workers=1, threads=2) as client:
        wait_for(client, products, [0.01])
        return measured(client, lambda: wait_for(client, products, [8 * scale]))


def sines_and_sleep(times: int) -> None:
    """Sleeps for as long as it has computed."""
    began = time.thread_time()
    sines(times)
    time.sleep(time.thread_time() - began)


def half_waiting(scale: float, *, mended: bool = False) -> Ran:
    """Two threads each sleep for half of their time; mended, four do."""
    with cluster(workers=1, threads=4 if mended else 2) as client:
        wait_for(client, sines, [1] * 2)
        return measured(client, lambda: wait_for(client, sines_and_sleep, [100] * number(40, scale)))


def no_workers_at_first(scale: float, *, mended: bool = False) -> Ran:
    """Four tasks of a second are there 6 s before the two workers are asked for; mended, these are there first."""
    with cluster(workers=2 if mended else 0) as client:

        def work() -> None:
            futures = client.map(time.sleep, [1.0] * 4, pure=False)
            if not mended:
                time.sleep(6 * scale)
                client.cluster.scale(2)
            wait(futures)

        return measured(client, work)


def repeated_computes(scale: float, *, mended: bool = False) -> Ran:
    """A collection is computed four times; mended, it is persisted."""
    import dask.array as da

    random = da.random.random((8000, 4000), chunks=500)
    with cluster(threads=2) as client:

        def work() -> None:
            kept = random.persist() if mended else random
            for _ in range(number(4, scale)):
                kept.sum().compute()

        return measured(client, work)
