"""Delays of a known time that tests inject into a worker or the scheduler of a cluster."""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
import time
from typing import Any

from distributed import get_worker

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


def hold_the_gil(dask_worker: Any) -> None:
    """Let another thread keep the GIL of a worker when it is next asked for data."""
    original = dask_worker.handlers["get_data"]
    keep = ctypes.PyDLL(None).poll  # unlike CDLL, this keeps it

    async def get_data(comm: Any, **kwargs: Any) -> Any:
        dask_worker.handlers["get_data"] = original
        threading.Thread(target=keep, args=(None, 0, round(BLOCK_SECONDS * 1000))).start()
        return await original(comm, **kwargs)

    dask_worker.handlers["get_data"] = get_data


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


def step(*inputs: Any, seconds: float = 0.01) -> int:
    """A short task."""
    time.sleep(seconds)
    return len(inputs)


def megabytes(*inputs: Any) -> bytes:
    """A task with a result of 4 MB."""
    return b"x" * 4_000_000
