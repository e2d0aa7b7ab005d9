"""What the tests slow down in a cluster, by a known time; it runs in the worker or in the scheduler."""

from __future__ import annotations

import asyncio
import ctypes
import threading
import time
from typing import Any

#: How long a loop is blocked at once, and how long after it was told to.
BLOCK_SECONDS = 1.0
AFTER_SECONDS = 0.2


def block_worker(dask_worker: Any) -> None:
    """Block the event loop of a worker once, soon."""
    dask_worker.loop.add_callback(lambda: dask_worker.loop.call_later(AFTER_SECONDS, time.sleep, BLOCK_SECONDS))


def block_scheduler(dask_scheduler: Any) -> None:
    """Block the event loop of the scheduler once, soon."""
    dask_scheduler.loop.add_callback(lambda: dask_scheduler.loop.call_later(AFTER_SECONDS, time.sleep, BLOCK_SECONDS))


def hold_the_gil() -> None:
    """Keep the GIL of a process once, soon."""
    wait = ctypes.PyDLL(None).poll  # unlike CDLL, this keeps it
    threading.Timer(AFTER_SECONDS, wait, (None, 0, round(BLOCK_SECONDS * 1000))).start()


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
