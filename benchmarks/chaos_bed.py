"""The bed of ``benchmarks/chaos.py``: a cluster that may be killed whole, small disks, and work with known results."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import dask
from distributed import Client, LocalCluster, worker_client

from dashboards.monitor.prometheus import free_port
from dask_efficiency import EfficiencyPlugin

WORKERS, THREADS = 3, 2

#: What a worker may have, and its nanny kills it for; results beyond a tenth of that are spilled. And its disk.
MEMORY, DISK = 700 * 2**20, 256 * 2**20
SETTINGS = {
    "distributed.scheduler.allowed-failures": 10_000,
    "distributed.worker.memory.target": 0.1,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": 0.9,
    "distributed.comm.timeouts.connect": "60s",
    "efficiency.report-timeout": "60s",
}

#: Seconds after which a state that has not come about is a defect.
PATIENCE_SECONDS = 180
#: Most seconds that one look at it counts for. A guess.
LONGEST_LOOK = 1.0

#: Tries of one piece of work, which may fail when a disk is full or a scheduler is gone.
MAX_TRIES = 20

#: Frames of ours that only pass a call on to Dask, as another frame follows; and any frame of ours.
_PASSED_ON = re.compile(
    r'/dask_efficiency/[^"\n]*", line \d+, in (?:\w+\n +return (?:await )?[^\n]*?\(\*args,(?: \w+=\w+,)* \*\*kwargs\)'
    r'|(?:timed|counted)\w*\n(?: {4}[^\n]*\n)*(?= *File "))'
)
_OURS = re.compile(r"/dask_efficiency/(?!plugin/scheduler/loop_meter)")


def is_ours(text: str) -> bool:
    """True if what is logged, or a traceback, is a failure of ours, and not one of Dask that passes through."""
    return _OURS.search(_PASSED_ON.sub("", text.replace("\\n", "\n"))) is not None


def eventually(condition: Callable[[], Any], what: str) -> Any:
    """The first value of a condition that is true; time for which this process was itself stopped does not count."""
    waited, at = 0.0, time.monotonic()
    while not (value := condition()):
        if waited > PATIENCE_SECONDS:
            raise TimeoutError(f"waited {PATIENCE_SECONDS} s for {what} in vain")
        time.sleep(0.1)
        before, at = at, time.monotonic()
        waited += min(at - before, LONGEST_LOOK)
    return value


# -- the cluster -----------------------------------------------------------------------------------


def host(port: int, disk: str) -> None:
    """Be the process of a cluster with its scheduler and nannies, until standard input ends."""
    options = {"dashboard_address": ":0", "memory_limit": MEMORY, "silence_logs": False, "local_directory": disk}
    with (
        dask.config.set(SETTINGS),
        LocalCluster(n_workers=WORKERS, threads_per_worker=THREADS, scheduler_port=port, **options) as cluster,
    ):
        cluster.scheduler.chaos_cluster = cluster
        print("READY", flush=True)
        sys.stdin.read()
    print("CLOSED", flush=True)


class Bed:
    """A cluster in a process of its own, with its client; files, logs and disks are in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "cluster.log"
        #: What is drawn for an event; each has one of its own.
        self.rng = random.Random()
        #: Names of workers of which part of the time is not measured because of what was done to them.
        self.disturbed: set[str] = set()
        #: The workers' disk, and one that has room for nothing; and whether they can be full.
        self.disk, self.tiny = folder / "disk", folder / "tiny"
        self.small = all([_mounted(self.disk, DISK), _mounted(self.tiny, 2**14)])
        self.port = free_port()
        self.start()
        self.client = Client(f"tcp://127.0.0.1:{self.port}", timeout=PATIENCE_SECONDS)
        self.register()

    def start(self) -> None:
        command = [sys.executable, "-m", "benchmarks.chaos", "--host", str(self.port), str(self.disk)]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "start_new_session": True}
        with self.log.open("a") as log:
            self._process = subprocess.Popen(command, stderr=log, cwd=Path(__file__).parents[1], **pipes)
        if self._process.stdout.readline() != "READY\n":
            raise RuntimeError("the cluster did not start: " + self.log.read_text()[-2_000:])

    def register(self, **options: Any) -> None:
        self.client.register_plugin(EfficiencyPlugin(**options))

    def stop(self, *, kill: bool = False) -> None:
        """End the cluster in order, or all of its processes at once."""
        _, closed = (None, "CLOSED") if kill else ((process := self._process).stdin.close(), process.stdout.read())
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert "CLOSED" in closed, "the cluster did not close in order"

    def close(self) -> None:
        with suppress(Exception):
            self.client.close(timeout=5)
        self.stop(kill=True)
        for disk in filter(os.path.ismount, (self.disk, self.tiny)):
            subprocess.run(["umount", "-l", str(disk)], check=True)

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
        """The result of a function on a worker; None if the worker is gone."""
        return self.client.run(function, workers=[address], on_error="ignore", **kwargs).get(address)

    def scale(self, n: int) -> bool:
        """Ask for n workers, whatever became of the old ones; returns True once they are there."""

        def scale(dask_scheduler: Any, n: int) -> bool:
            cluster = dask_scheduler.chaos_cluster
            for name, nanny in [*cluster.workers.items()]:
                if nanny.status.name in ("closed", "closing", "failed"):
                    del cluster.workers[name]
            cluster.scale(n)
            return len(dask_scheduler.workers) == n

        return bool(self.client.run_on_scheduler(scale, n=n))

    def heal(self) -> None:
        """Have as many workers as in the beginning."""
        eventually(partial(self.scale, WORKERS), f"{WORKERS} workers")


def _mounted(disk: Path, nbytes: int) -> bool:
    """Mount a disk of this size at a folder; False, and an ordinary folder, without the rights."""
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={nbytes}", "tmpfs", str(disk)]
    return (
        shutil.which("mount") is not None and subprocess.run(command, check=False, capture_output=True).returncode == 0
    )


# -- work, with its right results --------------------------------------------------------------------


def flaky(path: str) -> int:
    if not os.path.exists(path):
        Path(path).touch()
        raise OSError("not yet")
    return 1


def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def total_inside(n: int) -> int:
    """Secedes, and asks for tasks of its own."""
    with worker_client() as client:
        return sum(client.gather(client.map(abs, range(n), pure=False)))


def block(seed: int) -> Any:
    import numpy as np

    return np.random.default_rng(seed).integers(0, 256, 12 * 2**20, dtype=np.uint8)


def sum_of(array: Any) -> int:
    return int(array.sum())


def of_part(part: Any) -> Any:
    import pandas as pd

    return pd.Series([(len(part), int(part.x.sum()), part.key.nunique())])


def total(bed: Bed, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    tasks = bed.client.map(function, *args, pure=False, **options)
    return bed.client.submit(sum, tasks, pure=False).result(PATIENCE_SECONDS)


def spilling(bed: Bed, n: int) -> tuple[Any, Any]:
    """More than is kept in memory, read back."""
    blocks = bed.client.map(block, range(n, n + 12), pure=False)
    return total(bed, sum_of, blocks), sum(sum_of(block(seed)) for seed in range(n, n + 12))


def shuffled(bed: Bed, n: int) -> tuple[Any, Any]:
    """A table by P2P: each row comes once, and all of a key in one partition."""
    import dask.dataframe as dd
    import pandas as pd

    frame = dd.from_pandas(pd.DataFrame({"key": [i % 97 for i in range(n)], "x": range(n)}), npartitions=8)
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        parts = frame.shuffle("key", npartitions=6).map_partitions(of_part, meta=("of_part", object))
    found = bed.client.compute(parts).result(PATIENCE_SECONDS)
    return tuple(map(sum, zip(*found, strict=True))), (n, n * (n - 1) // 2, 97)


def rechunked(bed: Bed, n: int) -> tuple[Any, Any]:
    import dask.array as da

    side = 600
    array = da.arange(n, n + side * side, chunks=side * side // 8).reshape(side, side)
    with dask.config.set({"array.rechunk.method": "p2p"}):
        found = bed.client.compute(array.rechunk((side, side // 6)).sum(axis=0)).result(PATIENCE_SECONDS)
    return found.tolist(), [sum(range(n + i, n + side * side, side)) for i in range(side)]


#: What users compute, by name, of a number that makes it another; with the right result.
WORK: Mapping[str, Callable[[Bed, int], tuple[Any, Any]]] = {
    "short tasks": lambda bed, n: (total(bed, abs, range(n % 200)), sum(range(n % 200))),
    "retries": lambda bed, n: (total(bed, flaky, [str(bed.folder / f"{n}-{i}") for i in range(6)], retries=9), 6),
    "long tasks": lambda bed, n: (total(bed, nap, [1.0, 2.0, 4.0]), 7.0),
    "seceding": lambda bed, n: (total(bed, total_inside, [20, 30]), 190 + 435),
    "spilling": spilling,
    "shuffled": shuffled,
    "rechunked": rechunked,
}


class Users:
    """Threads in which users do their work, one after the other; one of them shuffles throughout."""

    def __init__(self, bed: Bed, seed: int) -> None:
        #: Work whose result was right; and that failed and was done again, by its exception.
        self.right: Counter[str] = Counter()
        self.again: Counter[str] = Counter()
        self.defects: list[str] = []
        self._bed, self._over = bed, threading.Event()
        shares = ([*WORK], [*WORK], ["shuffled", "rechunked"])
        self._threads = [
            threading.Thread(target=self._work, args=(random.Random(f"{seed}/{i}"), names), daemon=True)
            for i, names in enumerate(shares)
        ]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in self._threads:
                thread.join()

    def _work(self, rng: random.Random, names: list[str]) -> None:
        while not self._over.wait(rng.random()):
            self.do(rng.choice(names), rng.randrange(20_000, 30_000))

    def do(self, name: str, n: int) -> None:
        """One piece of work, until its result is there."""
        for attempt in range(MAX_TRIES):
            try:  # another shuffle each time: Dask may remember on a worker that one has failed
                found, wanted = WORK[name](self._bed, n + attempt)
            except Exception as error:
                self.again[f"{name}: {type(error).__name__}"] += 1
                if is_ours(text := "".join(traceback.format_exception(error))):
                    self.defects.append(f"{name}: {text}")
                time.sleep(1.0)
            else:
                self.right[name] += found == wanted
                if found != wanted:
                    self.defects.append(f"{name}: {str(found)[:200]}; expected {str(wanted)[:200]}")
                return
        self.defects.append(f"{name} failed {MAX_TRIES} times")
