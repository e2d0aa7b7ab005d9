"""The bed of ``benchmarks/chaos.py``: a cluster that may be killed whole, a small disk, and work with known results."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import dask
from distributed import Client, LocalCluster, worker_client

from dask_efficiency import EfficiencyPlugin
from dask_efficiency.plugin.names import PLUGIN

WORKERS, THREADS = 3, 2

#: What a worker may have, and its nanny kills it for; results beyond a tenth of that are spilled.
MEMORY = 700 * 2**20
SETTINGS = {
    "distributed.scheduler.allowed-failures": 10_000,
    "distributed.worker.memory.target": 0.1,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": 0.9,
    "distributed.worker.daemon": False,
    "distributed.comm.timeouts.connect": "60s",
    "distributed.admin.system-monitor.gil.enabled": False,
    "efficiency.report-timeout": "60s",
}

#: Of the disk that the workers share.
DISK = 256 * 2**20

#: A condition that does not come about in so many seconds is a defect.
PATIENCE_SECONDS = 180

#: Tries of one piece of work, which may fail when a disk is full or a scheduler is gone.
MAX_TRIES = 12

#: In a traceback or a log, a failure of ours. What fails in Dask's own handlers passes through those that time them.
OURS = re.compile(r"/dask_efficiency/(?!plugin/(scheduler/loop_meter|worker/shuffle_watch))|dask_efficiency - ERROR")


def eventually(condition: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS) -> Any:
    """The first value of a condition that is true."""
    until = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > until:
            raise TimeoutError(f"waited {seconds:g} s for {what} in vain")
        time.sleep(0.1)
    return value


def accounts_of(dask_scheduler: Any) -> Any:
    """The accounts of the plugin's meter."""
    return dask_scheduler.plugins[PLUGIN]._meter.accounts


# -- the cluster -----------------------------------------------------------------------------------


def host(port: int, disk: str) -> None:
    """Be the process of a cluster with its scheduler and nannies, until standard input ends."""
    dask.config.set(SETTINGS)
    with LocalCluster(
        n_workers=WORKERS,
        threads_per_worker=THREADS,
        scheduler_port=port,
        dashboard_address=":0",
        memory_limit=MEMORY,
        local_directory=disk,
        silence_logs=False,
    ) as cluster:
        cluster.scheduler.chaos_cluster = cluster
        print("READY", flush=True)
        sys.stdin.read()
    print("CLOSED", flush=True)


def _mounted(disk: Path, nbytes: int) -> bool:
    """Make a folder a disk of so many bytes; False, and an ordinary folder, where that needs rights."""
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={nbytes}", "tmpfs", str(disk)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


class Bed:
    """The cluster, its client, and what it is known to have been through.

    Parameters
    ----------
    folder
        For files and logs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        #: What is drawn for an event; each has one of its own.
        self.rng = random.Random()
        self.disk, self.tiny, self.log = folder / "disk", folder / "tiny", folder / "cluster.log"
        #: Whether there are disks that can be full: one of the workers, and one that has room for nothing.
        self.small = all(_mounted(disk, nbytes) for disk, nbytes in ((self.disk, DISK), (self.tiny, 2**14)))
        #: Names of workers of which part of the time is not measured because of what was done to them.
        self.disturbed: set[str] = set()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._process: subprocess.Popen[str] | None = None
        self.start()
        self.client = Client(f"tcp://127.0.0.1:{self.port}", timeout=PATIENCE_SECONDS)
        self.register()

    # -- coming and going

    def start(self) -> None:
        """Start the cluster's process."""
        command = [sys.executable, "-m", "benchmarks.chaos", "--host", str(self.port), str(self.disk)]
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "READY\n":
            raise RuntimeError(f"the cluster did not start; see {self.log}")

    def register(self, **options: Any) -> None:
        """Have the cluster metered, and wait until all are."""
        self.client.register_plugin(EfficiencyPlugin(**options))

    def stop(self, *, kill: bool = False) -> None:
        """End the cluster in order, or all of its processes at once."""
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        if not kill:
            process.stdin.close()
            if "CLOSED\n" not in process.stdout.read():
                raise RuntimeError("the cluster did not close in order")
            process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()

    def close(self) -> None:
        """Leave nothing behind."""
        with suppress(Exception):
            self.client.close(timeout=5)
        self.stop(kill=True)
        for disk in (self.disk, self.tiny):
            if os.path.ismount(disk):
                subprocess.run(["umount", "-l", str(disk)], check=True)

    @property
    def pid(self) -> int:
        """Of the scheduler."""
        assert self._process is not None
        return self._process.pid

    # -- workers

    def workers(self) -> dict[str, tuple[str, int]]:
        """Address and process of each worker that is there, by name."""

        def look(dask_scheduler: Any) -> Any:
            return {str(ws.name): (ws.address, ws.pid) for ws in dask_scheduler.workers.values()}

        return dict(sorted(self.client.run_on_scheduler(look).items()))

    def victim(self) -> tuple[str, str, int]:
        """Name, address and process of one worker, as drawn."""
        found = eventually(self.workers, "a worker")
        name = [*found][int(self.rng.random() * len(found))]
        return name, *found[name]

    def on(self, address: str, function: Callable[..., Any], **kwargs: Any) -> Any:
        """What a function gives on a worker; None where it is gone."""
        return self.client.run(function, workers=[address], on_error="ignore", **kwargs).get(address)

    def scale(self, n: int) -> None:
        """Have so many workers, whatever became of those that there were."""

        def scale(dask_scheduler: Any, n: int) -> None:
            cluster = dask_scheduler.chaos_cluster
            for name, nanny in [*cluster.workers.items()]:
                if nanny.status.name in ("closed", "closing", "failed"):
                    del cluster.workers[name]
            cluster.scale(n)

        self.client.run_on_scheduler(scale, n=n)

    def heal(self) -> None:
        """Have all workers there, and none that is not well."""

        def there() -> bool:
            self.scale(WORKERS)
            return len(self.workers()) == WORKERS

        eventually(there, f"{WORKERS} workers")


# -- work ------------------------------------------------------------------------------------------


def square(x: int) -> int:
    """Its square."""
    return x * x


def flaky(path: str, x: int) -> int:
    """Fails the first time."""
    if not os.path.exists(path):
        Path(path).touch()
        raise OSError("not yet")
    return x


def nap(seconds: float) -> float:
    """A long task."""
    time.sleep(seconds)
    return seconds


def total_inside(n: int) -> int:
    """Asks for tasks of its own."""
    with worker_client() as client:
        return sum(client.gather(client.map(square, range(n), pure=False)))


def block(seed: int, nbytes: int) -> Any:
    """What does not compress."""
    import numpy as np

    return np.random.default_rng(seed).integers(0, 256, nbytes, dtype=np.uint8)


def sum_of(array: Any) -> int:
    """Sums it up."""
    return int(array.sum())


def numbers(bed: Bed, client: Client, rng: random.Random) -> tuple[Any, Any]:
    """Short tasks and their sum."""
    n = rng.randrange(50, 200)
    total = client.submit(sum, client.map(square, range(n), pure=False), pure=False)
    return total.result(PATIENCE_SECONDS), sum(map(square, range(n)))


def failing(bed: Bed, client: Client, rng: random.Random) -> tuple[Any, Any]:
    """Tasks that fail once."""
    paths = [str(bed.folder / f"flaky-{rng.random()}") for _ in range(6)]
    futures = client.map(flaky, paths, range(6), retries=5, pure=False)
    return client.submit(sum, futures, pure=False).result(PATIENCE_SECONDS), 15


def long_ones(bed: Bed, client: Client, rng: random.Random) -> tuple[Any, Any]:
    """Tasks of seconds."""
    futures = client.map(nap, [1.0, 2.0, 4.0], pure=False)
    return client.submit(sum, futures, pure=False).result(PATIENCE_SECONDS), 7.0


def inside(bed: Bed, client: Client, rng: random.Random) -> tuple[Any, Any]:
    """A task that secedes and asks for others."""
    return client.submit(total_inside, 20, pure=False).result(PATIENCE_SECONDS), sum(map(square, range(20)))


def spilling(bed: Bed, client: Client, rng: random.Random) -> tuple[Any, Any]:
    """More than is kept in memory, read back; not so much that the disk is full."""
    seeds, nbytes = [rng.randrange(2**32) for _ in range(12)], 12 * 2**20
    blocks = client.map(block, seeds, nbytes=nbytes, pure=False)
    total = client.submit(sum, client.map(sum_of, blocks, pure=False), pure=False)
    return total.result(PATIENCE_SECONDS), sum(sum_of(block(seed, nbytes)) for seed in seeds)


def shuffled(bed: Bed, client: Client, rng: random.Random) -> tuple[Any, Any]:
    """A table by P2P: each row comes once, and all of a key in one partition."""
    import dask.dataframe as dd
    import pandas as pd

    n = 20_000 + rng.randrange(1_000)
    frame = dd.from_pandas(pd.DataFrame({"key": [i % 97 for i in range(n)], "x": range(n)}), npartitions=8)
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        parts = frame.shuffle("key", npartitions=6).map_partitions(_of_part, meta=("of_part", object))
    found = client.compute(parts).result(PATIENCE_SECONDS)
    return tuple(map(sum, zip(*found, strict=True))), (n, n * (n - 1) // 2, 97)


def _of_part(part: Any) -> Any:
    import pandas as pd

    return pd.Series([(len(part), int(part.x.sum()), part.key.nunique())])


def rechunked(bed: Bed, client: Client, rng: random.Random) -> tuple[Any, Any]:
    """An array by P2P."""
    import dask.array as da

    side, start = 600, rng.randrange(1_000)
    array = da.arange(start, start + side * side, chunks=side * side // 8).reshape(side, side)
    with dask.config.set({"array.rechunk.method": "p2p"}):
        columns = array.rechunk((side, side // 6)).sum(axis=0)
    found = client.compute(columns).result(PATIENCE_SECONDS)
    wanted = [sum(range(start + i, start + side * side, side)) for i in range(side)]
    return found.tolist(), wanted


WORK: Mapping[str, Callable[[Bed, Client, random.Random], tuple[Any, Any]]] = {
    work.__name__: work for work in (numbers, failing, long_ones, inside, spilling, shuffled, rechunked)
}


class Users:
    """Threads in which users do their work, one after the other; one of them shuffles throughout."""

    def __init__(self, bed: Bed, seed: int) -> None:
        self.right: Counter[str] = Counter()
        #: Work that failed and was done again, by its exception.
        self.again: Counter[str] = Counter()
        self.defects: list[str] = []
        self._bed, self._over = bed, threading.Event()
        shares = ([*WORK], [*WORK], ["shuffled", "rechunked"])
        self._threads = [
            threading.Thread(target=self._work, args=(random.Random(f"{seed}/{i}"), names), daemon=True)
            for i, names in enumerate(shares)
        ]

    @contextmanager
    def at_work(self) -> Iterator[Users]:
        """While they are at it."""
        for thread in self._threads:
            thread.start()
        try:
            yield self
        finally:
            self._over.set()
            for thread in self._threads:
                thread.join(2 * PATIENCE_SECONDS)

    def _work(self, rng: random.Random, names: list[str]) -> None:
        while not self._over.is_set():
            self.do(rng.choice(names), rng)
            self._over.wait(rng.random())

    def do(self, name: str, rng: random.Random) -> None:
        """One piece of work, until its result is right."""
        for _ in range(MAX_TRIES):
            try:
                found, wanted = WORK[name](self._bed, self._bed.client, rng)
            except Exception as error:
                self.again[f"{name}: {type(error).__name__}: {str(error)[:100]}"] += 1
                if OURS.search(text := "".join(traceback.format_exception(error))):
                    self.defects.append(f"{name}: {text}")
                time.sleep(1.0)
                continue
            if found != wanted:
                self.defects.append(f"{name}: {str(found)[:200]}; expected {str(wanted)[:200]}")
            self.right[name] += 1
            return
        self.defects.append(f"{name} failed {MAX_TRIES} times")
