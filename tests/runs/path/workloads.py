"""Workloads of the tests of paths on real clusters, and delays of a known time that are injected into them."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import numpy as np
from dask.delayed import Delayed, delayed
from distributed import get_worker, worker_client


def nap(*inputs: Any, seconds: float = 0.02) -> int:
    """A task that takes some time."""
    time.sleep(seconds)
    return len(inputs)


def instant(*inputs: Any) -> int:
    """A task that takes none."""
    return len(inputs)


def large(*inputs: Any, nbytes: int) -> Any:
    """A task with a large result."""
    return np.ones(nbytes, "u1")


def dies_at_first(path: str) -> int:
    """A task that takes its worker with it, once."""
    time.sleep(0.5)
    if not os.path.exists(path):
        with open(path, "w"):
            pass
        os._exit(1)
    return 1


def asks_for_more(seconds: float) -> int:
    """A task that has tasks of its own and waits for them."""
    with worker_client() as client:
        return int(client.submit(nap, 1, seconds=seconds, pure=False).result())


def tree(leaves: int, function: Any, **settings: Any) -> Delayed:
    """A reduction two by two."""
    level = [delayed(function, pure=False)(i, **settings) for i in range(leaves)]
    while len(level) > 1:
        level = [delayed(function, pure=False)(*level[i : i + 2], **settings) for i in range(0, len(level), 2)]
    return level[0]


def wide(tasks: int, function: Any, **settings: Any) -> Delayed:
    """Many tasks, and one that needs them all."""
    return delayed(instant, pure=False)(*(delayed(function, pure=False)(i, **settings) for i in range(tasks)))


#: How long a loop is blocked at once.
BLOCK_SECONDS = 1.0


def block(server: Any) -> None:
    """Block the event loop of a server, on which this is called."""
    server.blocked = time.monotonic()
    time.sleep(BLOCK_SECONDS)
    server.unblocked = time.monotonic()


def ask_for_a_block(*inputs: Any) -> int:
    """A task of whose end its worker hears only after its loop was blocked."""
    worker = get_worker()
    worker.loop.add_callback(block, worker)
    worker.ended = time.monotonic()
    return len(inputs)


def wait_and_end(file: str, *inputs: Any) -> float:
    """A task that ends when there is a file; gives the instant."""
    until = time.monotonic() + 100
    while not os.path.exists(file) and time.monotonic() < until:
        time.sleep(0.01)
    return time.monotonic()


def kept_waiting(dask_worker: Any) -> float:
    """Seconds for which the task that asked for the block was at its end, and the loop could not hear of it."""
    return float(dask_worker.unblocked - max(dask_worker.ended, dask_worker.blocked))


def block_scheduler(dask_scheduler: Any, file: str) -> float:
    """Block the event loop of the scheduler, make a file that a task waits for, and give the instant after that."""
    with open(file, "w"):
        pass
    block(dask_scheduler)
    return float(dask_scheduler.unblocked)


def slow_link(dask_worker: Any, seconds: float) -> None:
    """Let a worker wait before it sends a result."""
    original = dask_worker.handlers["get_data"]

    async def get_data(comm: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(seconds)
        return await original(comm, **kwargs)

    dask_worker.handlers["get_data"] = get_data


def slow_disk(dask_worker: Any, seconds: float) -> None:
    """Let a worker's disk wait for each result that it writes."""
    files = dask_worker.data.slow.data.d
    kind = type(files)

    class SlowFile(kind):  # type: ignore[misc,valid-type]  # whatever class this version of Dask has
        def __setitem__(self, key: Any, value: Any) -> None:
            time.sleep(seconds)
            super().__setitem__(key, value)

    files.__class__ = SlowFile
