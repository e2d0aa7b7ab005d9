"""Programs that were written when the rules stood."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any

import psutil
from distributed import Client, get_worker

from benchmarks.hangs.programs import Hang
from benchmarks.public_reports.programs import Expected


def step(number: int) -> int:
    time.sleep(0.02)
    return number


# -- all workers are gone ----------------------------------------------------------------------------


def lose_workers(client: Client) -> Any:
    client.gather(client.map(step, range(50)))
    futures = client.map(step, range(1000, 2000))
    client.cluster.scale(0)
    return futures


NO_WORKERS = Hang(
    "https://github.com/dask/distributed/issues/1110",
    lose_workers,
    Expected(
        cause="no worker is there any more",
        place="the tasks that wait",
        cure="start workers",
        says=r"no worker",
        places=(r"\bstep\b",),
        cures=r"start .*worker",
    ),
)

# -- memory that no spilling gives back --------------------------------------------------------------


def leak() -> int:
    """Take memory up to above the limit from which workers are paused, and below that at which they are killed."""
    process, limit = psutil.Process(), get_worker().memory_manager.memory_limit
    kept: list[Any] = sys.modules.setdefault("leaked", [])  # type: ignore[arg-type,assignment]
    while process.memory_info().rss < 0.87 * limit:
        kept.append(b"x" * 4 * 2**20)
    return len(kept)


def fill_memory(client: Client) -> Any:
    client.gather(client.map(step, range(50)))
    workers = list(client.scheduler_info()["workers"])
    for worker in workers:
        client.submit(leak, workers=[worker], key=f"leak-{worker}").result()
    time.sleep(1)  # until they notice
    return client.map(step, range(1000, 1200))


PAUSED = Hang(
    "https://github.com/dask/distributed/issues/5999",
    fill_memory,
    Expected(
        cause="workers are paused, with memory that is not Dask's",
        place="the workers, or the tasks that wait",
        cure="free it, or restart them",
        says=r"paused|memory",
        places=(r"workers? .*\d|\bstep\b",),
        cures=r"memory|restart",
    ),
    cluster={"memory_limit": "500 MiB"},
)

# -- a worker whose process is stopped ---------------------------------------------------------------

_STOPPED: list[int] = []


def stop_worker(client: Client) -> Any:
    client.gather(client.map(step, range(50)))
    processes = client.run(os.getpid)
    _STOPPED.append(processes[min(processes)])
    futures = client.map(step, range(1000, 1400))
    os.kill(_STOPPED[0], signal.SIGSTOP)
    return futures


def let_go_on(client: Client) -> None:
    os.kill(_STOPPED[0], signal.SIGCONT)


FROZEN = Hang(
    "https://github.com/dask/distributed/issues/6263",
    stop_worker,
    Expected(
        cause="a worker has tasks and does not answer",
        place="the worker",
        cure="see if it is stopped; restart it",
        says=r"does not answer|silent|stopped",
        places=(r"worker \S+",),
        cures=r"stopped|restart",
    ),
    end=let_go_on,
)

# -- a child process that waits for a lock of its parent ----------------------------------------------

_LOCK = threading.Lock()


def convert(number: int) -> int:
    if number == 30:
        with _LOCK:  # as a library's lock that another thread has as the process forks
            child = os.fork()
            if child == 0:
                _LOCK.acquire(timeout=200)
                os._exit(0)
            os.waitpid(child, 0)  # <- here
    time.sleep(0.02)
    return number


def fork(client: Client) -> Any:
    return client.map(convert, range(100))


FORKED = Hang(
    "https://github.com/dask/dask/issues/3759",
    fork,
    Expected(
        cause="a task waits for a process that never ends",
        place="the line that waits, or the task's prefix",
        cure="a timeout, or another way to start processes",
        says=r"process",
        places=(r"\bconvert\b|after\.py:\d+",),
        cures=r"timeout|spawn",
    ),
)

# -- tasks for a worker that is not there any more ----------------------------------------------------


def read_local(number: int) -> int:
    return number


def restart_worker(client: Client) -> Any:
    worker = min(client.scheduler_info()["workers"])
    client.submit(read_local, 1, workers=[worker]).result()
    client.restart_workers([worker])
    return client.map(read_local, range(100, 104), workers=[worker], allow_other_workers=False)


RESTRICTED = Hang(
    "https://github.com/dask/distributed/issues/8600",
    restart_worker,
    Expected(
        cause="tasks may run on a worker only that is not there any more",
        place="the tasks, and the worker that they ask for",
        cure="start it under its name, or let others run them",
        says=r"no worker may|restrict",
        places=(r"read_local.*worker tcp://|worker tcp://.*read_local",),
        cures=r"start a worker|ask for less|allow_other_workers",
    ),
)

PROGRAMS = {
    "no_workers": NO_WORKERS,
    "paused": PAUSED,
    "frozen": FROZEN,
    "forked": FORKED,
    "restricted": RESTRICTED,
}
